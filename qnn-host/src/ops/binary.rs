//! `ElementWiseBinary` under all its names: operations on pairs of elements, broadcast.

use super::common::{larger, smaller};
use super::prelude::*;
use super::spec::LowerFn;
use crate::graph::scalar::BinaryOp;
use crate::graph::walk::{Walk, broadcast_shape};
use crate::step::Lane32;

/// `ElementWiseBinary`'s operation numbers.
const NUMBERED: [BinaryOp; 20] = [
    BinaryOp::Add,
    BinaryOp::And,
    BinaryOp::Divide,
    BinaryOp::Equal,
    BinaryOp::FloorDiv,
    BinaryOp::Fmod,
    BinaryOp::Greater,
    BinaryOp::GreaterEqual,
    BinaryOp::Less,
    BinaryOp::LessEqual,
    BinaryOp::Maximum,
    BinaryOp::Minimum,
    BinaryOp::Mod,
    BinaryOp::Multiply,
    BinaryOp::NotEqual,
    BinaryOp::Or,
    BinaryOp::Power,
    BinaryOp::SquaredDifference,
    BinaryOp::Subtract,
    BinaryOp::Xor,
];

/// Numbers to numbers of the same type.
const fn arithmetic(name: &'static str, lower: LowerFn) -> OpSpec {
    OpSpec {
        name,
        inputs: (2, 2),
        outputs: (1, 1),
        params: &[],
        same_in: 0b11,
        same_out: 0b1,
        rows: &[
            row!(Float: [FLOAT] [FLOAT] => [FLOAT]),
            row!(Fixed: [UFIX16 SFIX16] [UFIX16 SFIX16] => [UFIX16 SFIX16]),
            row!(Fixed: [UFIX8 SFIX8] [UFIX8 SFIX8] => [UFIX8 SFIX8]),
            row!(Plain: [UINT32 INT32] [UINT32 INT32] => [UINT32 INT32]),
        ],
        shapes: common::broadcast,
        lower,
    }
}

/// Numbers to truth values.
const fn comparison(name: &'static str, lower: LowerFn) -> OpSpec {
    OpSpec {
        same_out: 0,
        rows: &[
            row!(Float: [FLOAT] [FLOAT] => [BOOL8]),
            row!(Fixed: [UFIX16 SFIX16] [UFIX16 SFIX16] => [BOOL8 UFIX8 SFIX8]),
            row!(Fixed: [UFIX8 SFIX8] [UFIX8 SFIX8] => [BOOL8 UFIX8 SFIX8]),
            row!(Plain: [BOOL8 UINT32 INT32] [BOOL8 UINT32 INT32] => [BOOL8]),
        ],
        ..arithmetic(name, lower)
    }
}

/// Truth values to truth values.
const fn logic(name: &'static str, lower: LowerFn) -> OpSpec {
    OpSpec { rows: &[row!(Plain: [BOOL8] [BOOL8] => [BOOL8])], ..arithmetic(name, lower) }
}

/// As the HTP documents `ElementWiseSubtract` and `ElementWiseDivide`.
const UNSIGNED_16: &[Row] = &[
    row!(Float: [FLOAT] [FLOAT] => [FLOAT]),
    row!(Fixed: [UFIX16] [UFIX16] => [UFIX16]),
    row!(Fixed: [UFIX8 SFIX8] [UFIX8 SFIX8] => [UFIX8 SFIX8]),
    row!(Plain: [INT32] [INT32] => [INT32]),
];

