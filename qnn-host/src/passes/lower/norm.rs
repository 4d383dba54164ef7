//! Normalisations and the rotation of positions.

use super::Call;
use crate::graph::ExecError;
use crate::graph::op::Op;
use crate::graph::typed::ValueId;
use crate::storage::Storage;

/// Lowers a node of this family; false if it is of another.
pub(super) fn lower(call: &mut Call<'_, '_>) -> Result<bool, ExecError> {
    match call.op() {
        "RmsNorm" | "LayerNorm" => norm(call)?,
        "L2Norm" => l2_norm(call)?,
        "RotaryEmbedding" => rotary_embedding(call)?,
        _ => return Ok(false),
    }
    Ok(true)
}

fn norm(call: &mut Call<'_, '_>) -> Result<(), ExecError> {
    let x = call.real(0)?;
    let (gamma, beta) = (call.optional_real(1), call.optional_real(2));
    let shape = call.shape(x);
    let Some(&last) = shape.last() else { return Err(call.bad("input 0", "at least 1 axis", "none")) };
    if let Some(axes) = call.axes_param(shape.len())?
        && axes != [shape.len() - 1]
    {
        return Err(call.unsupported(format!("axes {axes:?}; only the last one, {}", shape.len() - 1)));
    }
    for (name, weights) in [("gamma", gamma), ("beta", beta)] {
        if let Some(weights) = weights
            && call.n_elems(weights) != last
        {
            return Err(call.bad(name, format!("{last} elements"), format!("{:?}", call.shape(weights))));
        }
    }
    let output = call.output_shaped(0, &shape)?;
    let mut inputs = vec![x];
    inputs.extend(gamma);
    inputs.extend(beta);
    let (gamma, beta) = (gamma.is_some(), beta.is_some());
    let op = if call.op() == "RmsNorm" {
        Op::RmsNorm { epsilon: call.float_param("epsilon", 1e-6)?, gamma, beta }
    } else {
        Op::LayerNorm { epsilon: call.float_param("epsilon", 1e-3)?, gamma, beta }
    };
    call.emit_as(op, &inputs, output, Storage::F32);
    Ok(())
}

fn l2_norm(call: &mut Call<'_, '_>) -> Result<(), ExecError> {
    let x = call.real(0)?;
    let shape = call.shape(x);
    let axes = match call.axes_param(shape.len())? {
        Some(axes) => axes,
        None => vec![call.axis_param("axis", 0, shape.len())?],
    };
    let epsilon = call.float_param("epsilon", 1e-12)?;
    let output = call.output_shaped(0, &shape)?;
    call.emit_as(Op::L2Norm { axes, epsilon }, &[x], output, Storage::F32);
    Ok(())
}

fn rotary_embedding(call: &mut Call<'_, '_>) -> Result<(), ExecError> {
    let x = call.real(0)?;
    let (mut cos, mut sin) = (call.real(1)?, call.real(2)?);
    let shape = call.shape(x);
    let Some((batch, &[rows, dim])) = shape.split_last_chunk::<2>() else {
        return Err(call.bad("input 0", "at least 2 axes", format!("{shape:?}")));
    };
    let rotated = match call.int_param("rotary_embedding_dim")?.unwrap_or(0) {
        0 => dim,
        n => usize::try_from(n).unwrap_or(usize::MAX),
    };
    if rotated > dim || !rotated.is_multiple_of(2) {
        return Err(call.bad("parameter `rotary_embedding_dim`", format!("even, at most {dim}"), rotated));
    }
    let half = rotated / 2;
    if let Some(positions) = call.optional(3) {
        if call.kind(positions) != Storage::I32 {
            return Err(call.bad("input 3", "integers", format!("{:?}", call.net().value(positions).dtype)));
        }
        cos = looked_up(call, cos, positions, half)?;
        sin = looked_up(call, sin, positions, half)?;
    }
    let heads_per_table = batch.last().copied().unwrap_or(1);
    let outer: usize = batch.iter().rev().skip(1).product();
    for (name, table) in [("cos", cos), ("sin", sin)] {
        let elems = call.n_elems(table);
        // One table for all, or one for each of the outermost extent.
        let fits = elems == rows * half || (elems == outer * rows * half && heads_per_table > 0);
        if !fits || call.shape(table).last() != Some(&half) {
            let expected = format!("[{rows}, {half}] or [{outer}, {rows}, {half}]");
            return Err(call.bad(name, expected, format!("{:?}", call.shape(table))));
        }
    }
    if call.n_elems(cos) != call.n_elems(sin) {
        return Err(call.bad("sin", format!("as cos {:?}", call.shape(cos)), format!("{:?}", call.shape(sin))));
    }
    let output = call.output_shaped(0, &shape)?;
    let interleaved = call.bool_param("interleaved")?;
    call.emit_as(Op::Rope { interleaved, rotated, by_row: false }, &[x, cos, sin], output, Storage::F32);
    Ok(())
}

/// Rows of a table `[n, half]` for each position.
fn looked_up(call: &mut Call<'_, '_>, table: ValueId, positions: ValueId, half: usize) -> Result<ValueId, ExecError> {
    let shape = call.shape(table);
    let n_rows = shape.iter().product::<usize>().checked_div(half).unwrap_or(0);
    if shape.last() != Some(&half) {
        return Err(call.bad("table of cos or sin", format!("rows of {half}"), format!("{shape:?}")));
    }
    let flat = call.net_mut().add_view(table, &[n_rows, half]);
    let mut gathered = call.shape(positions);
    gathered.push(half);
    let temp = call.temp(&gathered, Storage::F32);
    call.emit_to(Op::Gather { axis: 0 }, &[flat, positions], temp);
    Ok(temp)
}
