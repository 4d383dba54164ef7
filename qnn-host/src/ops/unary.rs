//! `ElementWiseUnary`, `ElementWiseNeuron` and their members under names of their own: operations on single elements.

use super::prelude::*;
use super::spec::LowerFn;
use crate::graph::scalar::UnaryOp;

/// `ElementWiseUnary`'s operation numbers.
const NUMBERED: [UnaryOp; 16] = [
    UnaryOp::Abs,
    UnaryOp::Asin,
    UnaryOp::Atan,
    UnaryOp::Ceil,
    UnaryOp::Cos,
    UnaryOp::Exp,
    UnaryOp::Floor,
    UnaryOp::Log,
    UnaryOp::Neg,
    UnaryOp::Not,
    UnaryOp::Reciprocal,
    UnaryOp::Round,
    UnaryOp::Rsqrt,
    UnaryOp::Sign,
    UnaryOp::Sin,
    UnaryOp::Sqrt,
];
/// How many operations `ElementWiseNeuron` has.
const N_NEURONS: usize = 9;
const RELU: UnaryOp = UnaryOp::Clamp(0.0, f32::INFINITY);

/// Floats, and fixed point of either sign.
const fn float(name: &'static str, params: &'static [ParamSpec], lower: LowerFn) -> OpSpec {
    OpSpec {
        name,
        inputs: (1, 1),
        outputs: (1, 1),
        params,
        same_in: 0b1,
        same_out: 0b1,
        rows: &[
            row!(Float: [FLOAT] => [FLOAT]),
            row!(Fixed: [UFIX16 SFIX16] => [UFIX16 SFIX16]),
            row!(Fixed: [UFIX8 SFIX8] => [UFIX8 SFIX8]),
        ],
        shapes: common::same,
        lower,
    }
}

/// As [`float`], and integers.
const fn number(name: &'static str, lower: LowerFn) -> OpSpec {
    OpSpec {
        rows: &[
            row!(Float: [FLOAT] => [FLOAT]),
            row!(Fixed: [UFIX16 SFIX16] => [UFIX16 SFIX16]),
            row!(Fixed: [UFIX8 SFIX8] => [UFIX8 SFIX8]),
            row!(Plain: [INT32] => [INT32]),
        ],
        ..float(name, &[], lower)
    }
}

/// As the HTP documents `Gelu` and `ElementWiseRsqrt`.
const UNSIGNED_16: &[Row] =
    &[row!(Float: [FLOAT] => [FLOAT]), row!(Fixed: [UFIX16] => [UFIX16]), row!(Fixed: [UFIX8 SFIX8] => [UFIX8 SFIX8])];

pub(super) const OPS: &[OpSpec] = &[
    OpSpec {
        rows: &[
            row!(Float: [FLOAT] => [FLOAT]),
            row!(Fixed: [UFIX16] => [UFIX16]),
            row!(Fixed: [UFIX8 SFIX8] => [UFIX8 SFIX8]),
            row!(Plain: [BOOL8] => [BOOL8]),
        ],
        shapes: |call| common::operation(call, NUMBERED.len()).and_then(|_| common::same(call)),
        ..float("ElementWiseUnary", &[req("operation", UInt)], |l| {
            emit(NUMBERED[common::operation(l, NUMBERED.len())?], l)
        })
    },
    OpSpec {
        params: &[
            req("operation", UInt),
            opt("alpha", Float32),
            opt("beta", Float32),
            opt("min_value", Float32),
            opt("max_value", Float32),
            opt("threshold", Float32),
        ],
        shapes: |call| neuron(call).and_then(|_| common::same(call)),
        ..number("ElementWiseNeuron", |l| emit(neuron(l)?, l))
    },
    float("Sigmoid", &[], |l| emit(UnaryOp::Sigmoid, l)),
    OpSpec { rows: UNSIGNED_16, ..float("Gelu", &[], |l| emit(UnaryOp::Gelu, l)) },
    float("Relu", &[], |l| emit(RELU, l)),
    float("Tanh", &[], |l| emit(UnaryOp::Tanh, l)),
    OpSpec { rows: UNSIGNED_16, ..float("ElementWiseRsqrt", &[], |l| emit(UnaryOp::Rsqrt, l)) },
    float("ElementWiseAsin", &[], |l| emit(UnaryOp::Asin, l)),
    float("ElementWiseAtan", &[], |l| emit(UnaryOp::Atan, l)),
    float("ElementWiseCos", &[], |l| emit(UnaryOp::Cos, l)),
    float("ElementWiseExp", &[], |l| emit(UnaryOp::Exp, l)),
    float("ElementWiseLog", &[], |l| emit(UnaryOp::Log, l)),
    float("ElementWiseSin", &[], |l| emit(UnaryOp::Sin, l)),
    float("ElementWiseSquareRoot", &[], |l| emit(UnaryOp::Sqrt, l)),
    float("ElementWiseCeil", &[], |l| emit(UnaryOp::Ceil, l)),
    float("ElementWiseFloor", &[], |l| emit(UnaryOp::Floor, l)),
    float("ElementWiseRound", &[], |l| emit(UnaryOp::Round, l)),
    number("ElementWiseAbs", |l| emit(UnaryOp::Abs, l)),
    number("ElementWiseNeg", |l| emit(UnaryOp::Neg, l)),
    number("ElementWiseSign", |l| emit(UnaryOp::Sign, l)),
    OpSpec { rows: &[row!(Plain: [BOOL8] => [BOOL8])], ..float("ElementWiseNot", &[], |l| emit(UnaryOp::Not, l)) },
    float("ElementWiseSoftplus", &[opt("beta", Float32), opt("threshold", Float32)], |l| emit(softplus(l), l)),
    float("Elu", &[opt("alpha", Float32)], |l| emit(UnaryOp::Elu(l.float("alpha", 1.0)), l)),
    float("HardSwish", &[], |l| emit(UnaryOp::HardSwish, l)),
    float("Relu1", &[], |l| emit(UnaryOp::Clamp(-1.0, 1.0), l)),
    float("Relu6", &[], |l| emit(UnaryOp::Clamp(0.0, 6.0), l)),
    OpSpec {
        shapes: |call| clamp(call).and_then(|_| common::same(call)),
        ..float("ReluMinMax", &[opt("min_value", Float32), opt("max_value", Float32)], |l| emit(clamp(l)?, l))
    },
];

