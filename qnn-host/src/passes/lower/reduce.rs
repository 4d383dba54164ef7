//! Softmax, reductions, running sums and ranking.

use super::Call;
use crate::graph::ExecError;
use crate::graph::op::Op;
use crate::graph::scalar::ReduceOp;
use crate::storage::Storage;

/// Lowers a node of this family; false if it is of another.
pub(super) fn lower(call: &mut Call<'_, '_>) -> Result<bool, ExecError> {
    match call.op() {
        "Softmax" => softmax(call, false)?,
        "LogSoftmax" => softmax(call, true)?,
        "ReduceMean" => reduce(call, ReduceOp::Mean)?,
        "ReduceSum" => reduce(call, ReduceOp::Sum)?,
        "ReduceMax" => reduce(call, ReduceOp::Max)?,
        "ReduceMin" => reduce(call, ReduceOp::Min)?,
        "ReduceProd" => reduce(call, ReduceOp::Prod)?,
        "CumulativeSum" => cumulative_sum(call)?,
        "Argmax" => argmax(call)?,
        "TopK" => top_k(call)?,
        _ => return Ok(false),
    }
    Ok(true)
}

fn softmax(call: &mut Call<'_, '_>, log: bool) -> Result<(), ExecError> {
    let x = call.real(0)?;
    let shape = call.shape(x);
    let axis = call.axis_param("axis", -1, shape.len())?;
    let beta = call.float_param("beta", 1.0)?;
    let output = call.output_shaped(0, &shape)?;
    call.emit_as(Op::Softmax { axis, beta, log }, &[x], output, Storage::F32);
    Ok(())
}

fn reduce(call: &mut Call<'_, '_>, op: ReduceOp) -> Result<(), ExecError> {
    let x = call.input(0)?;
    let mut shape = call.shape(x);
    let axes = call.axes_param(shape.len())?.unwrap_or_else(|| (0..shape.len()).collect());
    for &axis in &axes {
        if shape[axis] == 0 {
            return Err(call.bad("input 0", "something to reduce", format!("{shape:?}")));
        }
        shape[axis] = 1;
    }
    let output = call.output_shaped(0, &shape)?;
    let kind = call.kind(x);
    call.emit_as(Op::Reduce { op, axes }, &[x], output, kind);
    Ok(())
}

fn cumulative_sum(call: &mut Call<'_, '_>) -> Result<(), ExecError> {
    let x = call.input(0)?;
    let shape = call.shape(x);
    let axis = call.axis_param("axis", 0, shape.len())?;
    let (exclusive, reverse) = (call.bool_param("exclusive")?, call.bool_param("reverse")?);
    let output = call.output_shaped(0, &shape)?;
    let kind = call.kind(x);
    call.emit_as(Op::CumulativeSum { axis, exclusive, reverse }, &[x], output, kind);
    Ok(())
}

fn argmax(call: &mut Call<'_, '_>) -> Result<(), ExecError> {
    let x = call.input(0)?;
    let mut shape = call.shape(x);
    let axis = call.axis_param("axis", 0, shape.len())?;
    if shape[axis] == 0 {
        return Err(call.bad("input 0", "something to compare", format!("{shape:?}")));
    }
    shape[axis] = 1;
    let output = call.output_shaped(0, &shape)?;
    call.emit_as(Op::Argmax { axis }, &[x], output, Storage::I32);
    Ok(())
}

fn top_k(call: &mut Call<'_, '_>) -> Result<(), ExecError> {
    let x = call.input(0)?;
    let kind = call.kind(x);
    let mut shape = call.shape(x);
    let Some(last) = shape.last_mut() else { return Err(call.bad("input 0", "at least 1 axis", "none")) };
    let k = usize::try_from(call.int_param("k")?.unwrap_or(0)).unwrap_or(0);
    if k == 0 || k > *last {
        return Err(call.bad("parameter `k`", format!("1 to {last}"), k));
    }
    *last = k;
    let largest = call.int_param("largest")?.unwrap_or(1) != 0;
    let values = call.output_shaped(0, &shape)?;
    call.emit_as(Op::TopK { k, largest, indices: false }, &[x], values, kind);
    if call.node.outputs.len() > 1 {
        let indices = call.output_shaped(1, &shape)?;
        call.emit_as(Op::TopK { k, largest, indices: true }, &[x], indices, Storage::I32);
    }
    Ok(())
}
