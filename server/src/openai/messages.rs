//! Messages as requests have them, made fit for a template.

use open_genie::chat_template::{Chat, Message};
use serde_json::{Map, Value, json};

use crate::error::ApiError;
use crate::tools::generic::instructions;
use crate::tools::{Tool, format};

/// Messages of OpenAI's API as a chat; `template`: the source, to know what it can write.
pub(crate) fn chat(
    messages: Vec<Value>,
    tools: &[Tool],
    variables: Map<String, Value>,
    template: &str,
) -> Result<Chat, ApiError> {
    if messages.is_empty() {
        return Err(ApiError::invalid("messages", "`messages` is empty: expected at least one message"));
    }
    let mut list = Vec::with_capacity(messages.len());
    for (index, message) in messages.into_iter().enumerate() {
        list.push(one(index, message, template)?);
    }
    if !tools.is_empty() && !format::knows_tools(template) {
        instruct(&mut list, &instructions(tools));
    }
    let mut chat = Chat::new(list);
    chat.tools = tools.iter().map(Tool::to_openai).collect();
    chat.variables = variables;
    Ok(chat)
}

/// Puts a system message before messages of a request that begin with none; none before none.
pub(crate) fn put_system(messages: &mut Vec<Value>, text: &str) {
    let role = messages.first().and_then(|message| message.get("role")).and_then(Value::as_str);
    if role.is_some_and(|role| role != "system" && role != "developer") {
        messages.insert(0, json!({"role": "system", "content": text}));
    }
}

fn one(index: usize, mut message: Value, template: &str) -> Result<Message, ApiError> {
    let at = format!("messages[{index}]");
    if let Some(object) = message.as_object_mut() {
        // Templates know no developers.
        if object.get("role").is_some_and(|role| role == "developer") {
            object.insert("role".into(), "system".into());
        }
        // One of the model may have tool calls instead.
        let says = object.get("role").and_then(Value::as_str).is_some_and(|role| role != "assistant");
        if says && object.get("content").is_none_or(Value::is_null) {
            let message = format!("`{at}.content` is missing: expected a text or a list of parts");
            return Err(ApiError::invalid(format!("{at}.content"), message));
        }
        if let Some(Value::Array(parts)) = object.get("content") {
            let text = text_of(parts, &at)?;
            object.insert("content".into(), text.into());
        }
        let calls = object.get("tool_calls").filter(|calls| calls.as_array().is_some_and(|calls| !calls.is_empty()));
        if let Some(calls) = calls.filter(|_| !format::knows_tools(template)) {
            let calls = format::calls_of(calls)
                .into_iter()
                .map(|(name, arguments)| format!("{{\"name\": {}, \"arguments\": {arguments}}}", Value::from(name)));
            // What the model said before its calls stands before them.
            let said = object.get("content").and_then(Value::as_str).filter(|text| !text.is_empty());
            let text: Vec<String> = said.map(str::to_owned).into_iter().chain(calls).collect();
            object.insert("content".into(), text.join("\n").into());
        }
    }
    Message::from_json(index, message).map_err(|error| ApiError::invalid(at, error.to_string()))
}

/// The parts of a content, put together.
fn text_of(parts: &[Value], at: &str) -> Result<String, ApiError> {
    let mut text = String::new();
    for (index, part) in parts.iter().enumerate() {
        let kind = part.get("type").and_then(Value::as_str).unwrap_or_default();
        let at = format!("{at}.content[{index}]");
        match (kind, part.get("text").and_then(Value::as_str)) {
            ("text" | "input_text" | "output_text", Some(found)) => text.push_str(found),
            ("refusal", _) => text.push_str(part.get("refusal").and_then(Value::as_str).unwrap_or_default()),
            ("text" | "input_text" | "output_text", None) => {
                return Err(ApiError::invalid(at.clone(), format!("`{at}`: expected a text in `text`")));
            }
            (kind, _) => {
                let message = format!("`{at}`: parts of type `{kind}` are not supported: expected `text`");
                return Err(ApiError::invalid(at, message));
            }
        }
    }
    Ok(text)
}

/// Puts instructions behind the system message, or makes one.
pub(crate) fn instruct(messages: &mut Vec<Message>, text: &str) {
    match messages.first().filter(|first| first.role() == "system") {
        Some(first) => {
            let both = format!("{}\n\n{text}", first.text().unwrap_or_default());
            messages[0] = Message::system(both);
        }
        None => messages.insert(0, Message::system(text)),
    }
}
