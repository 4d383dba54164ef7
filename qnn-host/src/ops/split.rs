//! `Split`: parts along an axis; `split_index` holds the cuts, n of them make n + 1 outputs.

use super::prelude::*;

pub(super) const OPS: &[OpSpec] = &[OpSpec {
    name: "Split",
    inputs: (1, 1),
    outputs: (1, MANY),
    params: &[req("axis", UInt), req("split_index", Ints)],
    same_in: 0b1,
    same_out: 0xff,
    rows: &[row!(Moved: [ALL] => [ALL])],
    shapes,
    lower,
}];

#[cfg(test)]
pub(super) fn samples() -> Vec<Sample> {
    let params = [("axis", Param::UInt(0)), ("split_index", ints(&[2, 3]))];
    vec![sample("Split", &params, &[(F, &[7])], &[(F, &[2]), (F, &[1]), (F, &[4])])]
}

fn axis(call: &Call<'_>) -> Result<usize, Violation> {
    call.axis("axis", 0, call.dims(0)?.len())
}

fn shapes(call: &Call<'_>) -> Shapes {
    let (dims, axis) = (call.dims(0)?, axis(call)?);
    let (_, cuts) = call.ints("split_index")?.unwrap_or_default();
    let extent = i64::from(dims[axis]);
    let mut from = 0;
    let mut shapes = Vec::new();
    for &cut in cuts.iter().chain([&extent]) {
        if cut <= from || cut > extent {
            return Err(call.bad_param("split_index", format!("rising cuts inside 1..{extent}"), format!("{cuts:?}")));
        }
        let mut part = dims.to_vec();
        part[axis] = (cut - from) as u32;
        shapes.push(part);
        from = cut;
    }
    Ok(shapes)
}

fn lower(l: &mut Lowering<'_, '_>) -> Result<(), Violation> {
    let (input, axis) = (l.input(0)?, axis(l)?);
    let cuts = l.sizes("split_index")?;
    for (i, begin) in [0].into_iter().chain(cuts).enumerate() {
        let n = l.outputs[i].dims[axis] as usize;
        part(l, input, i, axis, begin..begin + n);
    }
    Ok(())
}

/// Makes output `i` the `range` of `input` along `axis`.
pub(super) fn part(l: &mut Lowering<'_, '_>, input: ValueId, i: usize, axis: usize, range: std::ops::Range<usize>) {
    let (shape, output) = (l.shape(input), l.output(i));
    if range.len() == shape[axis] {
        return l.view(input, output);
    }
    let (mut begin, mut counts) = (vec![0; shape.len()], shape.clone());
    (begin[axis], counts[axis]) = (range.start, range.len());
    let storage = l.storage(input);
    l.emit_as(Op::Slice { begin, stride: vec![1; shape.len()], counts }, &[input], output, storage);
}
