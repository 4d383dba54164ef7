//! The schema of a call of one of several tools. Definitions that a tool's schema refers to move to the top, under names of their
//! own, where references are looked for.

use serde_json::{Map, Value, json};

use super::Tool;

/// `{"anyOf": [{name, arguments}, ..], "$defs": ..}`.
pub(super) fn any_call(tools: &[Tool], arguments: &str) -> Value {
    let mut definitions = Map::new();
    let mut calls = Vec::new();
    for (index, tool) in tools.iter().enumerate() {
        let mut parameters = tool.parameters.clone();
        for place in ["$defs", "definitions"] {
            let Some(Value::Object(found)) = parameters.as_object_mut().and_then(|object| object.remove(place)) else {
                continue;
            };
            for (name, mut schema) in found {
                point_elsewhere(&mut schema, index);
                close(&mut schema);
                definitions.insert(moved(index, &name), schema);
            }
        }
        point_elsewhere(&mut parameters, index);
        close(&mut parameters);
        if let Some(object) = parameters.as_object_mut() {
            object.remove("$schema");
            object.entry("type").or_insert_with(|| "object".into());
        }
        calls.push(json!({
            "type": "object",
            "properties": {"name": {"const": tool.name}, arguments: parameters},
            "required": ["name", arguments],
            "additionalProperties": false,
        }));
    }
    let mut schema = json!({ "anyOf": calls });
    if !definitions.is_empty() {
        schema["$defs"] = definitions.into();
    }
    schema
}

/// As [`close`], its definitions too.
pub(crate) fn close_all(schema: &mut Value) {
    close(schema);
    for place in ["$defs", "definitions"] {
        if let Some(Value::Object(found)) = schema.get_mut(place) {
            found.values_mut().for_each(close);
        }
    }
}

/// Objects that list their properties have no others, unless the schema speaks of others: as llama.cpp reads schemas. A model would
/// invent some. Parts of an `allOf` are left alone, since each knows its own properties only.
fn close(schema: &mut Value) {
    let Some(object) = schema.as_object_mut() else { return };
    for (key, value) in object.iter_mut() {
        match (key.as_str(), value) {
            ("properties", Value::Object(inner)) => inner.values_mut().for_each(close),
            ("anyOf" | "oneOf", Value::Array(inner)) => inner.iter_mut().for_each(close),
            ("items" | "additionalProperties", inner) => close(inner),
            _ => {}
        }
    }
    let says = ["additionalProperties", "patternProperties", "unevaluatedProperties", "allOf"];
    if object.contains_key("properties") && !says.iter().any(|key| object.contains_key(*key)) {
        object.insert("additionalProperties".into(), false.into());
    }
}

fn moved(index: usize, name: &str) -> String {
    format!("t{index}_{name}")
}

/// Rewrites references to definitions of the tool's own.
fn point_elsewhere(schema: &mut Value, index: usize) {
    match schema {
        Value::Object(object) => {
            if let Some(Value::String(reference)) = object.get_mut("$ref") {
                let name = ["#/$defs/", "#/definitions/"].iter().find_map(|place| reference.strip_prefix(place));
                if let Some(name) = name {
                    *reference = format!("#/$defs/{}", moved(index, name));
                }
            }
            object.values_mut().for_each(|value| point_elsewhere(value, index));
        }
        Value::Array(all) => all.iter_mut().for_each(|value| point_elsewhere(value, index)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_without_a_word_on_other_properties_have_none() {
        let mut schema = json!({
            "properties": {"properties": {"properties": {"a": {}}}, "free": {"properties": {}, "additionalProperties": true}},
        });
        close(&mut schema);
        let inner = &schema["properties"];
        assert_eq!((&schema["additionalProperties"], &inner["additionalProperties"]), (&json!(false), &json!(null)));
        assert_eq!(inner["properties"]["additionalProperties"], false);
        assert_eq!(inner["free"]["additionalProperties"], true);
    }

    #[test]
    fn definitions_of_two_tools_with_one_name_stay_apart() {
        let tool = |name: &str, kind: &str| Tool {
            name: name.into(),
            description: None,
            parameters: json!({
                "type": "object", "properties": {"x": {"$ref": "#/$defs/X"}}, "$defs": {"X": {"type": kind}},
            }),
        };
        let schema = any_call(&[tool("a", "string"), tool("b", "integer")], "arguments");
        assert_eq!(schema["anyOf"][1]["properties"]["arguments"]["properties"]["x"]["$ref"], "#/$defs/t1_X");
        assert_eq!(schema["$defs"], json!({"t0_X": {"type": "string"}, "t1_X": {"type": "integer"}}));
    }
}
