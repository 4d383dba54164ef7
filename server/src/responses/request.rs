//! `POST /v1/responses`: items made into messages. Nothing is kept from one response to the next.

use serde_json::{Map, Value, json};

use crate::body;
use crate::error::ApiError;
use crate::openai::prepared::{Parts, Prepared};
use crate::openai::response_format;
use crate::openai::sampling::Sampling;
use crate::schema::keys;
use crate::state::State;
use crate::tools::{Tool, ToolChoice};

keys! {
    /// Keys of a request, beside those of sampling.
    pub(crate) struct Fields {
        input: Option<Value>,
        instructions: Option<Value>,
        tools: Option<Vec<Value>>,
        tool_choice: Option<Value>,
        parallel_tool_calls: Option<bool>,
        text: Option<Value>,
        /// Its `effort` reaches the template.
        reasoning: Option<Value>,
        stream: Option<bool>,
        background: Option<bool>,
        previous_response_id: Option<String>,
        conversation: Option<Value>,
        top_logprobs: Option<i64>,
    }
}

/// A request that is to be answered.
pub(crate) struct ResponsesRequest {
    pub(crate) chat: Prepared,
    pub(crate) stream: bool,
    pub(crate) priority: i32,
    /// What the response repeats of the request.
    pub(crate) echo: Map<String, Value>,
}

