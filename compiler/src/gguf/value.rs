//! Metadata values.

use super::read::Reader;
use crate::Result;

/// A value of the metadata. Numbers are widened.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    /// Any unsigned integer.
    Unsigned(u64),
    /// Any signed integer.
    Signed(i64),
    /// Any float.
    Float(f64),
    /// A truth value.
    Bool(bool),
    /// A string.
    Text(String),
    /// Strings, of which vocabularies have many.
    Texts(Vec<String>),
    /// A list of anything else.
    List(Vec<Value>),
}

impl Value {
    /// A whole number from 0 up.
    pub(crate) fn unsigned(&self) -> Option<u64> {
        match self {
            Self::Unsigned(n) => Some(*n),
            Self::Signed(n) => u64::try_from(*n).ok(),
            _ => None,
        }
    }

    /// Any number.
    pub(crate) fn number(&self) -> Option<f64> {
        match self {
            Self::Unsigned(n) => Some(*n as f64),
            Self::Signed(n) => Some(*n as f64),
            Self::Float(x) => Some(*x),
            _ => None,
        }
    }

    /// A truth value.
    pub(crate) fn bool(&self) -> Option<bool> {
        if let Self::Bool(b) = self { Some(*b) } else { None }
    }

    /// A string.
    pub(crate) fn text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    /// A list of strings.
    pub(crate) fn texts(&self) -> Option<&[String]> {
        if let Self::Texts(texts) = self { Some(texts) } else { None }
    }

    /// A list of numbers.
    pub(crate) fn numbers(&self) -> Option<Vec<f64>> {
        if let Self::List(values) = self { values.iter().map(Self::number).collect() } else { None }
    }
}

/// Numbers of the value types, as the format gives them.
mod kind {
    pub(super) const U8: u32 = 0;
    pub(super) const I8: u32 = 1;
    pub(super) const U16: u32 = 2;
    pub(super) const I16: u32 = 3;
    pub(super) const U32: u32 = 4;
    pub(super) const I32: u32 = 5;
    pub(super) const F32: u32 = 6;
    pub(super) const BOOL: u32 = 7;
    pub(super) const TEXT: u32 = 8;
    pub(super) const LIST: u32 = 9;
    pub(super) const U64: u32 = 10;
    pub(super) const I64: u32 = 11;
    pub(super) const F64: u32 = 12;
}

/// Reads a type and a value of it.
pub(super) fn read(r: &mut Reader<'_>) -> Result<Value> {
    let kind = r.u32()?;
    if kind != kind::LIST {
        return one(r, kind);
    }
    let kind = r.u32()?;
    match kind {
        kind::LIST => Err(r.malformed("a list of lists, which no key has".into())),
        kind::TEXT => {
            let n = r.count(8)?;
            Ok(Value::Texts((0..n).map(|_| r.text()).collect::<Result<_>>()?))
        }
        _ => {
            let n = r.count(1)?;
            Ok(Value::List((0..n).map(|_| one(r, kind)).collect::<Result<_>>()?))
        }
    }
}

fn one(r: &mut Reader<'_>, kind: u32) -> Result<Value> {
    Ok(match kind {
        kind::U8 => Value::Unsigned(r.array::<1>()?[0].into()),
        kind::I8 => Value::Signed(i8::from_le_bytes(r.array()?).into()),
        kind::U16 => Value::Unsigned(u16::from_le_bytes(r.array()?).into()),
        kind::I16 => Value::Signed(i16::from_le_bytes(r.array()?).into()),
        kind::U32 => Value::Unsigned(r.u32()?.into()),
        kind::I32 => Value::Signed(i32::from_le_bytes(r.array()?).into()),
        kind::F32 => Value::Float(f32::from_le_bytes(r.array()?).into()),
        kind::BOOL => match r.array::<1>()?[0] {
            b @ 0..=1 => Value::Bool(b == 1),
            b => return Err(r.malformed(format!("a truth value of {b}"))),
        },
        kind::TEXT => Value::Text(r.text()?),
        kind::U64 => Value::Unsigned(r.u64()?),
        kind::I64 => Value::Signed(i64::from_le_bytes(r.array()?)),
        kind::F64 => Value::Float(f64::from_le_bytes(r.array()?)),
        other => return Err(r.malformed(format!("a value of unknown type {other}"))),
    })
}
