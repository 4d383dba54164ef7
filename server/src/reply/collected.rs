//! A reply put together from its pieces.

use super::Delta;

/// A whole reply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Collected {
    pub(crate) reasoning: String,
    pub(crate) content: String,
    pub(crate) calls: Vec<ToolCall>,
}

/// A call of a tool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ToolCall {
    pub(crate) id: String,
    pub(crate) name: String,
    /// JSON text.
    pub(crate) arguments: String,
}

impl ToolCall {
    /// Whether its arguments are all there, as JSON.
    pub(crate) fn is_whole(&self) -> bool {
        serde_json::from_str::<serde::de::IgnoredAny>(&self.arguments).is_ok()
    }
}

impl Collected {
    /// Whether it has calls of tools, the last one whole: a stop sequence may have cut it off.
    pub(crate) fn has_whole_calls(&self) -> bool {
        self.calls.last().is_some_and(ToolCall::is_whole)
    }

    /// Takes a piece.
    pub(crate) fn push(&mut self, delta: &Delta) {
        match delta {
            Delta::Reasoning(text) => self.reasoning.push_str(text),
            Delta::Content(text) => self.content.push_str(text),
            Delta::Call { id, name, .. } => {
                let call = ToolCall { id: id.clone(), name: name.clone(), arguments: String::new() };
                self.calls.push(call);
            }
            Delta::Arguments { index, text } => {
                if let Some(call) = self.calls.get_mut(*index) {
                    call.arguments.push_str(text);
                }
            }
        }
    }
}
