//! Operations that move elements or only rename them.

use super::Call;
use crate::graph::ExecError;
use crate::graph::op::{Op, PadScheme};
use crate::graph::typed::ValueId;
use crate::ir::Param;

/// Lowers a node of this family; false if it is of another.
pub(super) fn lower(call: &mut Call<'_, '_>) -> Result<bool, ExecError> {
    match call.op() {
        "Reshape" | "ExpandDims" | "Squeeze" => {
            let (input, output) = (call.input(0)?, call.output(0)?);
            call.view(input, output)?;
        }
        "Transpose" => transpose(call)?,
        "Concat" => concat(call)?,
        "Pack" => pack(call)?,
        "Split" => split(call)?,
        "UnPack" => unpack(call)?,
        "StridedSlice" => strided_slice(call)?,
        "Tile" => tile(call)?,
        "Pad" => pad(call)?,
        _ => return Ok(false),
    }
    Ok(true)
}

fn transpose(call: &mut Call<'_, '_>) -> Result<(), ExecError> {
    let input = call.input(0)?;
    let shape = call.shape(input);
    let perm = call.sizes_param("perm", shape.len())?;
    let mut seen = vec![false; shape.len()];
    for &axis in &perm {
        match seen.get_mut(axis) {
            Some(seen) if !*seen => *seen = true,
            _ => return Err(call.bad("parameter `perm`", "each axis once", format!("{perm:?}"))),
        }
    }
    let moved: Vec<usize> = perm.iter().map(|&a| shape[a]).collect();
    let output = call.output_shaped(0, &moved)?;
    emit_transpose(call, input, &perm, output)
}

/// A transposition, or a view when only extents of one move.
fn emit_transpose(call: &mut Call<'_, '_>, input: ValueId, perm: &[usize], output: ValueId) -> Result<(), ExecError> {
    let shape = call.shape(input);
    let kept: Vec<usize> = perm.iter().copied().filter(|&a| shape[a] != 1).collect();
    if kept.is_sorted() {
        return call.view(input, output);
    }
    let kind = call.kind(input);
    call.emit_as(Op::Transpose { perm: perm.to_vec() }, &[input], output, kind);
    Ok(())
}

fn concat(call: &mut Call<'_, '_>) -> Result<(), ExecError> {
    let first = call.input(0)?;
    let mut shape = call.shape(first);
    let axis = call.axis_param("axis", -1, shape.len())?;
    let kind = call.kind(call.output(0)?);
    let mut inputs = Vec::with_capacity(call.n_inputs());
    shape[axis] = 0;
    for i in 0..call.n_inputs() {
        let id = call.input(i)?;
        let other = call.shape(id);
        let fits = other.len() == shape.len() && (0..shape.len()).all(|a| a == axis || other[a] == shape[a]);
        if !fits {
            let expected = format!("extents {shape:?} but on axis {axis}");
            return Err(call.bad(&format!("input {i}"), expected, format!("{other:?}")));
        }
        shape[axis] += other[axis];
        inputs.push(call.as_storage(id, kind));
    }
    let output = call.output_shaped(0, &shape)?;
    call.emit(Op::Concat { axis }, &inputs, output);
    Ok(())
}

fn pack(call: &mut Call<'_, '_>) -> Result<(), ExecError> {
    let first = call.input(0)?;
    let mut shape = call.shape(first);
    let axis = call.axis_param("axis", 0, shape.len() + 1)?;
    let kind = call.kind(call.output(0)?);
    shape.insert(axis, 1);
    let mut inputs = Vec::with_capacity(call.n_inputs());
    for i in 0..call.n_inputs() {
        let id = call.input(i)?;
        if call.shape(id) != call.shape(first) {
            let (expected, found) = (call.shape(first), call.shape(id));
            return Err(call.bad(&format!("input {i}"), format!("{expected:?}"), format!("{found:?}")));
        }
        let id = call.as_storage(id, kind);
        inputs.push(call.net_mut().add_view(id, &shape));
    }
    shape[axis] = inputs.len();
    let output = call.output_shaped(0, &shape)?;
    call.emit(Op::Concat { axis }, &inputs, output);
    Ok(())
}

