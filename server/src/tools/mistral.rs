//! Mistral's calls: a JSON list behind `[TOOL_CALLS]`, which is a control token and may have no text; newer models write
//! `[TOOL_CALLS]name[ARGS]{..}`.

use serde_json::{Map, Value, json};

use super::format::Syntax;

pub(super) const SYNTAX: Syntax = Syntax { open: &["[TOOL_CALLS]"], close: &["</s>"], bare: true };

pub(super) fn writes(template: &str) -> bool {
    template.contains("[TOOL_CALLS]")
}

/// The schema of a list of one call; definitions stay at the top, where references look for them.
pub(super) fn list(mut list: Value, call: &Value) -> Value {
    list["items"] = json!({"anyOf": call["anyOf"]});
    if let Some(definitions) = call.get("$defs") {
        list["$defs"] = definitions.clone();
    }
    debug_assert!(list.as_object().is_some_and(|list: &Map<String, Value>| list.contains_key("items")));
    list
}
