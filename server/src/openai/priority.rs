//! `priority`: which of the requests that wait starts first.

use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use crate::schema::JsonSchema;

/// The furthest that a request can be from 0. One second of waiting is worth one step, unless the server's options say otherwise.
const FURTHEST: i32 = 100;

/// A request's priority, -100 to 100: higher ones start first. Requests that run are left alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Priority(i32);

impl Priority {
    pub(crate) fn get(self) -> i32 {
        self.0
    }
}

impl<'de> Deserialize<'de> for Priority {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(from)?;
        let within = value.as_i64().and_then(|n| i32::try_from(n).ok()).filter(|n| (-FURTHEST..=FURTHEST).contains(n));
        within.map(Self).ok_or_else(|| {
            let found = match &value {
                Value::Number(n) => n.to_string(),
                Value::String(_) => "a text".into(),
                Value::Bool(on) => on.to_string(),
                Value::Null => "null".into(),
                Value::Array(_) => "a list".into(),
                Value::Object(_) => "an object".into(),
            };
            serde::de::Error::custom(format!("expected an integer from -{FURTHEST} to {FURTHEST}, found {found}"))
        })
    }
}

impl JsonSchema for Priority {
    fn schema() -> Value {
        json!({
            "type": "integer", "minimum": -FURTHEST, "maximum": FURTHEST, "default": 0,
            "description": "of the requests that wait, the one with the highest priority starts first",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_integers_within_bounds_are_priorities() {
        for n in [-100, -1, 0, 100] {
            assert_eq!(serde_json::from_value::<Priority>(json!(n)).map(Priority::get).ok(), Some(n));
        }
        let wrong = [
            (json!(101), "101"),
            (json!(-101), "-101"),
            (json!(i32::MIN), "-2147483648"),
            (json!(i64::MIN), "-9223372036854775808"),
            (json!(1.5), "1.5"),
            (json!("high"), "a text"),
            (json!(true), "true"),
            (json!([1]), "a list"),
        ];
        for (value, found) in wrong {
            let error = serde_json::from_value::<Priority>(value).expect_err(found).to_string();
            assert_eq!(error, format!("expected an integer from -100 to 100, found {found}"));
        }
    }
}
