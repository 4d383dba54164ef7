//! `StridedSlice`: a range with a stride of each axis.

use super::prelude::*;
use super::strided::Strided;
use crate::graph::walk::Walk;

pub(super) const OPS: &[OpSpec] = &[OpSpec {
    name: "StridedSlice",
    inputs: (1, 1),
    outputs: (1, 1),
    params: &[
        req("ranges", Ints),
        opt("begin_mask", UInt),
        opt("end_mask", UInt),
        opt("shrink_axes", UInt),
        opt("new_axes_mask", UInt),
    ],
    same_in: 0b1,
    same_out: 0b1,
    rows: &[row!(Moved: [ALL] => [ALL])],
    shapes,
    lower,
}];

#[cfg(test)]
pub(super) fn samples() -> Vec<Sample> {
    let shrunk =
        [("ranges", table(3, &[2, 0, -1, 0, 0, 1])), ("shrink_axes", Param::UInt(2)), ("end_mask", Param::UInt(1))];
    let plain = [("ranges", table(3, &[1, 3, 1, 0, 9, 2])), ("shrink_axes", Param::UInt(0))];
    vec![
        sample("StridedSlice", &shrunk, &[(F, &[3, 9])], &[(F, &[3])]),
        sample("StridedSlice", &plain, &[(F, &[3, 9])], &[(F, &[2, 5])]),
    ]
}

/// What is taken of one axis: `count` elements from `begin` on.
struct Taken {
    begin: usize,
    stride: i64,
    count: usize,
    /// The axis is dropped.
    shrunk: bool,
}

/// `ranges` is [rank, 3]: begin, end, stride. Masks are bit fields over the axes.
fn taken(call: &Call<'_>) -> Result<Vec<Taken>, Violation> {
    let dims = call.dims(0)?;
    let (shape, ranges) = call.ints("ranges")?.unwrap_or_default();
    let rank = dims.len();
    if shape != [rank as u32, 3] || ranges.len() != rank * 3 {
        return Err(call.bad_param("ranges", format!("dims [{rank}, 3]"), format!("{shape:?}")));
    }
    if let Some(v) = ranges.iter().find(|v| i32::try_from(**v).is_err()) {
        return Err(call.bad_param("ranges", "values of 32 bits".into(), v.to_string()));
    }
    if call.uint("new_axes_mask", 0)? != 0 {
        return Err(call.bad_param("new_axes_mask", "0".into(), call.uint("new_axes_mask", 0)?.to_string()));
    }
    let (begins, ends) = (call.uint("begin_mask", 0)?, call.uint("end_mask", 0)?);
    let shrink = call.uint("shrink_axes", 0)?;
    let mut all = Vec::with_capacity(rank);
    for (axis, range) in ranges.chunks_exact(3).enumerate() {
        let (extent, stride) = (i64::from(dims[axis]), range[2]);
        let on = |mask: u64| mask >> axis & 1 == 1;
        // As TensorFlow has it: negative places count from the end, then everything is clamped to the axis.
        let (low, high) = if stride < 0 { (-1, extent - 1) } else { (0, extent) };
        let place = |v: i64| {
            let from_start = if v < 0 { v + extent } else { v };
            from_start.clamp(low, high)
        };
        let (first, past) = if stride < 0 { (high, low) } else { (low, high) };
        let begin = if on(begins) { first } else { place(range[0]) };
        let end = if on(ends) { past } else { place(range[1]) };
        let (count, stride) = match stride {
            _ if on(shrink) => (1, 1),
            0 => (0, 0),
            s if s > 0 => ((end - begin).max(0).unsigned_abs().div_ceil(s.unsigned_abs()), s),
            s => ((begin - end).max(0).unsigned_abs().div_ceil(s.unsigned_abs()), s),
        };
        if count == 0 || begin < 0 || begin >= extent {
            let expected = format!("a range that takes something of {extent} elements on axis {axis}");
            return Err(call.bad_param("ranges", expected, format!("{range:?}")));
        }
        all.push(Taken { begin: begin as usize, stride, count: count as usize, shrunk: on(shrink) });
    }
    Ok(all)
}

fn shapes(call: &Call<'_>) -> Shapes {
    let out: Vec<u32> = taken(call)?.iter().filter(|t| !t.shrunk).map(|t| t.count as u32).collect();
    Ok(vec![if out.is_empty() { vec![1] } else { out }])
}

fn lower(l: &mut Lowering<'_, '_>) -> Result<(), Violation> {
    let (input, output, taken) = (l.input(0)?, l.output(0), taken(l)?);
    let counts: Vec<usize> = taken.iter().map(|t| t.count).collect();
    let stride: Vec<i64> = taken.iter().map(|t| t.stride).collect();
    if counts == l.shape(input) && stride.iter().all(|&s| s == 1) {
        l.view(input, output);
        return Ok(());
    }
    let begin = taken.iter().map(|t| t.begin).collect();
    let storage = l.storage(input);
    l.emit_as(Op::Slice { begin, stride, counts }, &[input], output, storage);
    Ok(())
}

pub(super) fn step(
    b: &StepBuilder<'_>,
    node: &Node,
    begin: &[usize],
    stride: &[i64],
    counts: &[usize],
) -> Result<Box<dyn Step>, ExecError> {
    let id = b.input(node, 0)?;
    b.each(node, Strided { x: b.src(id), walk: Walk::slice(b.shape(id), begin, stride, counts) })
}
