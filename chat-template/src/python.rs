//! Values as Python's `str` and `repr` write them: templates print them and compare the text.

use std::fmt::Write;

use minijinja::Value;
use minijinja::value::{Rest, ValueKind};
use minijinja::{Error, ErrorKind};

use crate::bounds;

/// `str(value)`; an error for a value that is too deep or too large.
pub(crate) fn str(value: &Value) -> Result<String, Error> {
    match value.as_str() {
        Some(text) => Ok(text.to_owned()),
        None if value.is_undefined() => Ok(String::new()),
        None => bounds::check(value).map(|()| repr(value)),
    }
}

/// `repr(value)`.
fn repr(value: &Value) -> String {
    match value.kind() {
        ValueKind::None | ValueKind::Undefined => "None".into(),
        ValueKind::Bool => if value.is_true() { "True" } else { "False" }.into(),
        ValueKind::Number if !value.is_integer() => {
            f64::try_from(value.clone()).map_or_else(|_| value.to_string(), float)
        }
        ValueKind::String => quoted(value.as_str().unwrap_or_default()),
        ValueKind::Seq | ValueKind::Iterable => {
            let items: Vec<String> = value.try_iter().into_iter().flatten().map(|item| repr(&item)).collect();
            format!("[{}]", items.join(", "))
        }
        ValueKind::Map => {
            let pair = |key: Value| {
                format!("{}: {}", repr(&key), value.get_item(&key).map_or_else(|_| "None".into(), |v| repr(&v)))
            };
            let items: Vec<String> = value.try_iter().into_iter().flatten().map(pair).collect();
            format!("{{{}}}", items.join(", "))
        }
        _ => value.to_string(),
    }
}

/// A float: the shortest digits, an exponent of at least two with its sign.
pub(crate) fn float(value: f64) -> String {
    if !value.is_finite() {
        return if value.is_nan() {
            "nan".into()
        } else if value > 0.0 {
            "inf".into()
        } else {
            "-inf".into()
        };
    }
    let text = format!("{value:?}");
    let Some((digits, exponent)) = text.split_once('e') else { return text };
    let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |rest| ('-', rest));
    format!("{}e{sign}{exponent:0>2}", digits.strip_suffix(".0").unwrap_or(digits))
}

/// A string in Python's quotes: single ones, unless only those are inside.
fn quoted(text: &str) -> String {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    let mut out = String::from(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => out.extend(['\\', c]),
            c if (c as u32) < 0x20 || c as u32 == 0x7f => drop(write!(out, "\\x{:02x}", c as u32)),
            c => out.push(c),
        }
    }
    out.push(quote);
    out
}

/// `raise_exception(message)`.
pub(crate) fn raise_exception(message: &Value, _: Rest<Value>) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, "raised by the template")
        .with_source(crate::error::Raised(str(message)?)))
}