/// Adds output `i` as the part of `input` from `begin` on along `axis`.
fn part(
    call: &mut Call<'_, '_>,
    i: usize,
    input: ValueId,
    axis: usize,
    begin: usize,
    n: usize,
) -> Result<(), ExecError> {
    let shape = call.shape(input);
    let mut counts = shape.clone();
    counts[axis] = n;
    let mut begins = vec![0; shape.len()];
    begins[axis] = begin;
    let output = call.output_shaped(i, &counts)?;
    if counts == shape {
        return call.view(input, output);
    }
    let kind = call.kind(input);
    call.emit_as(Op::Slice { begin: begins, stride: vec![1; shape.len()], counts }, &[input], output, kind);
    Ok(())
}

fn split(call: &mut Call<'_, '_>) -> Result<(), ExecError> {
    let input = call.input(0)?;
    let shape = call.shape(input);
    let axis = call.axis_param("axis", 0, shape.len())?;
    let n_outputs = call.node.outputs.len();
    if n_outputs == 0 {
        return Err(call.bad("outputs", "at least 1", 0));
    }
    let mut cuts = match call.ints_param("split_index")? {
        None if shape[axis].is_multiple_of(n_outputs) => (0..n_outputs).map(|i| i * shape[axis] / n_outputs).collect(),
        _ => {
            let mut cuts = call.sizes_param("split_index", n_outputs - 1)?;
            cuts.insert(0, 0);
            cuts
        }
    };
    cuts.push(shape[axis]);
    if !cuts.is_sorted() {
        return Err(call.bad(
            "parameter `split_index`",
            format!("ascending cuts up to {}", shape[axis]),
            format!("{cuts:?}"),
        ));
    }
    for (i, pair) in cuts.windows(2).enumerate() {
        part(call, i, input, axis, pair[0], pair[1] - pair[0])?;
    }
    Ok(())
}

fn unpack(call: &mut Call<'_, '_>) -> Result<(), ExecError> {
    let input = call.input(0)?;
    let shape = call.shape(input);
    let axis = call.axis_param("axis", 0, shape.len())?;
    if call.node.outputs.len() != shape[axis] {
        return Err(call.bad("outputs", shape[axis], call.node.outputs.len()));
    }
    (0..shape[axis]).try_for_each(|i| part(call, i, input, axis, i, 1))
}

