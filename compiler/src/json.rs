//! JSON of model files, read strictly: a key comes once, and a value of another type than expected is an error with the key, what
//! was found and what was expected.

mod object;
#[cfg(test)]
mod tests;

pub(crate) use object::{Object, shown, shown_key};

use crate::{CompileError, Result};
use genie_bundle::StrictJson;
use serde_json::Value;
use std::path::Path;

/// Reads a document. `path` is for messages.
///
/// # Errors
/// Bytes that are not JSON; an object that has a key twice.
pub(crate) fn parse(path: &Path, bytes: &[u8]) -> Result<Value> {
    parse_bytes(bytes).map_err(|detail| CompileError::BadJson { path: path.into(), detail })
}

/// As [`parse`], with what is wrong as text.
pub(crate) fn parse_bytes(bytes: &[u8]) -> Result<Value, String> {
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err("it is empty".into());
    }
    if bytes.starts_with(b"\xef\xbb\xbf") {
        return Err("it begins with a byte order mark".into());
    }
    if let Err(error) = std::str::from_utf8(bytes) {
        return Err(format!("it is not text in UTF-8 from byte {} on", error.valid_up_to()));
    }
    match serde_json::from_slice::<StrictJson>(bytes) {
        Ok(StrictJson(value)) => Ok(value),
        Err(error) if error.is_eof() => Err(format!("it ends in the middle, at line {}", error.line())),
        Err(error) => Err(error.to_string()),
    }
}
