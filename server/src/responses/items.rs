//! A response, and the items of its output.

use open_genie::StopReason;
use open_genie::serving::Finished;
use serde_json::{Map, Value, json};

use crate::reply::ToolCall;

/// What a response is made of, whatever state it is in.
pub(crate) struct Shape {
    pub(crate) id: String,
    pub(crate) created: u64,
    pub(crate) model: String,
    pub(crate) echo: Map<String, Value>,
}

impl Shape {
    /// A response that is not over.
    pub(crate) fn open(&self) -> Value {
        self.response("in_progress", &[], Value::Null, Value::Null)
    }

    /// A response that is over.
    pub(crate) fn done(&self, output: &[Value], finished: &Finished, n_prompt: usize) -> Value {
        let n_out = finished.reply.kpis.n_drawn;
        let usage = json!({
            "input_tokens": n_prompt,
            "input_tokens_details": {"cached_tokens": finished.n_shared},
            "output_tokens": n_out,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": n_prompt + n_out,
        });
        match finished.reply.stop {
            StopReason::MaxTokens | StopReason::ContextLimit => {
                self.response("incomplete", output, json!({"reason": "max_output_tokens"}), usage)
            }
            _ => self.response("completed", output, Value::Null, usage),
        }
    }

    fn response(&self, status: &str, output: &[Value], incomplete: Value, usage: Value) -> Value {
        let mut response = json!({
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "status": status,
            "background": false,
            "error": null,
            "incomplete_details": incomplete,
            "model": self.model,
            "output": output,
            "previous_response_id": null,
            "store": false,
            "usage": usage,
        });
        if let Some(object) = response.as_object_mut() {
            object.extend(self.echo.clone());
        }
        response
    }
}

/// A text of the output.
pub(crate) fn text_part(text: &str) -> Value {
    json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []})
}

/// A message of the output.
pub(crate) fn message(id: &str, status: &str, parts: &[Value]) -> Value {
    json!({"id": id, "type": "message", "status": status, "role": "assistant", "content": parts})
}

/// Reasoning, as an item.
pub(crate) fn reasoning(id: &str, text: &str) -> Value {
    let content = if text.is_empty() { json!([]) } else { json!([{"type": "reasoning_text", "text": text}]) };
    json!({"id": id, "type": "reasoning", "summary": [], "content": content})
}

/// A call, as an item.
pub(crate) fn call(id: &str, status: &str, call: &ToolCall) -> Value {
    json!({
        "id": id, "type": "function_call", "status": status, "call_id": call.id, "name": call.name,
        "arguments": call.arguments,
    })
}