pub(super) const OPS: &[OpSpec] = &[
    OpSpec {
        name: "ElementWiseBinary",
        params: &[req("operation", UInt)],
        same_in: 0b1,
        same_out: 0,
        rows: &[
            row!(Float: [FLOAT] [FLOAT] => [BOOL8 FLOAT]),
            row!(Fixed: [UFIX16 SFIX16] [UFIX8 SFIX8 UFIX16 SFIX16 INT32] => [UFIX8 SFIX8 BOOL8 UFIX16 SFIX16]),
            row!(Fixed: [UFIX8 SFIX8] [UFIX8 SFIX8 UFIX16 SFIX16 INT32] => [UFIX8 SFIX8 BOOL8]),
            row!(Plain: [BOOL8 INDEX] [BOOL8 INDEX] => [BOOL8 UFIX8 SFIX8 INDEX]),
        ],
        shapes: numbered_shapes,
        ..arithmetic("ElementWiseBinary", |l| emit(NUMBERED[common::operation(l, NUMBERED.len())?], l))
    },
    OpSpec {
        rows: &[
            row!(Float: [FLOAT] [FLOAT] => [FLOAT]),
            row!(Fixed: [UFIX16 SFIX16] [UFIX16 SFIX16] => [UFIX16 SFIX16]),
            row!(Fixed: [UFIX8 SFIX8] [UFIX8 SFIX8] => [UFIX8 SFIX8]),
            row!(Plain: [INT32] [INT32] => [INT32]),
        ],
        ..arithmetic("ElementWiseAdd", |l| emit(BinaryOp::Add, l))
    },
    OpSpec {
        rows: &[
            row!(Float: [FLOAT] [FLOAT] => [FLOAT]),
            row!(Fixed: [UFIX16 SFIX16] [UFIX16 SFIX16] => [UFIX16 SFIX16]),
            row!(Fixed: [UFIX8 SFIX8] [UFIX8 SFIX8] => [UFIX8 SFIX8]),
            row!(Plain: [INDEX] [INDEX] => [INDEX]),
        ],
        ..arithmetic("ElementWiseMultiply", |l| emit(BinaryOp::Multiply, l))
    },
    OpSpec { rows: UNSIGNED_16, ..arithmetic("ElementWiseSubtract", |l| emit(BinaryOp::Subtract, l)) },
    OpSpec { rows: UNSIGNED_16, ..arithmetic("ElementWiseDivide", |l| emit(BinaryOp::Divide, l)) },
    OpSpec {
        same_in: 0b1,
        rows: &[
            row!(Float: [FLOAT] [FLOAT] => [FLOAT]),
            row!(Fixed: [UFIX16] [UFIX8 SFIX8 UFIX16 SFIX16 INT32 F32] => [UFIX16]),
            row!(Fixed: [UFIX8 SFIX8] [UFIX8 SFIX8 UFIX16 SFIX16 INT32 F32] => [UFIX8 SFIX8]),
        ],
        ..arithmetic("ElementWisePower", |l| emit(BinaryOp::Power, l))
    },
    OpSpec {
        rows: &[
            row!(Float: [FLOAT] [FLOAT] => [BOOL8]),
            row!(Fixed: [UFIX16 SFIX16] [UFIX16 SFIX16] => [UFIX8 BOOL8 SFIX8]),
            row!(Fixed: [UFIX8 SFIX8] [UFIX8 SFIX8] => [UFIX8 BOOL8 SFIX8]),
            row!(Plain: [INT32] [INT32] => [UFIX8 SFIX8 BOOL8]),
        ],
        ..comparison("ElementWiseGreater", |l| emit(BinaryOp::Greater, l))
    },
    arithmetic("ElementWiseFloorDiv", |l| emit(BinaryOp::FloorDiv, l)),
    arithmetic("ElementWiseFmod", |l| emit(BinaryOp::Fmod, l)),
    arithmetic("ElementWiseMaximum", |l| emit(BinaryOp::Maximum, l)),
    arithmetic("ElementWiseMinimum", |l| emit(BinaryOp::Minimum, l)),
    arithmetic("ElementWiseMod", |l| emit(BinaryOp::Mod, l)),
    arithmetic("ElementWiseSquaredDifference", |l| emit(BinaryOp::SquaredDifference, l)),
    comparison("ElementWiseEqual", |l| emit(BinaryOp::Equal, l)),
    comparison("ElementWiseGreaterEqual", |l| emit(BinaryOp::GreaterEqual, l)),
    comparison("ElementWiseLess", |l| emit(BinaryOp::Less, l)),
    comparison("ElementWiseLessEqual", |l| emit(BinaryOp::LessEqual, l)),
    comparison("ElementWiseNotEqual", |l| emit(BinaryOp::NotEqual, l)),
    logic("ElementWiseAnd", |l| emit(BinaryOp::And, l)),
    logic("ElementWiseOr", |l| emit(BinaryOp::Or, l)),
    logic("ElementWiseXor", |l| emit(BinaryOp::Xor, l)),
];

#[cfg(test)]
pub(super) fn samples() -> Vec<Sample> {
    let numbered = |n| [("operation", Param::UInt(n))];
    vec![
        sample("ElementWiseAdd", &[], &[(F, &[2, 4, 3, 9]), (F, &[1, 1, 3, 9])], &[(F, &[2, 4, 3, 9])]),
        sample("ElementWiseMultiply", &[], &[(F, &[3]), (F, &[3])], &[(F, &[3])]),
        sample("ElementWiseBinary", &numbered(19), &[(B, &[4]), (B, &[1])], &[(B, &[4])]),
        sample("ElementWiseBinary", &numbered(8), &[(F, &[4]), (F, &[1])], &[(B, &[4])]),
    ]
}

