//! An op's rule for clients, the words to write one, and the checks that need no shapes.
//!
//! Invariant: names and operand order are QNN's (package `qti.aisw`). Rows of class `Moved` take every type, since bytes
//! are only carried; the other rows are those documented for the HTP, so a graph that passes here has a chance there.

use super::call::{Call, Shapes};
use super::lowering::Lowering;
use crate::graph::Violation;
use crate::ir::{Dtype, Param, Quant, Tensor};

/// Bits of element types, in the order of `Dtype::ALL`.
pub(super) mod bits {
    pub(in crate::ops) const INT8: u32 = 1;
    pub(in crate::ops) const INT16: u32 = 1 << 1;
    pub(in crate::ops) const INT32: u32 = 1 << 2;
    pub(in crate::ops) const INT64: u32 = 1 << 3;
    pub(in crate::ops) const UINT8: u32 = 1 << 4;
    pub(in crate::ops) const UINT16: u32 = 1 << 5;
    pub(in crate::ops) const UINT32: u32 = 1 << 6;
    pub(in crate::ops) const UINT64: u32 = 1 << 7;
    pub(in crate::ops) const F16: u32 = 1 << 8;
    pub(in crate::ops) const F32: u32 = 1 << 9;
    pub(in crate::ops) const SFIX4: u32 = 1 << 10;
    pub(in crate::ops) const SFIX8: u32 = 1 << 11;
    pub(in crate::ops) const SFIX16: u32 = 1 << 12;
    pub(in crate::ops) const SFIX32: u32 = 1 << 13;
    pub(in crate::ops) const UFIX4: u32 = 1 << 14;
    pub(in crate::ops) const UFIX8: u32 = 1 << 15;
    pub(in crate::ops) const UFIX16: u32 = 1 << 16;
    pub(in crate::ops) const UFIX32: u32 = 1 << 17;
    pub(in crate::ops) const BOOL8: u32 = 1 << 18;
    /// Of constants alone: weights, and tables of look-ups.
    pub(in crate::ops) const BF16: u32 = 1 << 19;
    pub(in crate::ops) const FLOAT: u32 = F16 | F32;
    /// What a cache of keys and values is kept in.
    pub(in crate::ops) const CACHE: u32 = FLOAT | INT8 | UINT8 | SFIX8 | UFIX8;
    pub(in crate::ops) const INDEX: u32 = INT32 | UINT32;
    /// Whatever has whole bytes.
    pub(in crate::ops) const ALL: u32 = INT8
        | INT16
        | INT32
        | INT64
        | UINT8
        | UINT16
        | UINT32
        | UINT64
        | FLOAT
        | SFIX8
        | SFIX16
        | SFIX32
        | UFIX8
        | UFIX16
        | UFIX32
        | BOOL8;
}

/// No upper bound of operands.
pub(super) const MANY: usize = usize::MAX;

/// A parameter that must be given.
pub(super) const fn req(name: &'static str, kind: ParamKind) -> ParamSpec {
    ParamSpec { name, kind, required: true }
}

/// A parameter that may be left out.
pub(super) const fn opt(name: &'static str, kind: ParamKind) -> ParamSpec {
    ParamSpec { name, kind, required: false }
}

/// `row!(Class: [types of input 0] [input 1] ... => [types of output 0] ...)`.
macro_rules! row {
    ($class:ident: $([$($i:ident)+])+ => $([$($o:ident)+])+) => {
        $crate::ops::Row {
            class: $crate::ops::Class::$class,
            inputs: &[$($($crate::ops::spec::bits::$i)|+),+],
            outputs: &[$($($crate::ops::spec::bits::$o)|+),+],
        }
    };
}

/// A set of element types, one bit each in the order of [`Dtype::ALL`].
pub type Set = u32;

/// The kinds of arithmetic that a row of element types stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// float16 and float32.
    Float,
    /// Quantised values with an encoding.
    Fixed,
    /// Plain integers and booleans.
    Plain,
    /// Bytes are moved, never read as numbers.
    Moved,
}

