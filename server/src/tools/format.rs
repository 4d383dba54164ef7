//! The formats of calls: which one a template uses, and what they have in common.

use open_genie::{Grammar, GrammarKind, WhiteSpace, check_json_schema};
use serde_json::{Value, json};

use super::{Tool, generic, hermes, llama3, mistral, schema};
use crate::error::{ApiError, with_causes};

/// How a model writes calls of tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ToolFormat {
    /// `<tool_call>{"name": .., "arguments": ..}</tool_call>`: Qwen, Hermes.
    Hermes,
    /// `{"name": .., "parameters": ..}` and nothing else: Llama 3.
    Llama3,
    /// `[TOOL_CALLS][{"name": .., "arguments": ..}]`: Mistral.
    Mistral,
    /// `{"name": .., "arguments": ..}`, as the system message asks for.
    Generic,
}

/// What a scanner looks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Syntax {
    /// Marks behind which calls stand.
    pub(crate) open: &'static [&'static str],
    /// Marks behind a call, left out.
    pub(crate) close: &'static [&'static str],
    /// A reply that begins with a bracket may be a call without a mark.
    pub(crate) bare: bool,
}

impl ToolFormat {
    /// The one of a chat template; generic where it says nothing of tools.
    pub(crate) fn of_template(source: &str) -> Self {
        match () {
            () if !knows_tools(source) => Self::Generic,
            () if hermes::writes(source) => Self::Hermes,
            () if mistral::writes(source) => Self::Mistral,
            () if llama3::writes(source) => Self::Llama3,
            () => Self::Generic,
        }
    }

    pub(crate) fn syntax(self) -> Syntax {
        match self {
            Self::Hermes => hermes::SYNTAX,
            Self::Llama3 => llama3::SYNTAX,
            Self::Mistral => mistral::SYNTAX,
            Self::Generic => generic::SYNTAX,
        }
    }

    /// The grammar of a reply that is one call of one of the tools.
    pub(crate) fn forced(self, tools: &[Tool]) -> Result<Grammar, ApiError> {
        let arguments = if self == Self::Llama3 { "parameters" } else { "arguments" };
        let call = schema::any_call(tools, arguments);
        check_json_schema(&call).map_err(|error| ApiError::invalid("tools", with_causes(&error)))?;
        let (kind, text) = match self {
            Self::Hermes => (GrammarKind::Lark, hermes::grammar(&call)),
            Self::Mistral => {
                let list = json!({"type": "array", "items": call["anyOf"].clone(), "minItems": 1, "maxItems": 1});
                (GrammarKind::JsonSchema, mistral::list(list, &call).to_string())
            }
            Self::Llama3 | Self::Generic => (GrammarKind::JsonSchema, call.to_string()),
        };
        // A call is for a program: white space would only take tokens.
        let grammar = Grammar::new(kind, &text).and_then(|grammar| grammar.with_white_space(WhiteSpace::None));
        grammar.map_err(|error| ApiError::invalid("tools", with_causes(&error)))
    }
}

/// Whether a template writes tools by itself.
pub(crate) fn knows_tools(source: &str) -> bool {
    source.contains("tools") || source.contains("tool_calls")
}

/// Name and arguments of the calls that a JSON value is; none if it is something else.
pub(crate) fn calls_of(value: &Value) -> Vec<(String, String)> {
    match value {
        Value::Array(all) => all.iter().flat_map(calls_of).collect(),
        Value::Object(object) => {
            if let Some(inner) = ["tool_calls", "tool_call", "function"].iter().find_map(|key| object.get(*key))
                && !inner.is_string()
            {
                return calls_of(inner);
            }
            let Some(name) = object.get("name").and_then(Value::as_str) else { return Vec::new() };
            let arguments = ["arguments", "parameters"].iter().find_map(|key| object.get(*key));
            let text = match arguments {
                Some(Value::String(text)) => text.clone(),
                Some(arguments @ Value::Object(_)) => arguments.to_string(),
                None => "{}".to_owned(),
                Some(_) => return Vec::new(),
            };
            vec![(name.to_owned(), text)]
        }
        _ => Vec::new(),
    }
}
