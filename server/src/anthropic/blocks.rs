//! A reply as Anthropic's blocks, whole and as events.

use open_genie::StopReason;
use serde_json::{Value, json};

use crate::reply::{Collected, Delta};

/// Anthropic's words for why a reply is over, and which of the request's own stop sequences ended it; `has_calls`: with
/// [whole calls](Collected::has_whole_calls) of tools.
pub(crate) fn stop_reason<'a>(
    stop: &'a StopReason,
    own_stops: &[String],
    has_calls: bool,
) -> (&'static str, Option<&'a str>) {
    match stop {
        StopReason::MaxTokens | StopReason::ContextLimit => ("max_tokens", None),
        StopReason::StopSequence(text) if own_stops.contains(text) => ("stop_sequence", Some(text)),
        _ if has_calls => ("tool_use", None),
        _ => ("end_turn", None),
    }
}

/// The blocks of a whole reply.
pub(crate) fn of_reply(reply: &Collected) -> Vec<Value> {
    let mut blocks = Vec::new();
    if !reply.reasoning.is_empty() {
        blocks.push(json!({"type": "thinking", "thinking": reply.reasoning, "signature": ""}));
    }
    if !reply.content.is_empty() || reply.calls.is_empty() {
        blocks.push(json!({"type": "text", "text": reply.content}));
    }
    for call in &reply.calls {
        // A call that was cut off is no JSON.
        let input: Value = serde_json::from_str(&call.arguments).unwrap_or_else(|_| json!({}));
        blocks.push(json!({"type": "tool_use", "id": call.id, "name": call.name, "input": input}));
    }
    blocks
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Thinking,
    Text,
    Call(usize),
}

/// Makes events of the pieces: each block begins, grows and ends.
#[derive(Debug, Default)]
pub(crate) struct BlockEvents {
    open: Option<Kind>,
    n_blocks: usize,
}

impl BlockEvents {
    /// The events of a piece, with their names.
    pub(crate) fn push(&mut self, delta: &Delta, out: &mut Vec<(&'static str, Value)>) {
        match delta {
            Delta::Reasoning(text) => {
                self.open(Kind::Thinking, || json!({"type": "thinking", "thinking": "", "signature": ""}), out);
                self.grow(json!({"type": "thinking_delta", "thinking": text}), out);
            }
            Delta::Content(text) => {
                self.open(Kind::Text, || json!({"type": "text", "text": ""}), out);
                self.grow(json!({"type": "text_delta", "text": text}), out);
            }
            Delta::Call { index, id, name } => {
                self.open(Kind::Call(*index), || json!({"type": "tool_use", "id": id, "name": name, "input": {}}), out);
            }
            Delta::Arguments { text, .. } => self.grow(json!({"type": "input_json_delta", "partial_json": text}), out),
        }
    }

    fn open(&mut self, kind: Kind, block: impl FnOnce() -> Value, out: &mut Vec<(&'static str, Value)>) {
        if self.open == Some(kind) {
            return;
        }
        self.close(out);
        let event = json!({"type": "content_block_start", "index": self.n_blocks, "content_block": block()});
        out.push(("content_block_start", event));
        self.open = Some(kind);
    }

    fn grow(&self, delta: Value, out: &mut Vec<(&'static str, Value)>) {
        let event = json!({"type": "content_block_delta", "index": self.n_blocks, "delta": delta});
        out.push(("content_block_delta", event));
    }

    /// Ends the block that is open.
    pub(crate) fn close(&mut self, out: &mut Vec<(&'static str, Value)>) {
        if self.open.take().is_some() {
            out.push(("content_block_stop", json!({"type": "content_block_stop", "index": self.n_blocks})));
            self.n_blocks += 1;
        }
    }
}
