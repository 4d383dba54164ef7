//! Conversions between number types. Between nodes all numbers are `f32`, so most of them are views or roundings.

use super::Call;
use crate::graph::ExecError;
use crate::graph::op::{CastOp, Op};
use crate::ir::Dtype;

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
    let (from, to) = (call.net().value(input).grid(), call.net().value(output).grid());
    let boolean = call.net().value(output).dtype == Dtype::Bool8;
    let same_kind = call.kind(input) == call.kind(output);
    if from.is_none() && to.is_none() && !boolean && same_kind {
        return call.view(input, output);
    }
    call.emit(Op::Cast(CastOp { from, to, boolean }), &[input], output);
    Ok(())
}