/// Comparisons yield bool8 (8-bit quantised values are documented too), logic takes it, the rest keeps its type.
fn numbered_shapes(call: &Call<'_>) -> Shapes {
    use crate::ir::Dtype::{Bool8, SFixed8, UFixed8};
    let op = NUMBERED[common::operation(call, NUMBERED.len())?];
    let (from, to) = (call.tensor(0)?.dtype, call.outputs[0].dtype);
    let compares = op.is_comparison();
    let fits = if compares { matches!(to, Bool8 | UFixed8 | SFixed8) } else { to == from };
    if !fits {
        let expected = if compares { "Bool8".to_owned() } else { format!("{from:?} as input 0") };
        return Err(call.bad_output(0, expected, format!("{to:?}")));
    }
    if op.is_logic() && from != Bool8 {
        return Err(call.bad_input(0, "Bool8 for a logical operation".into(), format!("{from:?}")));
    }
    common::broadcast(call)
}

fn emit(op: BinaryOp, l: &mut Lowering<'_, '_>) -> Result<(), Violation> {
    let (mut a, mut b) = (l.input(0)?, l.input(1)?);
    if op.is_logic() {
        (a, b) = (l.as_storage(a, Storage::I32), l.as_storage(b, Storage::I32));
    } else if l.storage(a) != l.storage(b) {
        (a, b) = (l.as_real(a), l.as_real(b));
    }
    let storage = if op.is_comparison() { Storage::I32 } else { l.storage(a) };
    l.emit_as(Op::Binary(op), &[a, b], l.output(0), storage);
    Ok(())
}

pub(super) fn step(b: &StepBuilder<'_>, node: &Node, op: BinaryOp) -> Result<Box<dyn Step>, ExecError> {
    let &[x, y] = node.inputs.as_slice() else { return Err(b.broken(node, "needs two inputs")) };
    let to = broadcast_shape(b.shape(x), b.shape(y)).ok_or_else(|| b.broken(node, "does not broadcast"))?;
    let walk = Walk::broadcast(&to, [b.shape(x), b.shape(y)]);
    let pair = Pair { op, a: b.src(x), b: b.src(y), walk };
    match (b.is_real(x), op.is_comparison()) {
        (true, true) => b.each(node, RealComparison(pair)),
        (true, false) => b.each(node, RealBinary(pair)),
        (false, _) => b.each(node, IntBinary(pair)),
    }
}

/// Two operands and how they are walked.
struct Pair {
    op: BinaryOp,
    a: Src,
    b: Src,
    walk: Walk<2>,
}

impl Pair {
    /// `out[i] = f(a[i], b[i])`.
    fn map<A: Lane32, R>(&self, cx: &RunContext<'_>, first: usize, out: &mut [R], f: impl Fn(A, A) -> R) {
        let (a, b) = (cx.read::<A>(&self.a), cx.read::<A>(&self.b));
        self.walk.runs(first, out.len(), |run| {
            let out = &mut out[run.at..run.at + run.len];
            let [i, j] = run.start.map(|s| s as usize);
            match run.step {
                [1, 1] => {
                    let (a, b) = (&a[i..i + run.len], &b[j..j + run.len]);
                    out.iter_mut().zip(a.iter().zip(b)).for_each(|(o, (&a, &b))| *o = f(a, b));
                }
                [1, 0] => {
                    let b = b[j];
                    out.iter_mut().zip(&a[i..i + run.len]).for_each(|(o, &a)| *o = f(a, b));
                }
                [0, 1] => {
                    let a = a[i];
                    out.iter_mut().zip(&b[j..j + run.len]).for_each(|(o, &b)| *o = f(a, b));
                }
                [p, q] => {
                    let (p, q) = (p as usize, q as usize);
                    out.iter_mut().enumerate().for_each(|(n, o)| *o = f(a[i + n * p], b[j + n * q]));
                }
            }
        });
    }

    /// Comparisons of any type.
    fn compare<A: Lane32 + PartialOrd>(&self, cx: &RunContext<'_>, first: usize, out: &mut [i32]) {
        match self.op {
            BinaryOp::Equal => self.map(cx, first, out, |a: A, b| i32::from(a == b)),
            BinaryOp::Greater => self.map(cx, first, out, |a: A, b| i32::from(a > b)),
            BinaryOp::GreaterEqual => self.map(cx, first, out, |a: A, b| i32::from(a >= b)),
            BinaryOp::Less => self.map(cx, first, out, |a: A, b| i32::from(a < b)),
            BinaryOp::LessEqual => self.map(cx, first, out, |a: A, b| i32::from(a <= b)),
            _ => self.map(cx, first, out, |a: A, b| i32::from(a != b)),
        }
    }
}

