//! Metadata values. Lists are kept as they lie in the file, packed: a file of long lists needs no more memory than its own length.

use super::read::Reader;
use crate::Result;

/// A value of the metadata. Numbers are widened.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    /// Any integer.
    Int(i128),
    /// Any float.
    Float(f64),
    /// A truth value.
    Bool(bool),
    /// A string.
    Text(String),
    /// Strings.
    Texts(Texts),
    /// Numbers, or truth values.
    Numbers(Numbers),
    /// A long list that no part of the compiler reads: the length is all that is kept.
    Skipped(u64),
}

/// A list of strings, one after the other in one buffer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Texts {
    text: String,
    ends: Vec<usize>,
}

/// A list of numbers or truth values, as its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Numbers {
    kind: u32,
    width: usize,
    bytes: Vec<u8>,
}

/// Lists of more elements are kept only under keys that are read.
const SHORT: u64 = 4096;
/// More elements than a vocabulary or a list of merges has.
const LONGEST: u64 = 1 << 24;
/// Characters of a string that a message shows.
const SHOWN: usize = 40;

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

/// Bytes of a number or truth value.
const fn width(kind: u32) -> Option<usize> {
    match kind {
        kind::U8 | kind::I8 | kind::BOOL => Some(1),
        kind::U16 | kind::I16 => Some(2),
        kind::U32 | kind::I32 | kind::F32 => Some(4),
        kind::U64 | kind::I64 | kind::F64 => Some(8),
        _ => None,
    }
}

impl Value {
    /// What it is, for messages.
    pub(crate) fn shown(&self) -> String {
        match self {
            Self::Int(n) => n.to_string(),
            Self::Float(x) => x.to_string(),
            Self::Bool(b) => b.to_string(),
            Self::Text(text) => format!("the string `{}`", shown(text)),
            Self::Texts(texts) => format!("a list of {} strings", texts.len()),
            Self::Numbers(numbers) if numbers.kind == kind::BOOL => {
                format!("a list of {} truth values", numbers.len())
            }
            Self::Numbers(numbers) => format!("a list of {} numbers", numbers.len()),
            Self::Skipped(n) => format!("a list of {n} entries"),
        }
    }
}

/// The beginning of a text, its control characters escaped: what a file says may not steer a terminal.
pub(crate) fn shown(text: &str) -> String {
    let mut shown: String = text.chars().take(SHOWN).flat_map(char::escape_debug).collect();
    if text.chars().nth(SHOWN).is_some() {
        shown.push_str("...");
    }
    shown
}

impl Texts {
    /// Strings in the list.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The string at that place.
    pub(crate) fn get(&self, at: usize) -> Option<&str> {
        let start = if at == 0 { 0 } else { *self.ends.get(at - 1)? };
        self.text.get(start..*self.ends.get(at)?)
    }

    /// All strings, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &str> {
        (0..self.len()).filter_map(|at| self.get(at))
    }

    fn read(r: &mut Reader<'_>) -> Result<Self> {
        let n = r.count(8)?;
        let (mut bytes, mut ends) = (Vec::new(), Vec::with_capacity(n));
        for _ in 0..n {
            r.append_text(&mut bytes)?;
            ends.push(bytes.len());
        }
        let not_utf8 = || r.malformed("a string of a list is not UTF-8".into());
        let text = String::from_utf8(bytes).map_err(|_| not_utf8())?;
        if ends.iter().any(|&end| !text.is_char_boundary(end)) {
            return Err(not_utf8());
        }
        Ok(Self { text, ends })
    }
}

