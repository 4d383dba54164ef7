//! Calls of models that were not trained for tools: the system message describes them and asks for a JSON object.

use serde_json::json;

use super::Tool;
use super::format::Syntax;

pub(super) const SYNTAX: Syntax = Syntax { open: &["<tool_call>"], close: &["</tool_call>"], bare: true };

/// What the system message says of the tools.
pub(crate) fn instructions(tools: &[Tool]) -> String {
    let mut text = String::from("You can call these functions:\n");
    for tool in tools {
        let line = json!({"name": tool.name, "description": tool.description, "parameters": tool.parameters});
        text.push_str(&format!("{line}\n"));
    }
    text.push_str(
        "To call one, answer with a JSON object and nothing else: {\"name\": FUNCTION, \"arguments\": OBJECT}. \
         The result comes in the next message. If no function helps, answer in plain text.",
    );
    text
}
