//! Qwen's and Hermes' calls: JSON between `<tool_call>` and `</tool_call>`, any number of them behind one another.

use serde_json::{Value, json};

use super::format::Syntax;

pub(super) const SYNTAX: Syntax = Syntax { open: &["<tool_call>"], close: &["</tool_call>"], bare: false };

pub(super) fn writes(template: &str) -> bool {
    template.contains("<tool_call>")
}

/// One call, in llguidance's Lark.
pub(super) fn grammar(call: &Value) -> String {
    let mut call = call.clone();
    call["x-guidance"] = json!({"whitespace_flexible": false});
    format!("start: \"<tool_call>\\n\" call \"\\n</tool_call>\"\ncall: %json {call}\n")
}
