//! Tools as requests define them, in OpenAI's and Anthropic's forms.

use serde_json::{Map, Value, json};

use crate::error::ApiError;

/// A function that the model may call.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tool {
    pub(crate) name: String,
    pub(crate) description: Option<String>,
    /// The JSON schema of its arguments.
    pub(crate) parameters: Value,
}

/// Which tools a reply is to call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum ToolChoice {
    /// As the model likes.
    #[default]
    Auto,
    /// None: the model is given none.
    None,
    /// One of them.
    Required,
    /// This one.
    Named(String),
    /// As the model likes, or one, but of these alone.
    Among { names: Vec<String>, must_call: bool },
}

impl Tool {
    /// Of `{"type": "function", "function": {..}}`, or of the same without the inner object. `None` for other types of tools.
    pub(crate) fn of_openai(value: &Value, at: &str) -> Result<Option<Self>, ApiError> {
        if value.get("type").and_then(Value::as_str).is_some_and(|kind| kind != "function") {
            return Ok(None);
        }
        let function = value.get("function").unwrap_or(value);
        Self::of_parts(function, "parameters", at).map(Some)
    }

    /// Of Anthropic's `{"name", "description", "input_schema"}`. `None` for tools that Anthropic's servers run.
    pub(crate) fn of_anthropic(value: &Value, at: &str) -> Result<Option<Self>, ApiError> {
        if value.get("type").and_then(Value::as_str).is_some_and(|kind| kind != "custom") {
            return Ok(None);
        }
        Self::of_parts(value, "input_schema", at).map(Some)
    }

    fn of_parts(value: &Value, schema: &str, at: &str) -> Result<Self, ApiError> {
        let name = value.get("name").and_then(Value::as_str).filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| ApiError::invalid(at, format!("`{at}` has no name: expected some text")))?;
        let parameters = match value.get(schema) {
            None | Some(Value::Null) => json!({"type": "object", "properties": {}}),
            Some(schema @ Value::Object(_)) => schema.clone(),
            Some(_) => return Err(ApiError::invalid(at, format!("`{at}`: expected a JSON schema in `{schema}`"))),
        };
        let description = value.get("description").and_then(Value::as_str).map(str::to_owned);
        Ok(Self { name: name.to_owned(), description, parameters })
    }

    /// In OpenAI's form, which templates expect.
    pub(crate) fn to_openai(&self) -> Value {
        let mut function = json!({"name": self.name});
        if let Some(description) = &self.description {
            function["description"] = description.as_str().into();
        }
        function["parameters"] = self.parameters.clone();
        json!({"type": "function", "function": function})
    }
}

impl ToolChoice {
    /// Of OpenAI's `tool_choice`: a word, or an object that names a function.
    pub(crate) fn of_openai(value: Option<&Value>) -> Result<Self, ApiError> {
        let bad = || {
            ApiError::invalid("tool_choice", "`tool_choice`: expected `none`, `auto`, `required` or a named function")
        };
        match value {
            None | Some(Value::Null) => Ok(Self::Auto),
            Some(Value::String(word)) => match word.as_str() {
                "auto" => Ok(Self::Auto),
                "none" => Ok(Self::None),
                "required" | "any" => Ok(Self::Required),
                _ => Err(bad()),
            },
            Some(Value::Object(object)) => match object.get("type").and_then(Value::as_str) {
                Some("auto") => Ok(Self::Auto),
                Some("none") => Ok(Self::None),
                Some("any" | "required") => Ok(Self::Required),
                Some("allowed_tools") => Self::among(object).ok_or_else(bad),
                _ => {
                    let function = object.get("function").and_then(|function| function.get("name"));
                    let name = function.or_else(|| object.get("name")).and_then(Value::as_str);
                    name.map(|name| Self::Named(name.to_owned())).ok_or_else(bad)
                }
            },
            Some(_) => Err(bad()),
        }
    }

    /// Of `allowed_tools`, which `/v1/chat/completions` has one level deeper than `/v1/responses`.
    fn among(object: &Map<String, Value>) -> Option<Self> {
        let inner = object.get("allowed_tools").and_then(Value::as_object).unwrap_or(object);
        let name = |tool: &Value| {
            let name = tool.pointer("/function/name").or_else(|| tool.get("name"));
            name.and_then(Value::as_str).map(str::to_owned)
        };
        let names = inner.get("tools")?.as_array()?.iter().map(name).collect::<Option<_>>()?;
        match inner.get("mode").and_then(Value::as_str) {
            None | Some("auto") => Some(Self::Among { names, must_call: false }),
            Some("required") => Some(Self::Among { names, must_call: true }),
            Some(_) => None,
        }
    }

    /// The tools that it leaves, and whether one has to be called.
    pub(crate) fn apply(&self, tools: Vec<Tool>) -> Result<(Vec<Tool>, bool), ApiError> {
        match self {
            Self::None => Ok((Vec::new(), false)),
            Self::Auto => Ok((tools, false)),
            Self::Required if tools.is_empty() => {
                Err(ApiError::invalid("tool_choice", "`tool_choice` asks for a call, but there are no tools"))
            }
            Self::Required => Ok((tools, true)),
            Self::Among { names, must_call } => {
                if let Some(name) = names.iter().find(|name| tools.iter().all(|tool| tool.name != **name)) {
                    return Err(ApiError::invalid(
                        "tool_choice",
                        format!("`tool_choice` names `{name}`, which is no tool"),
                    ));
                }
                let among: Vec<Tool> = tools.into_iter().filter(|tool| names.contains(&tool.name)).collect();
                match *must_call && among.is_empty() {
                    false => Ok((among, *must_call)),
                    true => Err(ApiError::invalid("tool_choice", "`tool_choice` asks for a call, but allows no tools")),
                }
            }
            Self::Named(name) => {
                let named: Vec<Tool> = tools.into_iter().filter(|tool| tool.name == *name).collect();
                match named.is_empty() {
                    false => Ok((named, true)),
                    true => {
                        Err(ApiError::invalid("tool_choice", format!("`tool_choice` names `{name}`, which is no tool")))
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allowed_tools_are_all_that_a_reply_is_offered() {
        let tools = || {
            let tool = |name: &str| Tool { name: name.into(), description: None, parameters: json!({}) };
            vec![tool("a"), tool("b")]
        };
        let nested = |mode: &str, name: &str| {
            let tool = json!({"type": "function", "function": {"name": name}});
            json!({"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": [tool]}})
        };
        let flat = json!({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "b"}]});
        for (choice, expected, must_call) in
            [(nested("required", "a"), "a", true), (nested("auto", "a"), "a", false), (flat, "b", false)]
        {
            let (left, called) = ToolChoice::of_openai(Some(&choice)).unwrap().apply(tools()).unwrap();
            assert_eq!((left.len(), left[0].name.as_str(), called), (1, expected, must_call), "{choice}");
        }
        assert!(ToolChoice::of_openai(Some(&nested("auto", "c"))).unwrap().apply(tools()).is_err());
        for bad in
            [nested("always", "a"), json!({"type": "allowed_tools"}), json!({"type": "allowed_tools", "tools": [3]})]
        {
            assert!(ToolChoice::of_openai(Some(&bad)).is_err(), "{bad}");
        }
    }
}
