//! A chat completion in pieces.

use serde_json::{Value, json};

use crate::reply::Delta;

/// What all chunks of a reply have in common.
pub(crate) struct Chunks {
    pub(crate) id: String,
    pub(crate) created: u64,
    pub(crate) model: String,
}

impl Chunks {
    fn chunk(&self, choices: Value) -> Value {
        json!({
            "id": self.id,
            "object": "chat.completion.chunk",
            "created": self.created,
            "model": self.model,
            "system_fingerprint": crate::FINGERPRINT,
            "choices": choices,
        })
    }

    fn choice(&self, index: usize, delta: &Value, finish: Option<&str>) -> Value {
        self.chunk(json!([{"index": index, "delta": delta, "logprobs": null, "finish_reason": finish}]))
    }

    /// The first of a choice.
    pub(crate) fn first(&self, index: usize) -> Value {
        self.choice(index, &json!({"role": "assistant", "content": null}), None)
    }

    /// A piece of a choice.
    pub(crate) fn piece(&self, index: usize, delta: &Delta) -> Value {
        let delta = match delta {
            Delta::Reasoning(text) => json!({"reasoning_content": text}),
            Delta::Content(text) => json!({"content": text}),
            Delta::Call { index, id, name } => json!({"tool_calls": [
                {"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": ""}}
            ]}),
            Delta::Arguments { index, text } => {
                json!({"tool_calls": [{"index": index, "function": {"arguments": text}}]})
            }
        };
        self.choice(index, &delta, None)
    }

    /// The last of a choice.
    pub(crate) fn last(&self, index: usize, finish: &str) -> Value {
        self.choice(index, &json!({}), Some(finish))
    }

    /// What it has cost, behind all choices.
    pub(crate) fn usage(&self, usage: Value) -> Value {
        let mut chunk = self.chunk(json!([]));
        chunk["usage"] = usage;
        chunk
    }
}
