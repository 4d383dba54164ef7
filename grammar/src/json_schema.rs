//! JSON schemas: read, with how much white space may stand in a document.

use llguidance::api::TopLevelGrammar;
use serde_json::{Value, json};

use crate::{GrammarError, GrammarKind, WhiteSpace};

/// The key by which llguidance takes options within a schema.
const OPTIONS: &str = "x-guidance";

/// Most properties of a schema that bounds their number: the parser writes an object once for each of them.
const MOST_COUNTED: usize = 300;

/// Refuses a schema that would take memory without bound.
///
/// # Errors
/// [`GrammarError::Unusable`]: it bounds the number of properties and lists more than 300.
pub fn check_json_schema(schema: &Value) -> Result<(), GrammarError> {
    match properties(schema) {
        (n, true) if n > MOST_COUNTED => {
            let message = format!(
                "expected at most {MOST_COUNTED} properties beside `minProperties` or `maxProperties`, found {n}"
            );
            Err(GrammarError::Unusable { kind: GrammarKind::JsonSchema, message })
        }
        _ => Ok(()),
    }
}

/// How many properties are listed in all, and whether any object bounds their number.
fn properties(value: &Value) -> (usize, bool) {
    let sum = |(n, bounds): (usize, bool), (more, also): (usize, bool)| (n + more, bounds || also);
    match value {
        Value::Object(map) => {
            let own = map.get("properties").and_then(Value::as_object).map_or(0, serde_json::Map::len);
            let bounds = map.contains_key("minProperties") || map.contains_key("maxProperties");
            map.values().map(properties).fold((own, bounds), sum)
        }
        Value::Array(all) => all.iter().map(properties).fold((0, false), sum),
        _ => (0, false),
    }
}

pub(crate) fn lower(text: &str, white_space: WhiteSpace) -> Result<TopLevelGrammar, GrammarError> {
    let schema: Value = serde_json::from_str(text).map_err(|e| GrammarError::Malformed {
        kind: GrammarKind::JsonSchema,
        line: e.line().max(1),
        column: e.column().max(1),
        message: without_place(&e.to_string()),
    })?;
    check_json_schema(&schema)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bounded_number_of_many_properties_is_refused() {
        let schema = |n: usize, bound: &str| {
            let all: serde_json::Map<String, Value> = (0..n).map(|i| (format!("p{i}"), json!({}))).collect();
            json!({"type": "array", "items": {"type": "object", "properties": all, bound: 1}})
        };
        assert!(check_json_schema(&schema(300, "minProperties")).is_ok());
        assert!(check_json_schema(&schema(6_000, "title")).is_ok());
        for bound in ["minProperties", "maxProperties"] {
            let refused = lower(&schema(301, bound).to_string(), WhiteSpace::None);
            assert!(refused.is_err_and(|error| error.to_string().contains("found 301")), "{bound}");
        }
    }
}
