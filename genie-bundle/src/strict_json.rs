//! Any JSON document in which no key comes twice: the second value would hide the first.

use core::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// Longest part of a key that a message quotes, in characters.
const SHOWN: usize = 60;

/// A value without doubled keys. Reading one that has some is an error with the key, line and column.
#[derive(Clone, Debug, PartialEq)]
pub struct StrictJson(pub Value);

impl<'de> Deserialize<'de> for StrictJson {
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
        while let Some(StrictJson(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(list.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            let StrictJson(value) = entries.next_value()?;
            if map.contains_key(&key) {
                return Err(A::Error::custom(format!(
                    "key `{}` comes twice",
                    key.chars().take(SHOWN).collect::<String>().escape_debug()
                )));
            }
            map.insert(key, value);
        }
        Ok(map.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_comes_twice_is_named_at_any_depth() {
        let read = |text: &str| serde_json::from_str::<StrictJson>(text).map(|json| json.0).map_err(|e| e.to_string());
        let good = r#"{"a": [1, -2, 2.5, "x", null, true], "b": {"a": 1}}"#;
        assert_eq!(read(good).unwrap(), serde_json::from_str::<Value>(good).unwrap());
        assert_eq!(read(r#"{"a": 1, "a": 1}"#).unwrap_err(), "key `a` comes twice at line 1 column 16");
        assert_eq!(read("[{\"b\": {\"a\": 1,\n\"a\": 2}}]").unwrap_err(), "key `a` comes twice at line 2 column 7");
    }
}
