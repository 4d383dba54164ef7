//! A JSON value together with its place, so that rules can name what a problem is about.

use serde_json::Value;

use super::problem::Problem;
use super::schema::join;

/// A value and its JSON pointer. Absent or misshapen children count as absent: the schema has reported them.
#[derive(Clone)]
pub(super) struct Node<'v> {
    value: &'v Value,
    pointer: String,
}

impl<'v> Node<'v> {
    pub(super) fn root(value: &'v Value) -> Self {
        Self { value, pointer: String::new() }
    }

    pub(super) fn get(&self, key: &str) -> Option<Node<'v>> {
        self.value.get(key).map(|value| Node { value, pointer: join(&self.pointer, key) })
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.value.get(key).is_some()
    }

    /// The items of an array; none for other values.
    pub(super) fn items(&self) -> Vec<Node<'v>> {
        let values = self.value.as_array().map_or(&[][..], Vec::as_slice);
        values.iter().enumerate().map(|(i, value)| Node { value, pointer: format!("{}/{i}", self.pointer) }).collect()
    }

    /// The value itself, or its items when it is an array: for keys that take one or many.
    pub(super) fn one_or_many(&self) -> Vec<Node<'v>> {
        if self.value.is_array() { self.items() } else { vec![self.clone()] }
    }

    /// How many [`Node::one_or_many`] gives.
    pub(super) fn count_self(&self) -> usize {
        self.value.as_array().map_or(1, Vec::len)
    }

    pub(super) fn is_array(&self) -> bool {
        self.value.is_array()
    }

    pub(super) fn is_object(&self) -> bool {
        self.value.is_object()
    }

    pub(super) fn as_str(&self) -> Option<&'v str> {
        self.value.as_str()
    }

    pub(super) fn as_i64(&self) -> Option<i64> {
        self.value.as_i64()
    }

    pub(super) fn as_f64(&self) -> Option<f64> {
        self.value.as_f64()
    }

    /// The string at `key`.
    pub(super) fn str(&self, key: &str) -> Option<&'v str> {
        self.value.get(key)?.as_str()
    }

    /// True only when `key` is there and true.
    pub(super) fn is_true(&self, key: &str) -> bool {
        self.value.get(key).and_then(Value::as_bool) == Some(true)
    }

    /// How many items the array at `key` has; a single value counts as one, an absent one as none.
    pub(super) fn count(&self, key: &str) -> usize {
        self.get(key).map_or(0, |n| n.count_self())
    }

    /// A problem with this value.
    pub(super) fn problem(&self, message: impl Into<String>) -> Problem {
        Problem::new(self.pointer.clone(), message)
    }

    /// A problem with a key of this value, there or not.
    pub(super) fn problem_at(&self, key: &str, message: impl Into<String>) -> Problem {
        Problem::new(join(&self.pointer, key), message)
    }
}
