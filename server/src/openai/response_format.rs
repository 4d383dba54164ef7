//! What a reply has to be: `response_format`, llama.cpp's `json_schema` and `grammar`.

use open_genie::{Grammar, GrammarKind, WhiteSpace};
use serde_json::Value;

use crate::body;
use crate::error::{ApiError, with_causes};
use crate::schema::keys;
use crate::tools::close_all;

/// Any JSON object.
const ANY_OBJECT: &str = r#"{"type": "object"}"#;

keys! {
    /// Keys of a request.
    pub(crate) struct Formats {
        response_format: Option<Value>,
        json_schema: Option<Value>,
        /// EBNF.
        grammar: Option<String>,
    }
}

/// The grammar that a request asks for.
pub(crate) fn grammar(body: &Value) -> Result<Option<Grammar>, ApiError> {
    let Formats { response_format, json_schema, grammar } = body::read(body)?;
    if let Some(text) = grammar {
        return if text.is_empty() { Ok(None) } else { read("grammar", GrammarKind::Ebnf, &text).map(Some) };
    }
    if let Some(schema) = json_schema {
        return of_schema("json_schema", &schema).map(Some);
    }
    response_format.map_or(Ok(None), |format| of_format(&format))
}

/// Of a `response_format`, or of `text.format` of `/v1/responses`, which has the schema one level higher.
pub(crate) fn of_format(format: &Value) -> Result<Option<Grammar>, ApiError> {
    let kind = format.get("type").and_then(Value::as_str);
    let at = "response_format";
    match kind {
        Some("text") => Ok(None),
        Some("json_object") => match present(format, "schema") {
            Some(schema) => of_schema(at, schema).map(Some),
            None => read(at, GrammarKind::JsonSchema, ANY_OBJECT).map(Some),
        },
        Some("json_schema") => {
            let inner = present(format, "json_schema").unwrap_or(format);
            match present(inner, "schema") {
                Some(schema) => of_schema(at, schema).map(Some),
                None => Err(ApiError::invalid(at, "`response_format`: expected a schema in `json_schema.schema`")),
            }
        }
        found => {
            let found = found.unwrap_or("none");
            let message =
                format!("`response_format`: expected type `text`, `json_object` or `json_schema`, found `{found}`");
            Err(ApiError::invalid(at, message))
        }
    }
}

fn of_schema(at: &str, schema: &Value) -> Result<Grammar, ApiError> {
    match schema {
        // llama.cpp's clients may send the schema as text. The reader says what is wrong with one that is no JSON.
        Value::String(text) => match serde_json::from_str(text) {
            Ok(schema) => of_closed(at, schema),
            Err(_) => read(at, GrammarKind::JsonSchema, text),
        },
        schema => of_closed(at, schema.clone()),
    }
}

fn of_closed(at: &str, mut schema: Value) -> Result<Grammar, ApiError> {
    close_all(&mut schema);
    read(at, GrammarKind::JsonSchema, &schema.to_string())
}

/// Most bytes of a grammar or schema: what is found out about its rules may take a pass over all of them for each.
const LONGEST: usize = 256 << 10;

fn read(at: &str, kind: GrammarKind, text: &str) -> Result<Grammar, ApiError> {
    if text.len() > LONGEST {
        let message = format!("`{at}`: expected at most {LONGEST} bytes, found {}", text.len());
        return Err(ApiError::invalid(at, message));
    }
    let mut grammar = Grammar::new(kind, text);
    if kind == GrammarKind::JsonSchema {
        // A reply that is for a program needs no white space, and a model that is unsure writes a lot of it.
        grammar = grammar.and_then(|grammar| grammar.with_white_space(WhiteSpace::None));
    }
    grammar.map_err(|error| ApiError::invalid(at, format!("`{at}`: {}", with_causes(&error))))
}

fn present<'a>(value: &'a Value, key: &str) -> Option<&'a Value> {
    value.get(key).filter(|value| !value.is_null())
}