/// One accepted combination of element types, an entry for each operand; the last one serves all further operands.
#[derive(Debug)]
pub struct Row {
    /// Its arithmetic.
    pub class: Class,
    /// Types of the inputs.
    pub inputs: &'static [Set],
    /// Types of the outputs.
    pub outputs: &'static [Set],
}

/// The form of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParamKind {
    /// float32 scalar.
    F32,
    /// Integer scalar.
    Int,
    /// Integer scalar that is not negative.
    UInt,
    /// bool8 scalar (an integer 0 or 1 is taken too).
    Bool,
    /// Static integer tensor.
    Ints,
    /// Any scalar.
    Scalar,
}

/// A parameter that an op takes.
#[derive(Debug)]
pub struct ParamSpec {
    /// QNN's name for it.
    pub name: &'static str,
    /// Its form.
    pub kind: ParamKind,
    /// Must be given.
    pub required: bool,
}

/// The extents of an op's outputs, inferred from its inputs and parameters.
pub(crate) type ShapeFn = fn(&Call<'_>) -> Shapes;

/// Emits the typed operations of a node whose shapes were checked.
pub(crate) type LowerFn = fn(&mut Lowering<'_, '_>) -> Result<(), Violation>;

/// The rules of an op.
pub struct OpSpec {
    /// QNN's op type string.
    pub name: &'static str,
    /// Fewest and most inputs.
    pub inputs: (usize, usize),
    /// Fewest and most outputs.
    pub outputs: (usize, usize),
    /// Parameters it takes.
    pub params: &'static [ParamSpec],
    /// Inputs that must have the element type of input 0, a bit each (bit 7 stands for all from 7 on).
    pub same_in: u8,
    /// Outputs that must have the element type of input 0, a bit each.
    pub same_out: u8,
    /// Accepted element types.
    pub rows: &'static [Row],
    pub(crate) shapes: ShapeFn,
    pub(crate) lower: LowerFn,
}

impl OpSpec {
    /// Known, required, and of the right form.
    pub(super) fn check_params(&self, call: &Call<'_>) -> Result<(), Violation> {
        for (i, (name, param)) in call.node.params.iter().enumerate() {
            let Some(rule) = self.params.iter().find(|p| p.name == name) else {
                let known: Vec<_> = self.params.iter().map(|p| p.name).collect();
                let expected = if known.is_empty() { "no parameters".into() } else { format!("one of {known:?}") };
                return Err(call.bad("parameters", expected, format!("`{name}`")));
            };
            if call.node.params[..i].iter().any(|(n, _)| n == name) {
                return Err(call.bad_param(name, "it once".into(), "it twice".into()));
            }
            let (fits, expected) = match rule.kind {
                ParamKind::F32 => (matches!(param, Param::F32(v) if v.is_finite()), "a finite float32 scalar"),
                ParamKind::Int => (matches!(param, Param::UInt(_) | Param::Int(_)), "an integer scalar"),
                ParamKind::UInt => (
                    matches!(param, Param::UInt(_)) || matches!(param, Param::Int(v) if *v >= 0),
                    "an integer scalar of at least 0",
                ),
                ParamKind::Bool => {
                    (matches!(param, Param::Bool(_) | Param::UInt(0 | 1) | Param::Int(0 | 1)), "a bool8 scalar")
                }
                ParamKind::Ints => (matches!(param, Param::Ints(..)), "a static integer tensor"),
                ParamKind::Scalar => {
                    (matches!(param, Param::F32(_) | Param::Int(_) | Param::UInt(_) | Param::Bool(_)), "a scalar")
                }
            };
            if !fits {
                return Err(call.bad_param(name, expected.into(), format!("{param:?}")));
            }
        }
        match self.params.iter().find(|p| p.required && call.node.param(p.name).is_none()) {
            Some(p) => Err(call.bad_param(p.name, "it given".into(), "none".into())),
            None => Ok(()),
        }
    }

    /// Some row of the table must accept every operand, and the tied operands must have one type.
    pub(super) fn check_dtypes(&self, call: &Call<'_>) -> Result<(), Violation> {
        let Some(first) = call.optional_tensor(0) else { return Ok(()) };
        let tied = |mask: u8, i: usize| mask >> i.min(7) & 1 == 1;
        for (i, tensor) in call.inputs.iter().enumerate().filter_map(|(i, t)| Some((i, (*t)?))) {
            if tied(self.same_in, i) && tensor.dtype != first.dtype {
                return Err(call.bad_input(i, format!("{:?} as input 0", first.dtype), format!("{:?}", tensor.dtype)));
            }
        }
        for (i, tensor) in call.outputs.iter().enumerate() {
            if tied(self.same_out, i) && tensor.dtype != first.dtype {
                return Err(call.bad_output(i, format!("{:?} as input 0", first.dtype), format!("{:?}", tensor.dtype)));
            }
        }
        // The row that gets furthest shows best what is wrong.
        let mut worst: Option<(usize, Violation)> = None;
        for row in self.rows {
            match fits(row, call) {
                Ok(()) => return check_encoded(row, call),
                Err((at, v)) if worst.as_ref().is_none_or(|(best, _)| at > *best) => worst = Some((at, v)),
                Err(_) => {}
            }
        }
        worst.map_or(Ok(()), |(_, v)| Err(v))
    }
}

/// Arithmetic on fixed point needs an encoding to know what a quantised value is worth. (Biases are exempt: 32-bit ones
/// often come without one, and `Cast` takes quantised values as they are.)
fn check_encoded(row: &Row, call: &Call<'_>) -> Result<(), Violation> {
    let bare = |t: &Tensor| {
        let fixed = matches!(t.dtype, Dtype::SFixed8 | Dtype::UFixed8 | Dtype::SFixed16 | Dtype::UFixed16);
        fixed && t.quant == Quant::None
    };
    if row.class == Class::Moved || call.node.op == "Cast" {
        return Ok(());
    }
    if let Some(i) = call.inputs.iter().position(|t| t.is_some_and(bare)) {
        return Err(call.bad_input(i, "an encoding for its fixed point".into(), "none".into()));
    }
    match call.outputs.iter().position(|t| bare(t)) {
        Some(i) => Err(call.bad_output(i, "an encoding for its fixed point".into(), "none".into())),
        None => Ok(()),
    }
}

/// Checks a row; the error counts the operands that fitted before the one that did not.
fn fits(row: &Row, call: &Call<'_>) -> Result<(), (usize, Violation)> {
    let set = |sets: &[Set], i: usize| sets.get(i).or(sets.last()).copied().unwrap_or(0);
    let has = |set: Set, dtype: Dtype| Dtype::ALL.iter().zip(0..).any(|(d, bit)| *d == dtype && set >> bit & 1 == 1);
    for (i, tensor) in call.inputs.iter().enumerate().filter_map(|(i, t)| Some((i, (*t)?))) {
        let want = set(row.inputs, i);
        if !has(want, tensor.dtype) {
            return Err((i, call.bad_input(i, names(want), format!("{:?}", tensor.dtype))));
        }
    }
    for (i, tensor) in call.outputs.iter().enumerate() {
        let want = set(row.outputs, i);
        if !has(want, tensor.dtype) {
            return Err((call.inputs.len() + i, call.bad_output(i, names(want), format!("{:?}", tensor.dtype))));
        }
    }
    Ok(())
}

/// The types of a set, for a message.
fn names(set: Set) -> String {
    let all: Vec<String> =
        Dtype::ALL.iter().zip(0..).filter(|(_, bit)| set >> bit & 1 == 1).map(|(d, _)| format!("{d:?}")).collect();
    all.join(" or ")
}
