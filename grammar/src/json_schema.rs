//! JSON schemas: read, with how much white space may stand in a document.

use llguidance::api::TopLevelGrammar;
use serde_json::{Value, json};

use crate::{GrammarError, GrammarKind, WhiteSpace};

/// The key by which llguidance takes options within a schema.
const OPTIONS: &str = "x-guidance";

pub(crate) fn lower(text: &str, white_space: WhiteSpace) -> Result<TopLevelGrammar, GrammarError> {
    let schema: Value = serde_json::from_str(text).map_err(|e| GrammarError::Malformed {
        kind: GrammarKind::JsonSchema,
        line: e.line().max(1),
        column: e.column().max(1),
        message: without_place(&e.to_string()),
    })?;
    let mut schema = match schema {
        Value::Object(schema) => schema,
        // A schema of its own right: anything, or nothing.
        Value::Bool(all) => json!({ "allOf": [all] }).as_object().cloned().unwrap_or_default(),
        other => {
            return Err(GrammarError::Unusable {
                kind: GrammarKind::JsonSchema,
                message: format!("expected an object or a truth value, found {}", name_of(&other)),
            });
        }
    };
    // A schema with options of its own knows better.
    schema.entry(OPTIONS).or_insert_with(|| match white_space.pattern() {
        Some(pattern) => json!({ "whitespace_pattern": pattern }),
        None => json!({ "whitespace_flexible": false }),
    });
    Ok(TopLevelGrammar::from_json_schema(Value::Object(schema)))
}

/// serde_json repeats the place at the end of its message.
fn without_place(message: &str) -> String {
    message.rsplit_once(" at line ").map_or(message, |(before, _)| before).to_owned()
}

fn name_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a truth value",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}
