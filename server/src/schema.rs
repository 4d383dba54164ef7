//! Schemas of requests, made of the types that read them: [`keys!`] declares a type of optional keys and how `/openapi.json` shows it.

use serde_json::{Map, Value, json};

/// A type of JSON.
pub(crate) trait JsonSchema {
    /// Its JSON schema.
    fn schema() -> Value;
}

macro_rules! json_schemas {
    ($($type:ty => $schema:tt),* $(,)?) => {
        $(impl JsonSchema for $type {
            fn schema() -> Value {
                json!($schema)
            }
        })*
    };
}

json_schemas! {
    bool => {"type": "boolean"},
    f32 => {"type": "number"},
    i64 => {"type": "integer", "minimum": i64::MIN, "maximum": i64::MAX},
    String => {"type": "string"},
    Value => {},
    Map<String, Value> => {"type": "object"},
}

impl<T: JsonSchema> JsonSchema for Vec<T> {
    fn schema() -> Value {
        json!({"type": "array", "items": T::schema()})
    }
}

/// A key that may be null, or left out.
impl<T: JsonSchema> JsonSchema for Option<T> {
    fn schema() -> Value {
        let schema = T::schema();
        match schema.as_object() {
            // It takes everything.
            Some(object) if object.is_empty() => schema,
            _ => json!({"anyOf": [schema, {"type": "null"}]}),
        }
    }
}

/// Declares a type that reads keys of a request and leaves others alone.
macro_rules! keys {
    ($(#[$meta:meta])* $visible:vis struct $name:ident { $($(#[$doc:meta])* $key:ident: $type:ty,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Default, serde::Deserialize)]
        #[serde(default)]
        $visible struct $name { $($(#[$doc])* $key: $type,)* }

        impl $crate::schema::JsonSchema for $name {
            fn schema() -> serde_json::Value {
                let mut properties = serde_json::Map::new();
                $(properties.insert(stringify!($key).into(), <$type as $crate::schema::JsonSchema>::schema());)*
                serde_json::json!({"type": "object", "properties": properties})
            }
        }
    };
}

pub(crate) use keys;

#[cfg(test)]
mod tests {
    use super::*;

    keys! {
        struct Sample {
            n: Option<i64>,
            words: Vec<String>,
            any: Option<Value>,
        }
    }

    #[test]
    fn a_schema_has_the_keys_of_its_type() {
        let schema = Sample::schema();
        let properties = schema["properties"].as_object().expect("it is an object");
        assert_eq!(properties.keys().collect::<Vec<_>>(), ["n", "words", "any"]);
        assert_eq!(properties["words"], json!({"type": "array", "items": {"type": "string"}}));
        assert_eq!((&properties["n"]["anyOf"][1], &properties["any"]), (&json!({"type": "null"}), &json!({})));
        let read: Sample = serde_json::from_value(json!({"n": 3, "other": 1})).expect("it is good");
        assert_eq!((read.n, read.words.len(), read.any), (Some(3), 0, None));
    }
}
