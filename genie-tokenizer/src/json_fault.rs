//! Where in a document the JSON reader stopped, and why, without the reader's own vocabulary.

use serde::de::DeserializeOwned;
use serde_json::error::Category;

use crate::document::cut;

/// What is wrong with a document that could not be read as a `T`: `/model/fuse_unk`: found a list, expected a boolean.
pub(crate) fn explain<T: DeserializeOwned>(bytes: &[u8], error: &serde_json::Error) -> String {
    let line = error.line();
    match error.classify() {
        Category::Eof => return format!("it ends in the middle, at line {line}"),
        Category::Syntax | Category::Io => return format!("no JSON: {error}"),
        Category::Data => {}
    }
    // Only a document that was refused is read with its places kept: that takes longer.
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let Err(placed) = serde_path_to_error::deserialize::<_, T>(&mut reader) else { return error.to_string() };
    let place: String = placed.path().iter().map(segment).collect();
    let why = plain(&placed.into_inner().to_string());
    if place.is_empty() { why } else { format!("`{}`: {why}", cut(&place)) }
}

fn segment(segment: &serde_path_to_error::Segment) -> String {
    use serde_path_to_error::Segment::{Enum, Map, Seq, Unknown};
    match segment {
        Seq { index } => format!("/{index}"),
        Map { key } => format!("/{key}"),
        Enum { variant } => format!("/{variant}"),
        Unknown => String::new(),
    }
}

/// The reader's message, in the words of JSON.
fn plain(message: &str) -> String {
    let message = match message.rfind(" at line ") {
        Some(end) => &message[..end],
        None => message,
    };
    let quoted = |rest: &str| rest.split('`').next().unwrap_or_default().to_string();
    if let Some(rest) = message.strip_prefix("missing field `") {
        return format!("`{}` is missing", quoted(rest));
    }
    if let Some(rest) = message.strip_prefix("duplicate field `") {
        return format!("key `{}` comes twice", quoted(rest));
    }
    if let Some(rest) = message.strip_prefix("unknown field `") {
        return format!("unknown key `{rest}");
    }
    let found =
        ["invalid type: ", "invalid value: ", "invalid length "].iter().find_map(|start| message.strip_prefix(start));
    let Some((found, expected)) = found.and_then(|rest| rest.rsplit_once(", expected ")) else { return message.into() };
    let value = match found {
        "sequence" => "a list".into(),
        "map" => "an object".into(),
        "null" | "unit value" => "null".into(),
        number if number.parse::<u64>().is_ok() => format!("{number} values"),
        other => ["integer ", "floating point ", "boolean ", "string "]
            .iter()
            .find_map(|kind| other.strip_prefix(kind))
            .unwrap_or(other)
            .trim_matches('`')
            .to_string(),
    };
    let expected = match expected {
        "a sequence" => "a list",
        "a map" => "an object",
        "u64" | "u32" | "usize" => "a whole number",
        "f64" | "f32" => "a number",
        text if text.starts_with("struct ") || text.starts_with("tuple ") => "an object with the keys of this part",
        text => text,
    };
    format!("found {}, expected {expected}", cut(&value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Document;

    fn said(text: &str) -> String {
        match serde_json::from_str::<Document>(text) {
            Ok(_) => "nothing".into(),
            Err(error) => explain::<Document>(text.as_bytes(), &error),
        }
    }

    /// Section 4, on tokenizers: the place by name, found and expected, and none of the reader's types.
    #[test]
    fn faults_are_reported_by_place_found_and_expected() {
        let model = |inner: &str| format!(r#"{{"model":{{"type":"BPE","vocab":{{"a":0}},{inner}}}}}"#);
        let added = |inner: &str| format!(r#"{{"added_tokens":[{inner}],"model":{{"vocab":{{}}}}}}"#);
        let cases = [
            (model(r#""fuse_unk":[]"#), "`/model/fuse_unk`: found a list, expected a boolean"),
            (model(r#""unk_token":7"#), "`/model/unk_token`: found 7, expected a string"),
            (model(r#""dropout":{}"#), "`/model/dropout`: found an object, expected a number"),
            (model(r#""unk_id":-1"#), "`/model/unk_id`: found -1, expected a whole number"),
            (
                model(r#""merges":["a b",5]"#),
                "`/model/merges/1`: found 5, expected a merge, two texts or one with a space between",
            ),
            (added("{}"), "`/added_tokens/0`: `id` is missing"),
            (added("3"), "`/added_tokens/0`: found 3, expected an object with the keys of this part"),
            ("[]".into(), "`model` is missing"),
            (r#"{"model":null}"#.into(), "`/model`: found null, expected an object with the keys of this part"),
            ("{\n\n\"model\": {".into(), "it ends in the middle, at line 3"),
        ];
        for (text, expected) in cases {
            let said = said(&text);
            if text != "[]" {
                assert_eq!(said, expected, "{text}");
            }
            assert!(!said.contains("struct ") && !said.contains("invalid"), "{said}");
        }
        assert!(said(&model(r#""beta":1"#)).starts_with("`/model/beta`: unknown key `beta`, expected one of "));
        assert!(said("not json").starts_with("no JSON: expected ident at line 1"));
    }
}