impl Numbers {
    /// Numbers in the list.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() / self.width
    }

    /// As whole numbers; `None` for floats and truth values.
    pub(crate) fn ints(&self) -> Option<impl Iterator<Item = i128>> {
        let whole = !matches!(self.kind, kind::F32 | kind::F64 | kind::BOOL);
        whole.then(|| {
            self.bytes.chunks_exact(self.width).map(|b| match decode(self.kind, b) {
                Value::Int(n) => n,
                other => unreachable!("{other:?} in a list of whole numbers"),
            })
        })
    }

    /// As truth values; `None` for numbers.
    pub(crate) fn bools(&self) -> Option<Vec<bool>> {
        (self.kind == kind::BOOL).then(|| self.bytes.iter().map(|b| *b == 1).collect())
    }

    /// As floats; `None` for truth values.
    pub(crate) fn floats(&self) -> Option<impl Iterator<Item = f64>> {
        (self.kind != kind::BOOL).then(|| {
            self.bytes.chunks_exact(self.width).map(|b| match decode(self.kind, b) {
                Value::Int(n) => n as f64,
                Value::Float(x) => x,
                other => unreachable!("{other:?} in a list of numbers"),
            })
        })
    }
}

/// Reads a type and a value of it. `keep`: keep a list however long.
pub(super) fn read(r: &mut Reader<'_>, keep: bool) -> Result<Value> {
    let kind = r.u32()?;
    match kind {
        kind::TEXT => r.text().map(Value::Text),
        kind::LIST => list(r, keep),
        _ => {
            let width = width(kind).ok_or_else(|| r.malformed(format!("a value of unknown type {kind}")))?;
            let bytes = r.bytes(width as u64)?;
            check_bools(r, kind, &bytes)?;
            Ok(decode(kind, &bytes))
        }
    }
}

fn list(r: &mut Reader<'_>, keep: bool) -> Result<Value> {
    let kind = r.u32()?;
    if kind == kind::LIST {
        return Err(r.malformed("a list of lists, which no key has".into()));
    }
    if kind == kind::TEXT {
        let n = r.peek_u64()?;
        check_length(r, n, keep)?;
        if keep || n <= SHORT {
            return Texts::read(r).map(Value::Texts);
        }
        for _ in 0..r.count(8)? {
            let length = r.u64()?;
            r.skip(length)?;
        }
        return Ok(Value::Skipped(n));
    }
    let width = width(kind).ok_or_else(|| r.malformed(format!("a list of unknown type {kind}")))?;
    let n = r.count(width as u64)? as u64;
    let length = n * width as u64;
    if !keep && n > SHORT {
        r.skip(length)?;
        return Ok(Value::Skipped(n));
    }
    check_length(r, n, keep)?;
    let bytes = r.bytes(length)?;
    check_bools(r, kind, &bytes)?;
    Ok(Value::Numbers(Numbers { kind, width, bytes }))
}

fn check_length(r: &Reader<'_>, n: u64, keep: bool) -> Result<()> {
    if keep && n > LONGEST {
        return Err(r.malformed(format!("a list of {n} entries, expected at most {LONGEST}")));
    }
    Ok(())
}

fn check_bools(r: &Reader<'_>, kind: u32, bytes: &[u8]) -> Result<()> {
    match bytes.iter().find(|b| kind == kind::BOOL && **b > 1) {
        Some(b) => Err(r.malformed(format!("a truth value of {b}"))),
        None => Ok(()),
    }
}

/// A number or truth value from exactly as many bytes as it has.
fn decode(kind: u32, bytes: &[u8]) -> Value {
    let mut wide = [0; 8];
    wide[..bytes.len()].copy_from_slice(bytes);
    let bits = u64::from_le_bytes(wide);
    match kind {
        kind::I8 => Value::Int((bits as i8).into()),
        kind::I16 => Value::Int((bits as i16).into()),
        kind::I32 => Value::Int((bits as i32).into()),
        kind::I64 => Value::Int(bits.cast_signed().into()),
        kind::F32 => Value::Float(f32::from_bits(bits as u32).into()),
        kind::F64 => Value::Float(f64::from_bits(bits)),
        kind::BOOL => Value::Bool(bits == 1),
        _ => Value::Int(bits.into()),
    }
}

#[cfg(test)]
impl Value {
    /// Bytes that a list holds in memory.
    pub(super) fn packed_bytes(&self) -> Option<usize> {
        match self {
            Self::Texts(texts) => Some(texts.text.len() + texts.ends.len() * size_of::<usize>()),
            Self::Numbers(numbers) => Some(numbers.bytes.len()),
            _ => None,
        }
    }
}