/// Keys that a response repeats, with what they are where the request says nothing.
const ECHO: [(&str, &str); 11] = [
    ("instructions", "null"),
    ("max_output_tokens", "null"),
    ("metadata", "{}"),
    ("parallel_tool_calls", "true"),
    ("reasoning", r#"{"effort": null, "summary": null}"#),
    ("temperature", "null"),
    ("text", r#"{"format": {"type": "text"}}"#),
    ("tool_choice", "\"auto\""),
    ("tools", "[]"),
    ("top_p", "null"),
    ("truncation", "\"disabled\""),
];

impl ResponsesRequest {
    /// Reads and checks a body.
    pub(crate) fn read(state: &State, body: &Value) -> Result<Self, ApiError> {
        let fields: Fields = body::read(body)?;
        let sampling = Sampling::read(body)?.only_one()?;
        let kept = [
            ("previous_response_id", fields.previous_response_id.is_some()),
            ("conversation", fields.conversation.is_some_and(|value| !value.is_null())),
            ("background", fields.background == Some(true)),
        ];
        if fields.top_logprobs.is_some_and(|n| n != 0) {
            let message = "`top_logprobs` is not supported here: `/v1/chat/completions` gives them";
            return Err(ApiError::invalid("top_logprobs", message));
        }
        if let Some((key, _)) = kept.iter().find(|(_, is_asked)| *is_asked) {
            let message =
                format!("`{key}` is not supported, since no response is kept: send the whole conversation as `input`");
            return Err(ApiError::invalid(*key, message));
        }
        let mut messages = Vec::new();
        match &fields.instructions {
            None | Some(Value::Null) => {}
            Some(Value::String(text)) => messages.push(json!({"role": "system", "content": text})),
            Some(_) => return Err(ApiError::invalid("instructions", "`instructions`: expected a text")),
        }
        if fields.text.as_ref().is_some_and(|text| !text.is_null() && !text.is_object()) {
            return Err(ApiError::invalid("text", "`text`: expected an object"));
        }
        let mut variables = Map::new();
        match &fields.reasoning {
            None | Some(Value::Null) => {}
            Some(Value::Object(reasoning)) => match reasoning.get("effort") {
                None | Some(Value::Null) => {}
                Some(effort @ Value::String(_)) => _ = variables.insert("reasoning_effort".into(), effort.clone()),
                Some(_) => return Err(ApiError::invalid("reasoning", "`reasoning.effort`: expected a text")),
            },
            Some(_) => return Err(ApiError::invalid("reasoning", "`reasoning`: expected an object")),
        }
        match fields.input {
            Some(Value::String(text)) => messages.push(json!({"role": "user", "content": text})),
            Some(Value::Array(items)) => {
                for (index, item) in items.iter().enumerate() {
                    translate(item, &format!("input[{index}]"), &mut messages)?;
                }
            }
            _ => return Err(ApiError::invalid("input", "`input`: expected a text or a list of items")),
        }
        if messages.is_empty() {
            return Err(ApiError::invalid("input", "`input` is empty: expected at least one item"));
        }
        let mut tools = Vec::new();
        for (index, tool) in fields.tools.unwrap_or_default().iter().enumerate() {
            // Tools of other types are run by OpenAI's servers: the model is not offered them.
            tools.extend(Tool::of_openai(tool, &format!("tools[{index}]"))?);
        }
        let format = fields.text.as_ref().and_then(|text| text.get("format")).filter(|format| !format.is_null());
        let parts = Parts {
            messages,
            tools,
            choice: ToolChoice::of_openai(fields.tool_choice.as_ref())?,
            variables,
            settings: sampling.settings(state)?,
            grammar: format.map_or(Ok(None), response_format::of_format)?,
            keep_reasoning: false,
            open_reply: true,
            one_call: fields.parallel_tool_calls == Some(false),
        };
        let chat = Prepared::new(state, parts)?;
        let echo = ECHO.iter().map(|(key, default)| {
            let given = body.get(*key).filter(|value| !value.is_null()).cloned();
            ((*key).to_owned(), given.unwrap_or_else(|| serde_json::from_str(default).unwrap_or_default()))
        });
        let (stream, priority) = (fields.stream.unwrap_or(false), sampling.priority());
        Ok(Self { chat, stream, priority, echo: echo.collect() })
    }
}

/// One item of an input as a message; calls that follow one another are one message.
fn translate(item: &Value, at: &str, out: &mut Vec<Value>) -> Result<(), ApiError> {
    let get = |key: &str| item.get(key).and_then(Value::as_str).unwrap_or_default();
    match item.get("type").and_then(Value::as_str).unwrap_or("message") {
        "message" => {
            let content = item.get("content").cloned().unwrap_or(Value::Null);
            out.push(json!({"role": get("role"), "content": content}));
        }
        "function_call" => {
            let call = json!({
                "id": get("call_id"), "type": "function", "function": {"name": get("name"), "arguments": get("arguments")},
            });
            let last = out.last_mut().and_then(|last| last.get_mut("tool_calls")).and_then(Value::as_array_mut);
            match last {
                Some(calls) => calls.push(call),
                None => out.push(json!({"role": "assistant", "content": null, "tool_calls": [call]})),
            }
        }
        "function_call_output" => {
            let output = item.get("output").cloned().unwrap_or(Value::Null);
            out.push(json!({"role": "tool", "tool_call_id": get("call_id"), "content": output}));
        }
        // What the model thought is not given to it again.
        "reasoning" => {}
        kind => return Err(ApiError::invalid(at, format!("`{at}`: items of type `{kind}` are not supported"))),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_become_messages() {
        let mut out = Vec::new();
        for item in [
            json!({"role": "user", "content": "Look!"}),
            json!({"type": "reasoning", "summary": []}),
            json!({"type": "function_call", "call_id": "a", "name": "look", "arguments": "{}"}),
            json!({"type": "function_call", "call_id": "b", "name": "hear", "arguments": "{}"}),
            json!({"type": "function_call_output", "call_id": "a", "output": "sea"}),
        ] {
            translate(&item, "input", &mut out).expect("it is good");
        }
        assert_eq!(out.len(), 3);
        assert_eq!(out[1]["tool_calls"][1]["function"]["name"], "hear");
        assert_eq!((&out[2]["role"], &out[2]["tool_call_id"]), (&json!("tool"), &json!("a")));
        assert!(translate(&json!({"type": "computer_call"}), "input", &mut out).is_err());
    }
}
