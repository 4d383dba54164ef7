//! Element-wise operations under all their names.

use super::Call;
use crate::graph::ExecError;
use crate::graph::op::Op;
use crate::graph::scalar::BinaryOp;
use crate::graph::scalar::UnaryOp;
use crate::graph::typed::ValueId;
use crate::graph::walk::broadcast_shape;
use crate::storage::Storage;

/// `ElementWiseBinary`'s operation numbers.
const BINARY: [BinaryOp; 20] = [
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

/// `ElementWiseUnary`'s operation numbers.
const UNARY: [UnaryOp; 16] = [
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

/// Lowers a node of this family; false if it is of another.
pub(super) fn lower(call: &mut Call<'_, '_>) -> Result<bool, ExecError> {
    match call.op() {
        "ElementWiseBinary" => {
            let op = operation(call, &BINARY)?;
            binary(call, op)?;
        }
        "ElementWiseUnary" => {
            let op = operation(call, &UNARY)?;
            unary(call, op)?;
        }
        "ElementWiseNeuron" => {
            let op = neuron(call)?;
            unary(call, op)?;
        }
        "ElementWiseSelect" => select(call)?,
        name => {
            if let Some(op) = binary_named(name) {
                binary(call, op)?;
            } else if let Some(op) = unary_named(call, name)? {
                unary(call, op)?;
            } else {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

fn operation<T: Copy>(call: &Call<'_, '_>, all: &[T]) -> Result<T, ExecError> {
    let number = call.int_param("operation")?;
    let known = number.and_then(|n| usize::try_from(n).ok()).and_then(|n| all.get(n).copied());
    known.ok_or_else(|| {
        let found = number.map_or_else(|| "none".to_owned(), |n| n.to_string());
        call.bad("parameter `operation`", format!("a number below {}", all.len()), found)
    })
}

fn binary_named(name: &str) -> Option<BinaryOp> {
    Some(match name {
        "ElementWiseAdd" => BinaryOp::Add,
        "ElementWiseAnd" => BinaryOp::And,
        "ElementWiseDivide" => BinaryOp::Divide,
        "ElementWiseEqual" => BinaryOp::Equal,
        "ElementWiseFloorDiv" => BinaryOp::FloorDiv,
        "ElementWiseFmod" => BinaryOp::Fmod,
        "ElementWiseGreater" => BinaryOp::Greater,
        "ElementWiseGreaterEqual" => BinaryOp::GreaterEqual,
        "ElementWiseLess" => BinaryOp::Less,
        "ElementWiseLessEqual" => BinaryOp::LessEqual,
        "ElementWiseMaximum" => BinaryOp::Maximum,
        "ElementWiseMinimum" => BinaryOp::Minimum,
        "ElementWiseMod" => BinaryOp::Mod,
        "ElementWiseMultiply" => BinaryOp::Multiply,
        "ElementWiseNotEqual" => BinaryOp::NotEqual,
        "ElementWiseOr" => BinaryOp::Or,
        "ElementWisePower" => BinaryOp::Power,
        "ElementWiseSquaredDifference" => BinaryOp::SquaredDifference,
        "ElementWiseSubtract" => BinaryOp::Subtract,
        "ElementWiseXor" => BinaryOp::Xor,
        _ => return None,
    })
}

fn unary_named(call: &Call<'_, '_>, name: &str) -> Result<Option<UnaryOp>, ExecError> {
    Ok(Some(match name {
        "ElementWiseAbs" => UnaryOp::Abs,
        "ElementWiseAsin" => UnaryOp::Asin,
        "ElementWiseAtan" => UnaryOp::Atan,
        "ElementWiseCeil" => UnaryOp::Ceil,
        "ElementWiseCos" => UnaryOp::Cos,
        "ElementWiseExp" => UnaryOp::Exp,
        "ElementWiseFloor" => UnaryOp::Floor,
        "ElementWiseLog" => UnaryOp::Log,
        "ElementWiseNeg" => UnaryOp::Neg,
        "ElementWiseNot" => UnaryOp::Not,
        "ElementWiseRound" => UnaryOp::Round,
        "ElementWiseRsqrt" => UnaryOp::Rsqrt,
        "ElementWiseSign" => UnaryOp::Sign,
        "ElementWiseSin" => UnaryOp::Sin,
        "ElementWiseSquareRoot" => UnaryOp::Sqrt,
        "ElementWiseSoftplus" => softplus(call)?,
        "Elu" => UnaryOp::Elu(call.float_param("alpha", 1.0)?),
        "Gelu" => UnaryOp::Gelu,
        "HardSwish" => UnaryOp::HardSwish,
        "Relu" => UnaryOp::Clamp(0.0, f32::INFINITY),
        "Relu1" => UnaryOp::Clamp(-1.0, 1.0),
        "Relu6" => UnaryOp::Clamp(0.0, 6.0),
        "ReluMinMax" => clamp(call)?,
        "Sigmoid" => UnaryOp::Sigmoid,
        "Tanh" => UnaryOp::Tanh,
        _ => return Ok(None),
    }))
}

fn neuron(call: &Call<'_, '_>) -> Result<UnaryOp, ExecError> {
    Ok(match operation(call, &[0, 1, 2, 3, 4, 5, 6, 7, 8])? {
        0 => UnaryOp::Elu(call.float_param("alpha", 1.0)?),
        1 => UnaryOp::Gelu,
        2 => UnaryOp::HardSigmoid(call.float_param("alpha", 0.2)?, call.float_param("beta", 0.5)?),
        3 => UnaryOp::HardSwish,
        4 => UnaryOp::Clamp(0.0, f32::INFINITY),
        5 => clamp(call)?,
        6 => UnaryOp::Sigmoid,
        7 => softplus(call)?,
        _ => UnaryOp::Tanh,
    })
}

fn clamp(call: &Call<'_, '_>) -> Result<UnaryOp, ExecError> {
    let (low, high) =
        (call.float_param("min_value", f32::NEG_INFINITY)?, call.float_param("max_value", f32::INFINITY)?);
    if low > high || low.is_nan() || high.is_nan() {
        return Err(call.bad("parameters `min_value`, `max_value`", "an interval", format!("{low}..{high}")));
    }
    Ok(UnaryOp::Clamp(low, high))
}

fn softplus(call: &Call<'_, '_>) -> Result<UnaryOp, ExecError> {
    Ok(UnaryOp::Softplus { beta: call.float_param("beta", 1.0)?, threshold: call.float_param("threshold", -1.0)? })
}

fn unary(call: &mut Call<'_, '_>, op: UnaryOp) -> Result<(), ExecError> {
    let mut x = call.input(0)?;
    if !op.takes_ints() {
        x = call.as_real(x);
    }
    let kind = call.kind(x);
    let shape = call.shape(x);
    let output = call.output_shaped(0, &shape)?;
    call.emit_as(Op::Unary(op), &[x], output, kind);
    Ok(())
}

fn binary(call: &mut Call<'_, '_>, op: BinaryOp) -> Result<(), ExecError> {
    let (mut a, mut b) = (call.input(0)?, call.input(1)?);
    if op.is_logic() {
        (a, b) = (call.as_storage(a, Storage::I32), call.as_storage(b, Storage::I32));
    } else if call.kind(a) != call.kind(b) {
        (a, b) = (call.as_real(a), call.as_real(b));
    }
    let kind = if op.is_comparison() { Storage::I32 } else { call.kind(a) };
    let output = broadcast_output(call, &[a, b])?;
    call.emit_as(Op::Binary(op), &[a, b], output, kind);
    Ok(())
}

fn select(call: &mut Call<'_, '_>) -> Result<(), ExecError> {
    let condition = call.input(0)?;
    let condition = call.as_storage(condition, Storage::I32);
    let kind = call.kind(call.output(0)?);
    let (a, b) = (call.input(1)?, call.input(2)?);
    let (a, b) = (call.as_storage(a, kind), call.as_storage(b, kind));
    let output = broadcast_output(call, &[condition, a, b])?;
    call.emit(Op::Select, &[condition, a, b], output);
    Ok(())
}

/// Output 0, whose shape must be what the operands broadcast to.
fn broadcast_output(call: &Call<'_, '_>, operands: &[ValueId]) -> Result<ValueId, ExecError> {
    let mut shape = Vec::new();
    for &id in operands {
        let other = call.shape(id);
        shape = broadcast_shape(&shape, &other).ok_or_else(|| {
            call.bad("operands", format!("shapes that broadcast with {shape:?}"), format!("{other:?}"))
        })?;
    }
    call.output_shaped(0, &shape)
}
