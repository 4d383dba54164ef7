//! Pieces of a reply as the typed events of a response. The items that they end with are the output of a whole one, too.

use serde_json::{Value, json};

use super::items;
use crate::ids;
use crate::reply::{Delta, ToolCall};

enum Open {
    Reasoning(String),
    Message(String),
    Call(ToolCall),
}

/// The output as far as it has come. *Invariant*: at most one item is open; sequence numbers count up from 0 without a gap.
#[derive(Default)]
pub(crate) struct Output {
    open: Option<(String, Open)>,
    pub(crate) items: Vec<Value>,
    sequence: usize,
}

impl Output {
    /// An event with its number.
    pub(crate) fn event(&mut self, name: &'static str, mut fields: Value) -> (&'static str, Value) {
        fields["type"] = name.into();
        fields["sequence_number"] = self.sequence.into();
        self.sequence += 1;
        (name, fields)
    }

    /// The events of a piece.
    pub(crate) fn push(&mut self, delta: &Delta, out: &mut Vec<(&'static str, Value)>) {
        match delta {
            Delta::Reasoning(text) => {
                if !matches!(self.open, Some((_, Open::Reasoning(_)))) {
                    self.begin("rs_", Open::Reasoning(String::new()), out);
                }
                self.grow("response.reasoning_text.delta", text, out);
            }
            Delta::Content(text) => {
                if !matches!(self.open, Some((_, Open::Message(_)))) {
                    self.begin("msg_", Open::Message(String::new()), out);
                }
                self.grow("response.output_text.delta", text, out);
            }
            Delta::Call { id, name, .. } => {
                let call = ToolCall { id: id.clone(), name: name.clone(), arguments: String::new() };
                self.begin("fc_", Open::Call(call), out);
            }
            Delta::Arguments { text, .. } => self.grow("response.function_call_arguments.delta", text, out),
        }
    }

    fn begin(&mut self, prefix: &str, open: Open, out: &mut Vec<(&'static str, Value)>) {
        self.close("completed", out);
        let (id, index) = (ids::new(prefix), self.items.len());
        let item = match &open {
            Open::Reasoning(_) => items::reasoning(&id, ""),
            Open::Message(_) => items::message(&id, "in_progress", &[]),
            Open::Call(call) => items::call(&id, "in_progress", call),
        };
        out.push(self.event("response.output_item.added", json!({"output_index": index, "item": item})));
        if matches!(open, Open::Message(_)) {
            let part = items::text_part("");
            let fields = json!({"item_id": id, "output_index": index, "content_index": 0, "part": part});
            out.push(self.event("response.content_part.added", fields));
        }
        self.open = Some((id, open));
    }

    fn grow(&mut self, name: &'static str, text: &str, out: &mut Vec<(&'static str, Value)>) {
        let index = self.items.len();
        let Some((id, open)) = &mut self.open else { return };
        let mut fields = json!({"item_id": id, "output_index": index, "delta": text});
        match open {
            Open::Reasoning(so_far) => {
                fields["content_index"] = 0.into();
                so_far.push_str(text);
            }
            Open::Message(so_far) => {
                fields["content_index"] = 0.into();
                fields["logprobs"] = json!([]);
                so_far.push_str(text);
            }
            Open::Call(call) => call.arguments.push_str(text),
        }
        let event = self.event(name, fields);
        out.push(event);
    }

    /// Ends the item that is open, with that status; a call that a stop sequence cut off is incomplete whatever it says.
    pub(crate) fn close(&mut self, status: &str, out: &mut Vec<(&'static str, Value)>) {
        let Some((id, open)) = self.open.take() else { return };
        let index = self.items.len();
        let item = match open {
            Open::Reasoning(text) => {
                let fields = json!({"item_id": id, "output_index": index, "content_index": 0, "text": text});
                out.push(self.event("response.reasoning_text.done", fields));
                items::reasoning(&id, &text)
            }
            Open::Message(text) => {
                let at = |key: &str, value: Value| {
                    let mut fields = json!({"item_id": id, "output_index": index, "content_index": 0});
                    fields[key] = value;
                    fields
                };
                let mut done = at("text", text.as_str().into());
                done["logprobs"] = json!([]);
                out.push(self.event("response.output_text.done", done));
                let part = items::text_part(&text);
                out.push(self.event("response.content_part.done", at("part", part.clone())));
                items::message(&id, status, &[part])
            }
            Open::Call(call) => {
                let status = if call.is_whole() { status } else { "incomplete" };
                let fields = json!({
                    "item_id": id, "output_index": index, "name": call.name, "arguments": call.arguments,
                });
                out.push(self.event("response.function_call_arguments.done", fields));
                items::call(&id, status, &call)
            }
        };
        out.push(self.event("response.output_item.done", json!({"output_index": index, "item": item})));
        self.items.push(item);
    }
}
