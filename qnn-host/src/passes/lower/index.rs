//! Gathering and scattering by index tensors. Indices are checked at run time: see `exec::ops::gather`.

use super::Call;
use crate::graph::ExecError;
use crate::graph::op::Op;
use crate::graph::scalar::ScatterOp;

/// Lowers a node of this family; false if it is of another.
pub(super) fn lower(call: &mut Call<'_, '_>) -> Result<bool, ExecError> {
    match call.op() {
        "Gather" => gather(call)?,
        "GatherElements" => gather_elements(call)?,
        "GatherNd" => gather_nd(call)?,
        "ScatterNd" => scatter_nd(call)?,
        "ScatterElements" => scatter_elements(call)?,
        _ => return Ok(false),
    }
    Ok(true)
}

fn gather(call: &mut Call<'_, '_>) -> Result<(), ExecError> {
    let (table, index) = (call.input(0)?, call.int(1)?);
    let shape = call.shape(table);
    let axis = call.axis_param("axis", 0, shape.len())?;
    let mut result = shape[..axis].to_vec();
    result.extend(call.shape(index));
    result.extend(&shape[axis + 1..]);
    let output = call.output_shaped(0, &result)?;
    let kind = call.kind(table);
    call.emit_as(Op::Gather { axis }, &[table, index], output, kind);
    Ok(())
}

fn gather_elements(call: &mut Call<'_, '_>) -> Result<(), ExecError> {
    let (table, index) = (call.input(0)?, call.int(1)?);
    let axis = call.axis_param("axis", 0, call.shape(table).len())?;
    check_within(call, table, index, axis, "input 1")?;
    let output = call.output_shaped(0, &call.shape(index))?;
    let kind = call.kind(table);
    call.emit_as(Op::GatherElements { axis }, &[table, index], output, kind);
    Ok(())
}

/// Checks that `part` has the rank of `whole` and no larger extents, `axis` aside.
fn check_within(
    call: &Call<'_, '_>,
    whole: crate::graph::typed::ValueId,
    part: crate::graph::typed::ValueId,
    axis: usize,
    what: &str,
) -> Result<(), ExecError> {
    let (whole, part) = (call.shape(whole), call.shape(part));
    let fits = whole.len() == part.len() && (0..whole.len()).all(|a| a == axis || part[a] <= whole[a]);
    if fits { Ok(()) } else { Err(call.bad(what, format!("within {whole:?} but on axis {axis}"), format!("{part:?}"))) }
}

fn gather_nd(call: &mut Call<'_, '_>) -> Result<(), ExecError> {
    let (table, index) = (call.input(0)?, call.int(1)?);
    let batch_dims = usize::try_from(call.int_param("batch_dims")?.unwrap_or(0)).unwrap_or(usize::MAX);
    let (shape, index_shape) = (call.shape(table), call.shape(index));
    let Some((&depth, places)) = index_shape.split_last() else {
        return Err(call.bad("input 1", "at least 1 axis", "none"));
    };
    let fits = batch_dims <= places.len()
        && batch_dims.checked_add(depth).is_some_and(|n| n <= shape.len())
        && shape[..batch_dims] == places[..batch_dims];
    if !fits {
        let expected = format!("indices into {shape:?} with {batch_dims} batch axes");
        return Err(call.bad("input 1", expected, format!("{index_shape:?}")));
    }
    let mut result = places.to_vec();
    result.extend(&shape[batch_dims + depth..]);
    let output = call.output_shaped(0, &result)?;
    let kind = call.kind(table);
    call.emit_as(Op::GatherNd { batch_dims }, &[table, index], output, kind);
    Ok(())
}

fn reduction(call: &Call<'_, '_>) -> Result<ScatterOp, ExecError> {
    Ok(match call.int_param("reduction")?.unwrap_or(0) {
        0 => ScatterOp::Replace,
        1 => ScatterOp::Add,
        2 => ScatterOp::Multiply,
        3 => ScatterOp::Max,
        other => return Err(call.bad("parameter `reduction`", "0 to 3", other)),
    })
}

fn scatter_nd(call: &mut Call<'_, '_>) -> Result<(), ExecError> {
    let (data, index, updates) = (call.input(0)?, call.int(1)?, call.input(2)?);
    let updates = call.as_storage(updates, call.kind(data));
    let (shape, index_shape) = (call.shape(data), call.shape(index));
    let Some((&depth, places)) = index_shape.split_last() else {
        return Err(call.bad("input 1", "at least 1 axis", "none"));
    };
    if depth > shape.len() {
        return Err(call.bad("input 1", format!("at most {} numbers an index", shape.len()), depth));
    }
    let mut expected = places.to_vec();
    expected.extend(&shape[depth..]);
    if call.shape(updates) != expected {
        return Err(call.bad("input 2", format!("{expected:?}"), format!("{:?}", call.shape(updates))));
    }
    let op = reduction(call)?;
    let output = call.output_shaped(0, &shape)?;
    let kind = call.kind(data);
    call.emit_as(Op::ScatterNd(op), &[data, index, updates], output, kind);
    Ok(())
}

fn scatter_elements(call: &mut Call<'_, '_>) -> Result<(), ExecError> {
    let (data, index, updates) = (call.input(0)?, call.int(1)?, call.input(2)?);
    let updates = call.as_storage(updates, call.kind(data));
    let shape = call.shape(data);
    let axis = call.axis_param("axis", 0, shape.len())?;
    check_within(call, data, index, axis, "input 1")?;
    if call.shape(index) != call.shape(updates) {
        return Err(call.bad("input 2", format!("{:?}", call.shape(index)), format!("{:?}", call.shape(updates))));
    }
    let op = reduction(call)?;
    let output = call.output_shaped(0, &shape)?;
    let kind = call.kind(data);
    call.emit_as(Op::ScatterElements { axis, op }, &[data, index, updates], output, kind);
    Ok(())
}
