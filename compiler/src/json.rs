//! JSON of model files, read strictly: a key comes once, and a value of another type than expected is an error with the key, what
//! was found and what was expected.

mod object;
#[cfg(test)]
mod tests;

pub(crate) use object::{Object, shown, shown_key};

use crate::{CompileError, Result};
use core::fmt;
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
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
    match serde_json::from_slice::<Strict>(bytes) {
        Ok(Strict(value)) => Ok(value),
        Err(error) if error.is_eof() => Err(format!("it ends in the middle, at line {}", error.line())),
        Err(error) => Err(error.to_string()),
    }
}

/// A value without doubled keys.
struct Strict(Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StrictVisitor).map(Self)
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(Strict(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(list.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            let Strict(value) = entries.next_value()?;
            if map.contains_key(&key) {
                return Err(A::Error::custom(format!("key `{}` comes twice", shown_key(&key))));
            }
            map.insert(key, value);
        }
        Ok(map.into())
    }
}