#[cfg(test)]
pub(super) fn samples() -> Vec<Sample> {
    vec![
        sample("ReluMinMax", &[("max_value", Param::F32(2.0))], &[(F, &[4])], &[(F, &[4])]),
        sample("Sigmoid", &[], &[(F, &[3])], &[(F, &[3])]),
        sample("ElementWiseNeuron", &[("operation", Param::UInt(7))], &[(F, &[4])], &[(F, &[4])]),
        sample("ElementWiseUnary", &[("operation", Param::UInt(15))], &[(F, &[4])], &[(F, &[4])]),
    ]
}

/// By `ElementWiseNeuron`'s operation numbers.
fn neuron(call: &Call<'_>) -> Result<UnaryOp, Violation> {
    Ok(match common::operation(call, N_NEURONS)? {
        0 => UnaryOp::Elu(call.float("alpha", 1.0)),
        1 => UnaryOp::Gelu,
        2 => UnaryOp::HardSigmoid(call.float("alpha", 0.2), call.float("beta", 0.5)),
        3 => UnaryOp::HardSwish,
        4 => RELU,
        5 => clamp(call)?,
        6 => UnaryOp::Sigmoid,
        7 => softplus(call),
        _ => UnaryOp::Tanh,
    })
}

fn clamp(call: &Call<'_>) -> Result<UnaryOp, Violation> {
    let (low, high) = (call.float("min_value", f32::NEG_INFINITY), call.float("max_value", f32::INFINITY));
    if low > high {
        return Err(call.bad("parameters `min_value`, `max_value`", "an interval".into(), format!("{low}..{high}")));
    }
    Ok(UnaryOp::Clamp(low, high))
}

fn softplus(call: &Call<'_>) -> UnaryOp {
    UnaryOp::Softplus { beta: call.float("beta", 1.0), threshold: call.float("threshold", -1.0) }
}

fn emit(op: UnaryOp, l: &mut Lowering<'_, '_>) -> Result<(), Violation> {
    let mut x = l.input(0)?;
    if !op.takes_ints() {
        x = l.as_real(x);
    }
    let storage = l.storage(x);
    l.emit_as(Op::Unary(op), &[x], l.output(0), storage);
    Ok(())
}

pub(super) fn step(b: &StepBuilder<'_>, node: &Node, op: UnaryOp) -> Result<Box<dyn Step>, ExecError> {
    let id = b.input(node, 0)?;
    let x = b.src(id);
    if b.is_real(id) { b.each(node, RealUnary { op, x }) } else { b.each(node, IntUnary { op, x }) }
}

/// `f32 -> f32`.
struct RealUnary {
    op: UnaryOp,
    x: Src,
}

impl Fill for RealUnary {
    type Elem = f32;

    fn fill(&self, cx: &RunContext<'_>, first: usize, out: &mut [f32]) -> Result<(), Fault> {
        let x = &cx.read::<f32>(&self.x)[first..first + out.len()];
        match self.op {
            UnaryOp::Sigmoid => crate::kernels::elementwise::sigmoid(cx.isa, x, out),
            op => out.iter_mut().zip(x).for_each(|(out, &x)| *out = op.real(x)),
        }
        Ok(())
    }
}

/// `i32 -> i32`.
struct IntUnary {
    op: UnaryOp,
    x: Src,
}

impl Fill for IntUnary {
    type Elem = i32;

    fn fill(&self, cx: &RunContext<'_>, first: usize, out: &mut [i32]) -> Result<(), Fault> {
        let x = &cx.read::<i32>(&self.x)[first..first + out.len()];
        out.iter_mut().zip(x).for_each(|(out, &x)| *out = self.op.int(x));
        Ok(())
    }
}
