//! `POST /v1/messages`: blocks made into messages of OpenAI's form, which templates know.

use serde_json::{Map, Value, json};

use crate::body;
use crate::error::ApiError;
use crate::openai::prepared::{Parts, Prepared};
use crate::openai::sampling::Sampling;
use crate::schema::keys;
use crate::state::State;
use crate::tools::{Tool, ToolChoice};

keys! {
    /// Keys of a request, beside those of sampling.
    pub(crate) struct Fields {
        messages: Vec<Value>,
        system: Option<Value>,
        max_tokens: Option<i64>,
        tools: Option<Vec<Value>>,
        tool_choice: Option<Value>,
        stream: Option<bool>,
    }
}

/// A request that is to be answered.
pub(crate) struct MessagesRequest {
    pub(crate) chat: Prepared,
    pub(crate) stream: bool,
    pub(crate) priority: i32,
    /// Stop sequences of its own, not the bundle's.
    pub(crate) own_stops: Vec<String>,
}

impl MessagesRequest {
    /// Reads and checks a body; `counted`: only its tokens matter, and no limit has to be given.
    pub(crate) fn read(state: &State, body: &Value, counted: bool) -> Result<Self, ApiError> {
        let fields: Fields = body::read(body)?;
        let sampling = Sampling::read(body)?.only_one()?;
        if !counted && fields.max_tokens.is_none_or(|n| n < 1) {
            return Err(ApiError::invalid("max_tokens", "`max_tokens`: expected a number of at least 1"));
        }
        let mut messages = Vec::new();
        if let Some(system) = fields.system.filter(|system| !system.is_null()) {
            messages.push(json!({"role": "system", "content": text_of(&system, "system")?}));
        }
        for (index, message) in fields.messages.iter().enumerate() {
            translate(message, &format!("messages[{index}]"), &mut messages)?;
        }
        let mut tools = Vec::new();
        for (index, tool) in fields.tools.unwrap_or_default().iter().enumerate() {
            tools.extend(Tool::of_anthropic(tool, &format!("tools[{index}]"))?);
        }
        let one_call = fields.tool_choice.as_ref().and_then(|choice| choice.get("disable_parallel_tool_use"));
        let one_call = one_call.and_then(Value::as_bool).unwrap_or(false);
        let parts = Parts {
            messages,
            tools,
            choice: ToolChoice::of_openai(fields.tool_choice.as_ref())?,
            variables: Map::new(),
            settings: sampling.settings(state)?,
            grammar: None,
            keep_reasoning: false,
            open_reply: true,
            one_call,
        };
        let priority = sampling.priority();
        let own_stops = sampling.stops()?.unwrap_or_default();
        Ok(Self { chat: Prepared::new(state, parts)?, stream: fields.stream.unwrap_or(false), priority, own_stops })
    }
}

/// A text, or blocks of text.
fn text_of(content: &Value, at: &str) -> Result<String, ApiError> {
    match content {
        Value::String(text) => Ok(text.clone()),
        Value::Array(blocks) => {
            let text = |block: &Value| {
                let text = block.get("text").and_then(Value::as_str).map(str::to_owned);
                let kind = block.get("type").and_then(Value::as_str).unwrap_or("none");
                text.filter(|_| kind == "text").ok_or_else(|| {
                    ApiError::invalid(
                        at,
                        format!("`{at}`: blocks of type `{kind}` are not supported here: expected `text`"),
                    )
                })
            };
            blocks.iter().map(text).collect()
        }
        _ => Err(ApiError::invalid(at, format!("`{at}`: expected a text or a list of blocks"))),
    }
}

/// One message of Anthropic's is one or more of OpenAI's: results of tools are messages of their own.
fn translate(message: &Value, at: &str, out: &mut Vec<Value>) -> Result<(), ApiError> {
    let role = message.get("role").and_then(Value::as_str).unwrap_or_default();
    if !["user", "assistant", "system"].contains(&role) {
        return Err(ApiError::invalid(at, format!("`{at}`: expected the role `user` or `assistant`, found `{role}`")));
    }
    let at = format!("{at}.content");
    let Some(Value::Array(blocks)) = message.get("content") else {
        let text = text_of(message.get("content").unwrap_or(&Value::Null), &at)?;
        out.push(json!({"role": role, "content": text}));
        return Ok(());
    };
    let (mut text, mut calls) = (String::new(), Vec::new());
    for (index, block) in blocks.iter().enumerate() {
        let at = format!("{at}[{index}]");
        let get = |key: &str| block.get(key).and_then(Value::as_str).unwrap_or_default();
        match get("type") {
            "text" => text.push_str(get("text")),
            "tool_use" => {
                let input = block.get("input").cloned().unwrap_or_else(|| json!({}));
                calls.push(json!({
                    "id": get("id"), "type": "function", "function": {"name": get("name"), "arguments": input.to_string()},
                }));
            }
            "tool_result" => {
                let content = block.get("content").map_or(Ok(String::new()), |content| text_of(content, &at))?;
                out.push(json!({"role": "tool", "tool_call_id": get("tool_use_id"), "content": content}));
            }
            // What the model thought is not given to it again.
            "thinking" | "redacted_thinking" => {}
            kind => {
                return Err(ApiError::invalid(
                    at.clone(),
                    format!("`{at}`: blocks of type `{kind}` are not supported"),
                ));
            }
        }
    }
    if !calls.is_empty() {
        let content = if text.is_empty() { Value::Null } else { text.into() };
        out.push(json!({"role": role, "content": content, "tool_calls": calls}));
    } else if !text.is_empty() || blocks.is_empty() {
        out.push(json!({"role": role, "content": text}));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_become_messages() {
        let mut out = Vec::new();
        let calls = json!({"role": "assistant", "content": [
            {"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "t1", "name": "look", "input": {"far": true}},
        ]});
        let result = json!({"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "sea"}]},
            {"type": "text", "text": "And?"},
        ]});
        translate(&calls, "m", &mut out).expect("it is good");
        translate(&result, "m", &mut out).expect("it is good");
        assert_eq!(out[0]["tool_calls"][0]["function"], json!({"name": "look", "arguments": "{\"far\":true}"}));
        assert_eq!(out[1], json!({"role": "tool", "tool_call_id": "t1", "content": "sea"}));
        assert_eq!(out[2], json!({"role": "user", "content": "And?"}));
        assert!(translate(&json!({"role": "user", "content": [{"type": "image"}]}), "m", &mut out).is_err());
    }
}
