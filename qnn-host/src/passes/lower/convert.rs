//! Conversions between number types. Between nodes all numbers are `f32`, so most of them are views or roundings.

use super::{Call, code_range};
use crate::exec::ExecError;
use crate::ir::{Dtype, Quant};
use crate::passes::net::{Grid, Kind, Value};
use crate::passes::op::{CastOp, Op};

/// Lowers a node of this family; false if it is of another.
pub(super) fn lower(call: &mut Call<'_, '_>) -> Result<bool, ExecError> {
    match call.op() {
        // The value stays, the encoding changes.
        "Convert" | "Quantize" | "Dequantize" => {
            let (input, output) = (call.input(0)?, call.output(0)?);
            call.view(input, output)?;
        }
        "Cast" => cast(call)?,
        _ => return Ok(false),
    }
    Ok(true)
}

fn cast(call: &mut Call<'_, '_>) -> Result<(), ExecError> {
    let (input, output) = (call.input(0)?, call.output(0)?);
    let shape = call.shape(input);
    call.output_shaped(0, &shape)?;
    let (from, to) = (grid_of(call.net().value(input)), grid_of(call.net().value(output)));
    let boolean = call.net().value(output).dtype == Dtype::Bool8;
    let same_kind = call.kind(input) == call.kind(output);
    if from.is_none() && to.is_none() && !boolean && same_kind {
        return call.view(input, output);
    }
    call.emit(Op::Cast(CastOp { from, to, boolean }), &[input], output);
    Ok(())
}

fn grid_of(value: &Value) -> Option<Grid> {
    if value.dtype.is_float() || value.kind() == Kind::Int {
        return None;
    }
    let (scale, offset) = match value.quant {
        Quant::PerTensor { scale, offset } => (scale, offset),
        _ => (1.0, 0),
    };
    let (min, max) = code_range(value.dtype);
    Some(Grid { scale, offset, min, max })
}
