//! What an op's entry in the table says, and the checks that need no shapes.

use crate::ir::{Dtype, Param, Quant, Tensor};

use super::Violation;
use super::call::Call;

/// A set of element types, one bit each in the order of [`Dtype::ALL`].
pub type Set = u32;

/// The kinds of arithmetic that a row of element types asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// float16 and float32.
    Float,
    /// Fixed point codes with an encoding.
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

/// A parameter an op knows.
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
pub(super) type ShapeFn = fn(&Call<'_>) -> Result<Vec<Vec<u32>>, Violation>;

/// The rules of an op.
pub struct OpSpec {
    /// QNN's op type string.
    pub name: &'static str,
    /// Fewest and most inputs.
    pub inputs: (usize, usize),
    /// Fewest and most outputs.
    pub outputs: (usize, usize),
    /// Parameters it knows.
    pub params: &'static [ParamSpec],
    /// Inputs that must have the element type of input 0, a bit each (bit 7 stands for all from 7 on).
    pub same_in: u8,
    /// Outputs that must have the element type of input 0, a bit each.
    pub same_out: u8,
    /// Accepted element types.
    pub rows: &'static [Row],
    pub(super) shapes: ShapeFn,
}

/// Known, required, and of the right form.
pub(super) fn check_params(spec: &OpSpec, call: &Call<'_>) -> Result<(), Violation> {
    for (i, (name, param)) in call.node.params.iter().enumerate() {
        let Some(rule) = spec.params.iter().find(|p| p.name == name) else {
            let known: Vec<_> = spec.params.iter().map(|p| p.name).collect();
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
            ParamKind::Scalar => (!matches!(param, Param::Ints(..)), "a scalar"),
        };
        if !fits {
            return Err(call.bad_param(name, expected.into(), format!("{param:?}")));
        }
    }
    match spec.params.iter().find(|p| p.required && call.node.param(p.name).is_none()) {
        Some(p) => Err(call.bad_param(p.name, "it given".into(), "none".into())),
        None => Ok(()),
    }
}

/// Some row of the table must accept every operand, and the tied operands must have one type.
pub(super) fn check_dtypes(spec: &OpSpec, call: &Call<'_>) -> Result<(), Violation> {
    let Some(first) = call.optional(0) else { return Ok(()) };
    let tied = |mask: u8, i: usize| mask >> i.min(7) & 1 == 1;
    for (i, tensor) in call.inputs.iter().enumerate().filter_map(|(i, t)| Some((i, (*t)?))) {
        if tied(spec.same_in, i) && tensor.dtype != first.dtype {
            return Err(call.bad_input(i, format!("{:?} as input 0", first.dtype), format!("{:?}", tensor.dtype)));
        }
    }
    for (i, tensor) in call.outputs.iter().enumerate() {
        if tied(spec.same_out, i) && tensor.dtype != first.dtype {
            return Err(call.bad_output(i, format!("{:?} as input 0", first.dtype), format!("{:?}", tensor.dtype)));
        }
    }
    // The row that gets furthest tells best what is wrong.
    let mut worst: Option<(usize, Violation)> = None;
    for row in spec.rows {
        match fits(row, call) {
            Ok(()) => return check_encoded(row, call),
            Err((at, v)) if worst.as_ref().is_none_or(|(best, _)| at > *best) => worst = Some((at, v)),
            Err(_) => {}
        }
    }
    worst.map_or(Ok(()), |(_, v)| Err(v))
}

/// Arithmetic on fixed point needs an encoding to say what a code is worth. (Biases are exempt: 32-bit codes often come
/// without one, and `Cast` takes codes as they are.)
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

/// The types of a set, as a reader says them.
fn names(set: Set) -> String {
    let all: Vec<String> =
        Dtype::ALL.iter().zip(0..).filter(|(_, bit)| set >> bit & 1 == 1).map(|(d, _)| format!("{d:?}")).collect();
    all.join(" or ")
}

/// The encoding must cover the tensor; the answer is (expected, found).
pub(super) fn check_quant(tensor: &Tensor) -> Result<(), (String, String)> {
    let finite = |scales: &[f32]| match scales.iter().find(|s| !s.is_finite()) {
        Some(s) => Err(("finite scales".to_owned(), s.to_string())),
        None => Ok(()),
    };
    let counts = |what: &str, want: usize, scales: usize, offsets: usize| {
        if scales != want || (offsets != 0 && offsets != want) {
            return Err((format!("{want} scales, one for each {what}"), format!("{scales} scales, {offsets} offsets")));
        }
        Ok(())
    };
    match &tensor.quant {
        Quant::None => Ok(()),
        Quant::PerTensor { scale, .. } => finite(&[*scale]),
        Quant::PerAxis { axis, bits, scales, offsets } => {
            let Some(&extent) = tensor.dims.get(*axis as usize) else {
                return Err((format!("an encoding axis below rank {}", tensor.dims.len()), axis.to_string()));
            };
            if *bits as usize > tensor.dtype.size_bytes() * 8 {
                return Err((format!("at most {} bits", tensor.dtype.size_bytes() * 8), bits.to_string()));
            }
            counts("index of the axis", extent as usize, scales.len(), offsets.len())?;
            finite(scales)
        }
        Quant::Block { block_dims, scales, offsets } => {
            let fits = block_dims.len() == tensor.dims.len()
                && block_dims.iter().zip(&tensor.dims).all(|(&b, &d)| b != 0 && d % b == 0);
            if !fits {
                return Err((format!("blocks that divide {:?}", tensor.dims), format!("{block_dims:?}")));
            }
            let blocks = block_dims.iter().zip(&tensor.dims).map(|(&b, &d)| (d / b) as usize).product();
            counts("block", blocks, scales.len(), offsets.len())
        }
    }
}
