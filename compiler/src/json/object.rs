//! An object whose keys are read by type, and which knows the keys that were not.

use crate::{CompileError, Result};
use serde_json::{Map, Value};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::path::Path;

/// Characters of a value that a message shows.
const SHOWN: usize = 60;

/// An object of a file. A null is as good as an absent key.
#[derive(Debug)]
pub(crate) struct Object<'a> {
    file: &'a Path,
    /// Name of the object in the file, with a full stop behind it; empty for the document itself.
    prefix: String,
    map: &'a Map<String, Value>,
    read: RefCell<BTreeSet<&'a str>>,
}

impl<'a> Object<'a> {
    /// The document of a file.
    ///
    /// # Errors
    /// A document that is no object.
    pub(crate) fn document(file: &'a Path, value: &'a Value) -> Result<Self> {
        match value {
            Value::Object(map) => Ok(Self::new(file, String::new(), map)),
            other => Err(CompileError::BadJson {
                path: file.into(),
                detail: format!("found {}, expected an object", shown(other)),
            }),
        }
    }

    fn new(file: &'a Path, prefix: String, map: &'a Map<String, Value>) -> Self {
        Self { file, prefix, map, read: RefCell::default() }
    }

    /// The value of a key, whatever its type.
    pub(crate) fn value(&self, key: &str) -> Option<&'a Value> {
        let (key, value) = self.map.get_key_value(key)?;
        self.read.borrow_mut().insert(key);
        Some(value).filter(|value| !value.is_null())
    }

    /// True where the key is there and null.
    pub(crate) fn is_null(&self, key: &str) -> bool {
        self.map.get(key).is_some_and(Value::is_null)
    }

    /// A whole number in a range.
    pub(crate) fn count(&self, key: &str, range: RangeInclusive<usize>) -> Result<Option<usize>> {
        self.typed(key, &whole(&range), |value| {
            value.as_u64().and_then(|n| usize::try_from(n).ok()).filter(|n| range.contains(n))
        })
    }

    /// A whole number in a range, under a key that must be there.
    pub(crate) fn needed_count(&self, key: &str, range: RangeInclusive<usize>) -> Result<usize> {
        self.count(key, range.clone())?.ok_or_else(|| self.missing(key, &whole(&range)))
    }

    /// A whole number in a range that may begin below 0.
    pub(crate) fn integer(&self, key: &str, range: RangeInclusive<i64>) -> Result<Option<i64>> {
        let expected = format!("a whole number from {} to {}", range.start(), range.end());
        self.typed(key, &expected, |value| value.as_i64().filter(|n| range.contains(n)))
    }

    /// A finite number in a range; `expected` says which.
    pub(crate) fn number(&self, key: &str, range: RangeInclusive<f64>, expected: &str) -> Result<Option<f64>> {
        self.typed(key, expected, |value| value.as_f64().filter(|n| n.is_finite() && range.contains(n)))
    }

    /// As [`Self::number`], under a key that must be there.
    pub(crate) fn needed_number(&self, key: &str, range: RangeInclusive<f64>, expected: &str) -> Result<f64> {
        self.number(key, range, expected)?.ok_or_else(|| self.missing(key, expected))
    }

    /// True or false.
    pub(crate) fn flag(&self, key: &str) -> Result<Option<bool>> {
        self.typed(key, "true or false", Value::as_bool)
    }

    /// A string.
    pub(crate) fn text(&self, key: &str) -> Result<Option<&'a str>> {
        self.typed(key, "a string", Value::as_str)
    }

    /// A list of strings.
    pub(crate) fn texts(&self, key: &str) -> Result<Option<Vec<&'a str>>> {
        self.typed(key, "a list of strings", |value| value.as_array()?.iter().map(Value::as_str).collect())
    }

    /// One whole number or a list of them, each in a range.
    pub(crate) fn one_or_many(&self, key: &str, range: RangeInclusive<i64>) -> Result<Option<Vec<i64>>> {
        let (least, most) = (range.start(), range.end());
        let expected = format!("a whole number from {least} to {most}, or a list of them");
        let one = |value: &Value| value.as_i64().filter(|n| range.contains(n));
        self.typed(key, &expected, |value| match value {
            Value::Array(items) => items.iter().map(one).collect(),
            other => one(other).map(|n| vec![n]),
        })
    }

    /// An object; its keys are named with this one in front.
    pub(crate) fn object(&self, key: &str) -> Result<Option<Object<'a>>> {
        let map = self.typed(key, "an object", Value::as_object)?;
        Ok(map.map(|map| Object::new(self.file, format!("{}{key}.", self.prefix), map)))
    }

    /// Keys with their values that nothing has read.
    pub(crate) fn unread(&self) -> Vec<(&'a str, &'a Value)> {
        let read = self.read.borrow();
        self.map.iter().map(|(key, value)| (key.as_str(), value)).filter(|(key, _)| !read.contains(key)).collect()
    }

    /// The error of a value that will not do.
    pub(crate) fn bad(&self, key: &str, found: impl ToString, expected: &str) -> CompileError {
        CompileError::ConfigValue {
            file: self.file.into(),
            key: self.name(key),
            found: found.to_string(),
            expected: expected.into(),
        }
    }

    /// The error of a key that is not there, or null.
    pub(crate) fn missing(&self, key: &str, expected: &str) -> CompileError {
        let names = self.map.keys().map(String::as_str).filter(|name| *name != key);
        let null = if self.is_null(key) { ", found null" } else { "" };
        CompileError::ConfigMissing {
            file: self.file.into(),
            key: self.name(key),
            expected: format!("{expected}{null}"),
            near: crate::near::nearest(key, names).iter().map(|near| self.name(near)).collect(),
        }
    }

    /// The error of a value that asks for something that this compiler does not do.
    pub(crate) fn unsupported(&self, key: &str, found: impl ToString, accepted: &str) -> CompileError {
        CompileError::UnsupportedValue {
            file: self.file.into(),
            key: self.name(key),
            found: found.to_string(),
            accepted: accepted.into(),
        }
    }

    /// The error of a key that is not known and might matter.
    pub(crate) fn unknown(&self, key: &str, value: &Value) -> CompileError {
        CompileError::UnknownKey { file: self.file.into(), key: self.name(key), found: shown(value) }
    }

    fn name(&self, key: &str) -> String {
        format!("{}{}", self.prefix, shown_key(key))
    }

    fn typed<T>(&self, key: &str, expected: &str, read: impl FnOnce(&'a Value) -> Option<T>) -> Result<Option<T>> {
        let Some(value) = self.value(key) else { return Ok(None) };
        read(value).map(Some).ok_or_else(|| self.bad(key, shown(value), expected))
    }
}

fn whole(range: &RangeInclusive<usize>) -> String {
    format!("a whole number from {} to {}", range.start(), range.end())
}

/// A value for a message: on one line, not too long, without control characters.
pub(crate) fn shown(value: &Value) -> String {
    cut(&value.to_string())
}

/// A key for a message.
pub(crate) fn shown_key(key: &str) -> String {
    cut(key)
}

fn cut(text: &str) -> String {
    let escape = |c: char| if c.is_control() { c.escape_unicode().to_string() } else { c.to_string() };
    let mut shown: String = text.chars().take(SHOWN).map(escape).collect();
    if text.chars().nth(SHOWN).is_some() {
        shown.push_str("...");
    }
    shown
}
