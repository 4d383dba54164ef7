//! A chat completion, whole.

use open_genie::StopReason;
use serde_json::{Map, Value, json};

use crate::reply::{Collected, ToolCall};

/// OpenAI's word for why a reply is over; `has_calls`: with [whole calls](Collected::has_whole_calls) of tools.
pub(crate) fn finish_reason(stop: &StopReason, has_calls: bool) -> &'static str {
    match stop {
        StopReason::MaxTokens | StopReason::ContextLimit => "length",
        _ if has_calls => "tool_calls",
        _ => "stop",
    }
}

/// The message of one choice.
pub(crate) fn message(reply: &Collected) -> Value {
    let mut message = Map::new();
    message.insert("role".into(), "assistant".into());
    let content =
        if reply.content.is_empty() && !reply.calls.is_empty() { Value::Null } else { reply.content.as_str().into() };
    message.insert("content".into(), content);
    message.insert("refusal".into(), Value::Null);
    if !reply.reasoning.is_empty() {
        message.insert("reasoning_content".into(), reply.reasoning.as_str().into());
    }
    if !reply.calls.is_empty() {
        message.insert("tool_calls".into(), reply.calls.iter().map(call).collect());
    }
    message.into()
}

fn call(call: &ToolCall) -> Value {
    json!({"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}})
}
