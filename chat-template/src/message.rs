//! One message of a conversation, in the form of OpenAI's chat API.

use serde_json::{Map, Value, json};

use crate::TemplateError;

/// A message: `role`, `content`, and whatever else its role has (`tool_calls`, `tool_call_id`, `name`,
/// `reasoning_content`, ...). Templates see all of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Message(Map<String, Value>);

impl Message {
    /// A message of any role with plain text.
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Self {
        let pairs = [("role", Value::String(role.into())), ("content", Value::String(content.into()))];
        Self(pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
    }

    /// Instructions to the model.
    pub fn system(content: impl Into<String>) -> Self {
        Self::new("system", content)
    }

    /// What the user says.
    pub fn user(content: impl Into<String>) -> Self {
        Self::new("user", content)
    }

    /// What the model said.
    pub fn assistant(content: impl Into<String>) -> Self {
        Self::new("assistant", content)
    }

    /// The result of a tool call.
    pub fn tool(call_id: impl Into<String>, content: impl Into<String>) -> Self {
        Self::new("tool", content).with("tool_call_id", call_id.into())
    }

    /// The same message with one more member.
    pub fn with(mut self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.0.insert(key.into(), value.into());
        self
    }

    /// Adds a call of a tool that the model made.
    pub fn with_call(mut self, id: &str, name: &str, arguments: Value) -> Self {
        let call = json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}});
        match self.0.get_mut("tool_calls") {
            Some(Value::Array(calls)) => calls.push(call),
            _ => drop(self.0.insert("tool_calls".into(), json!([call]))),
        }
        self
    }

    /// Checks a message that came as JSON; `index` is its place, for the error.
    ///
    /// # Errors
    ///
    /// [`TemplateError::Message`] names the part that no template could take.
    pub fn from_json(index: usize, value: Value) -> Result<Self, TemplateError> {
        let bad = |what, expected, found: &Value| TemplateError::Message { index, what, expected, found: shown(found) };
        let Value::Object(map) = value else { return Err(bad("message", "an object", &value)) };
        match map.get("role") {
            Some(Value::String(role)) if !role.is_empty() => {}
            role => return Err(bad("`role`", "a name such as \"user\"", role.unwrap_or(&Value::Null))),
        }
        match map.get("content") {
            None | Some(Value::Null | Value::String(_)) => {}
            Some(Value::Array(parts)) => {
                let is_part = |part: &Value| part.get("type").is_some_and(Value::is_string);
                if let Some(part) = parts.iter().find(|part| !is_part(part)) {
                    return Err(bad("a part of `content`", "an object with a `type`", part));
                }
            }
            Some(other) => return Err(bad("`content`", "text, a list of parts, or null", other)),
        }
        match map.get("tool_calls") {
            None | Some(Value::Null) => {}
            Some(Value::Array(calls)) => {
                let is_call = |call: &Value| call.pointer("/function/name").is_some_and(Value::is_string);
                if let Some(call) = calls.iter().find(|call| !is_call(call)) {
                    return Err(bad("a call in `tool_calls`", "an object with `function.name`", call));
                }
            }
            Some(other) => return Err(bad("`tool_calls`", "a list", other)),
        }
        Ok(Self(map))
    }

    /// Who speaks.
    pub fn role(&self) -> &str {
        self.0.get("role").and_then(Value::as_str).unwrap_or_default()
    }

    /// Its text, parts of type `text` put together; `None` if it has none.
    pub fn text(&self) -> Option<String> {
        match self.0.get("content")? {
            Value::String(text) => Some(text.clone()),
            Value::Array(parts) => Some(parts.iter().filter_map(|part| part.get("text")?.as_str()).collect()),
            _ => None,
        }
    }

    /// All members.
    pub fn members(&self) -> &Map<String, Value> {
        &self.0
    }

    pub(crate) fn members_mut(&mut self) -> &mut Map<String, Value> {
        &mut self.0
    }
}

/// A value as an error shows it.
fn shown(value: &Value) -> String {
    let text = value.to_string();
    if text.chars().count() <= 60 {
        return text;
    }
    text.chars().take(60).chain(" ...".chars()).collect()
}