fn strided_slice(call: &mut Call<'_, '_>) -> Result<(), ExecError> {
    let input = call.input(0)?;
    let shape = call.shape(input);
    let ranges = match call.ints_param("ranges")? {
        Some(ranges) if ranges.len() == 3 * shape.len() => ranges,
        other => {
            let expected = format!("begin, end and stride for {} axes", shape.len());
            return Err(call.bad("parameter `ranges`", expected, format!("{:?}", other.unwrap_or_default())));
        }
    };
    if call.int_param("new_axes_mask")?.unwrap_or(0) != 0 {
        return Err(call.unsupported("parameter `new_axes_mask`; use Reshape to add axes"));
    }
    let mask = |name: &str| Ok::<_, ExecError>(call.int_param(name)?.unwrap_or(0));
    let (begin_mask, end_mask, shrink) = (mask("begin_mask")?, mask("end_mask")?, mask("shrink_axes")?);
    let (mut begins, mut strides, mut counts) = (Vec::new(), Vec::new(), Vec::new());
    for (axis, range) in ranges.chunks_exact(3).enumerate() {
        let bit = |mask: i64| mask >> axis.min(62) & 1 == 1;
        let n = shape[axis] as i64;
        let from_start = |i: i64| if i < 0 { i + n } else { i };
        let &[begin, end, stride] = range else { unreachable!("chunks of three") };
        let (low, high) = if stride < 0 { (-1, n - 1) } else { (0, n) };
        let begin =
            if bit(begin_mask) { if stride < 0 { n - 1 } else { 0 } } else { from_start(begin).clamp(low, high) };
        let end = if bit(end_mask) { if stride < 0 { -1 } else { n } } else { from_start(end).clamp(low, high) };
        let (count, stride) = match stride {
            _ if bit(shrink) => (1, 1),
            0 => return Err(call.bad("parameter `ranges`", "strides other than 0", format!("{ranges:?}"))),
            s if s > 0 => ((end - begin).max(0).unsigned_abs().div_ceil(s.unsigned_abs()), s),
            s => ((begin - end).max(0).unsigned_abs().div_ceil(s.unsigned_abs()), s),
        };
        if count == 0 || begin < 0 || begin >= n {
            return Err(call.bad("parameter `ranges`", "something to select on each axis", format!("{ranges:?}")));
        }
        begins.push(begin as usize);
        strides.push(stride);
        counts.push(count as usize);
    }
    let output = call.output_shaped(0, &counts)?;
    if counts == shape && strides.iter().all(|&s| s == 1) {
        return call.view(input, output);
    }
    let kind = call.kind(input);
    call.emit_as(Op::Slice { begin: begins, stride: strides, counts }, &[input], output, kind);
    Ok(())
}

fn tile(call: &mut Call<'_, '_>) -> Result<(), ExecError> {
    let input = call.input(0)?;
    let shape = call.shape(input);
    let multiples = call.sizes_param("multiples", shape.len())?;
    let tiled: Vec<usize> = shape.iter().zip(&multiples).map(|(d, m)| d.saturating_mul(*m)).collect();
    let output = call.output_shaped(0, &tiled)?;
    if multiples.iter().all(|&m| m == 1) {
        return call.view(input, output);
    }
    let kind = call.kind(input);
    call.emit_as(Op::Tile { multiples }, &[input], output, kind);
    Ok(())
}

fn pad(call: &mut Call<'_, '_>) -> Result<(), ExecError> {
    let input = call.input(0)?;
    let shape = call.shape(input);
    let amounts = call.sizes_param("pad_amount", 2 * shape.len())?;
    let value = match call.node.param("pad_constant_value") {
        None => 0.0,
        Some(&Param::F32(value)) => f64::from(value),
        Some(_) => call.int_param("pad_constant_value")?.unwrap_or(0) as f64,
    };
    let scheme = match call.int_param("scheme")?.unwrap_or(0) {
        0 => PadScheme::Constant(value),
        1 => PadScheme::Symmetric,
        2 => PadScheme::Reflect,
        3 => PadScheme::Edge,
        other => return Err(call.bad("parameter `scheme`", "0 to 3", other)),
    };
    for (axis, pair) in amounts.chunks_exact(2).enumerate() {
        let limit = match scheme {
            PadScheme::Constant(_) => usize::MAX,
            PadScheme::Symmetric => shape[axis],
            PadScheme::Reflect => shape[axis].saturating_sub(1),
            PadScheme::Edge => {
                if shape[axis] == 0 {
                    0
                } else {
                    usize::MAX
                }
            }
        };
        if pair.iter().any(|&amount| amount > limit) {
            return Err(call.bad(
                "parameter `pad_amount`",
                format!("at most {limit} on axis {axis}"),
                format!("{pair:?}"),
            ));
        }
    }
    let before: Vec<usize> = amounts.chunks_exact(2).map(|pair| pair[0]).collect();
    let padded: Vec<usize> =
        shape.iter().zip(amounts.chunks_exact(2)).map(|(d, p)| d.saturating_add(p[0]).saturating_add(p[1])).collect();
    let output = call.output_shaped(0, &padded)?;
    let kind = call.kind(input);
    call.emit_as(Op::Pad { before, scheme }, &[input], output, kind);
    Ok(())
}