/// `f32, f32 -> f32`.
struct RealBinary(Pair);

impl Fill for RealBinary {
    type Elem = f32;

    fn fill(&self, cx: &RunContext<'_>, first: usize, out: &mut [f32]) -> Result<(), Fault> {
        let pair = &self.0;
        match pair.op {
            BinaryOp::Add => pair.map(cx, first, out, |a: f32, b| a + b),
            BinaryOp::Subtract => pair.map(cx, first, out, |a: f32, b| a - b),
            BinaryOp::Multiply => pair.map(cx, first, out, |a: f32, b| a * b),
            BinaryOp::Divide => pair.map(cx, first, out, |a: f32, b| a / b),
            BinaryOp::Maximum => pair.map(cx, first, out, larger::<f32>),
            BinaryOp::Minimum => pair.map(cx, first, out, smaller::<f32>),
            BinaryOp::Power => pair.map(cx, first, out, f32::powf),
            BinaryOp::SquaredDifference => pair.map(cx, first, out, |a: f32, b| (a - b) * (a - b)),
            BinaryOp::FloorDiv => pair.map(cx, first, out, |a: f32, b| (a / b).floor()),
            BinaryOp::Fmod => pair.map(cx, first, out, |a: f32, b| a % b),
            BinaryOp::Mod => pair.map(cx, first, out, |a: f32, b| a - (a / b).floor() * b),
            op => unreachable!("{op:?} yields integers; lowering gave it an integer output"),
        }
        Ok(())
    }
}

/// `i32, i32 -> i32`. Sums and products wrap; division by zero gives 0.
struct IntBinary(Pair);

impl Fill for IntBinary {
    type Elem = i32;

    fn fill(&self, cx: &RunContext<'_>, first: usize, out: &mut [i32]) -> Result<(), Fault> {
        let pair = &self.0;
        let guarded = |a: i32, b: i32, f: fn(i32, i32) -> i32| if b == 0 { 0 } else { f(a, b) };
        match pair.op {
            op if op.is_comparison() => pair.compare::<i32>(cx, first, out),
            BinaryOp::Add => pair.map(cx, first, out, i32::wrapping_add),
            BinaryOp::Subtract => pair.map(cx, first, out, i32::wrapping_sub),
            BinaryOp::Multiply => pair.map(cx, first, out, i32::wrapping_mul),
            BinaryOp::Divide => pair.map(cx, first, out, |a, b| guarded(a, b, i32::wrapping_div)),
            BinaryOp::Maximum => pair.map(cx, first, out, |a: i32, b| a.max(b)),
            BinaryOp::Minimum => pair.map(cx, first, out, |a: i32, b| a.min(b)),
            BinaryOp::Power => pair.map(cx, first, out, int_power),
            BinaryOp::SquaredDifference => pair.map(cx, first, out, |a: i32, b| {
                let d = a.wrapping_sub(b);
                d.wrapping_mul(d)
            }),
            BinaryOp::FloorDiv => pair.map(cx, first, out, |a, b| guarded(a, b, floor_div)),
            BinaryOp::Fmod => pair.map(cx, first, out, |a, b| guarded(a, b, i32::wrapping_rem)),
            BinaryOp::Mod => {
                pair.map(cx, first, out, |a, b| guarded(a, b, |a, b| a.wrapping_sub(floor_div(a, b).wrapping_mul(b))))
            }
            BinaryOp::And => pair.map(cx, first, out, |a: i32, b: i32| i32::from(a != 0 && b != 0)),
            BinaryOp::Or => pair.map(cx, first, out, |a: i32, b: i32| i32::from(a != 0 || b != 0)),
            _ => pair.map(cx, first, out, |a: i32, b: i32| i32::from((a != 0) != (b != 0))),
        }
        Ok(())
    }
}

fn floor_div(a: i32, b: i32) -> i32 {
    let quotient = a.wrapping_div(b);
    if a.wrapping_rem(b) != 0 && (a < 0) != (b < 0) { quotient - 1 } else { quotient }
}

fn int_power(base: i32, exponent: i32) -> i32 {
    match u32::try_from(exponent) {
        Ok(exponent) => base.wrapping_pow(exponent),
        Err(_) => match base {
            1 => 1,
            -1 if exponent % 2 == 0 => 1,
            -1 => -1,
            _ => 0,
        },
    }
}

/// `f32, f32 -> i32` for comparisons.
struct RealComparison(Pair);

impl Fill for RealComparison {
    type Elem = i32;

    fn fill(&self, cx: &RunContext<'_>, first: usize, out: &mut [i32]) -> Result<(), Fault> {
        self.0.compare::<f32>(cx, first, out);
        Ok(())
    }
}
