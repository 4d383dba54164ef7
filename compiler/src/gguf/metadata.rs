//! Metadata by key, with typed getters: an absent key is `None`, a key of another type is an error.
//!
//! Each getter marks its key as read, so that [`Metadata::unread`] knows what no part of the compiler looked at.

use super::value::{Numbers, Texts, Value};
use crate::gguf_error::GgufError;
use crate::{CompileError, Result};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The key-value pairs of a file.
#[derive(Debug)]
pub(crate) struct Metadata {
    path: PathBuf,
    values: BTreeMap<String, Value>,
    read: RefCell<BTreeSet<String>>,
}

impl Metadata {
    pub(super) fn new(path: &Path, values: BTreeMap<String, Value>) -> Self {
        Self { path: path.into(), values, read: RefCell::default() }
    }

    /// The file.
    pub(super) fn path(&self) -> PathBuf {
        self.path.clone()
    }

    /// The value of a key, of any type.
    pub(crate) fn get(&self, key: &str) -> Option<&Value> {
        let value = self.values.get(key)?;
        self.read.borrow_mut().insert(key.into());
        Some(value)
    }

    /// Keys that no getter was asked for.
    pub(super) fn unread(&self) -> Vec<&str> {
        let read = self.read.borrow();
        self.values.keys().filter(|key| !read.contains(*key)).map(String::as_str).collect()
    }

    /// Marks all keys that begin so as read.
    pub(super) fn leave_out(&self, prefix: &str) {
        let keys = self.values.keys().filter(|key| key.starts_with(prefix)).cloned();
        self.read.borrow_mut().extend(keys);
    }

    /// Takes back that a key was read: [`Self::unread`] names it.
    pub(super) fn unread_again(&self, key: &str) {
        self.read.borrow_mut().remove(key);
    }

    /// A string.
    ///
    /// # Errors
    /// A value of another type; so for all getters.
    pub(crate) fn text(&self, key: &str) -> Result<Option<&str>> {
        self.typed(key, "a string", |v| if let Value::Text(text) = v { Some(text.as_str()) } else { None })
    }

    /// A truth value.
    pub(crate) fn bool(&self, key: &str) -> Result<Option<bool>> {
        self.typed(key, "true or false", |v| if let Value::Bool(b) = v { Some(*b) } else { None })
    }

    /// A whole number from 0 to 2^32 - 1; all counts and ids are.
    pub(crate) fn count(&self, key: &str) -> Result<Option<u64>> {
        self.typed(key, "a whole number from 0 to 4294967295", count)
    }

    /// A finite number.
    pub(crate) fn number(&self, key: &str) -> Result<Option<f64>> {
        self.typed(key, "a number", |v| match v {
            Value::Int(n) => Some(*n as f64),
            Value::Float(x) if x.is_finite() => Some(*x),
            _ => None,
        })
    }

    /// Strings.
    pub(crate) fn texts(&self, key: &str) -> Result<Option<&Texts>> {
        self.typed(key, "a list of strings", |v| if let Value::Texts(texts) = v { Some(texts) } else { None })
    }

    /// Numbers.
    pub(crate) fn numbers(&self, key: &str) -> Result<Option<&Numbers>> {
        self.typed(key, "a list of numbers", |v| match v {
            Value::Numbers(numbers) if numbers.floats().is_some() => Some(numbers),
            _ => None,
        })
    }

    /// Whole numbers.
    pub(crate) fn ints(&self, key: &str) -> Result<Option<Vec<i128>>> {
        self.typed(key, "a list of whole numbers", |v| match v {
            Value::Numbers(numbers) => numbers.ints().map(Iterator::collect),
            _ => None,
        })
    }

    /// A count, or a list with the same count for each layer.
    pub(crate) fn count_of_layers(&self, key: &str, n_layers: u64) -> Result<Option<u64>> {
        let expected = format!("a whole number, or a list of {n_layers} equal ones: layers may not differ");
        self.typed(key, &expected, |v| match v {
            Value::Numbers(numbers) if numbers.len() as u64 == n_layers => {
                let mut ints = numbers.ints()?;
                let first = ints.next()?;
                ints.all(|n| n == first).then(|| count(&Value::Int(first)))?
            }
            other => count(other),
        })
    }

    /// The value of a key that a model cannot do without.
    ///
    /// # Errors
    /// None.
    pub(crate) fn required<T>(&self, key: &str, value: Option<T>) -> Result<T> {
        value.ok_or_else(|| GgufError::MissingKey { path: self.path(), key: key.into() }.into())
    }

    /// An error: the key's value cannot be used.
    pub(crate) fn refused(&self, key: &str, expected: impl Into<String>) -> CompileError {
        let found = self.values.get(key).map_or_else(|| "missing".into(), Value::shown);
        GgufError::Key { path: self.path(), key: key.into(), found, expected: expected.into() }.into()
    }

    fn typed<'v, T>(
        &'v self,
        key: &str,
        expected: &str,
        cast: impl FnOnce(&'v Value) -> Option<T>,
    ) -> Result<Option<T>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        cast(value).map(Some).ok_or_else(|| self.refused(key, expected))
    }
}

fn count(value: &Value) -> Option<u64> {
    if let Value::Int(n) = value { u32::try_from(*n).ok().map(u64::from) } else { None }
}
