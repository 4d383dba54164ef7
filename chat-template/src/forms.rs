//! The forms in which templates expect messages, and how a conversation is brought into one.

use serde_json::{Value, json};

use crate::{Chat, Message, TemplateError};

/// One choice of forms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Forms {
    /// Text as a list of one part.
    text_as_parts: bool,
    /// Tool arguments as JSON text.
    arguments_as_text: bool,
    /// A content of `null` as empty text.
    null_as_empty: bool,
}

/// Which form of content shows a text: tried with a text that no template writes itself.
pub(crate) fn probe(render: impl Fn(&Chat) -> Result<String, TemplateError>) -> Forms {
    const TEXT: &str = "s0me-t3xt-t0-l00k-f0r";
    let shows = |forms: Forms| {
        let chat = forms.apply(&Chat::new(vec![Message::user(TEXT)]));
        render(&chat).is_ok_and(|text| text.contains(TEXT))
    };
    let parts = Forms { text_as_parts: true, ..Forms::default() };
    if !shows(Forms::default()) && shows(parts) { parts } else { Forms::default() }
}

impl Forms {
    /// The forms to try, the best one first; those that make no difference to this conversation are left out.
    pub(crate) fn alternatives(self, chat: &Chat) -> Vec<Self> {
        let calls =
            chat.messages.iter().any(|message| message.members().get("tool_calls").is_some_and(Value::is_array));
        let null = chat.messages.iter().any(|message| message.members().get("content").is_none_or(Value::is_null));
        let mut all = vec![self];
        if calls {
            all.push(Self { arguments_as_text: true, ..self });
        }
        if null {
            all.extend(all.clone().into_iter().map(|forms| Self { null_as_empty: true, ..forms }));
        }
        all
    }

    /// The conversation in these forms.
    pub(crate) fn apply(self, chat: &Chat) -> Chat {
        let mut chat = chat.clone();
        for message in &mut chat.messages {
            self.apply_to(message);
        }
        chat
    }

    fn apply_to(self, message: &mut Message) {
        let text = message.text();
        let members = message.members_mut();
        match members.get_mut("content") {
            Some(content @ Value::String(_)) if self.text_as_parts => {
                *content = json!([{"type": "text", "text": content.as_str()}]);
            }
            Some(content @ Value::Array(_)) if !self.text_as_parts && only_text(content) => *content = text.into(),
            None | Some(Value::Null) if self.null_as_empty => drop(members.insert("content".into(), "".into())),
            _ => {}
        }
        let Some(Value::Array(calls)) = members.get_mut("tool_calls") else { return };
        for call in calls {
            let Some(arguments) = call.pointer_mut("/function/arguments") else { continue };
            match arguments {
                Value::String(text) if !self.arguments_as_text => {
                    // Text that is no object stays: the model may have written it so.
                    if let Ok(object @ Value::Object(_)) = serde_json::from_str(text) {
                        *arguments = object;
                    }
                }
                Value::Object(_) if self.arguments_as_text => *arguments = Value::String(arguments.to_string()),
                _ => {}
            }
        }
    }
}

fn only_text(content: &Value) -> bool {
    let parts = content.as_array().map(Vec::as_slice).unwrap_or_default();
    parts.iter().all(|part| part.get("type").and_then(Value::as_str) == Some("text"))
}
