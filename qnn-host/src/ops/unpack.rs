//! `UnPack`: one output for each index of the axis, which is dropped.

use super::prelude::*;
use super::split::part;

pub(super) const OPS: &[OpSpec] = &[OpSpec {
    name: "UnPack",
    inputs: (1, 1),
    outputs: (1, MANY),
    params: &[req("axis", UInt)],
    same_in: 0b1,
    same_out: 0xff,
    rows: &[row!(Moved: [ALL] => [ALL])],
    shapes,
    lower,
}];

#[cfg(test)]
pub(super) fn samples() -> Vec<Sample> {
    vec![sample("UnPack", &[("axis", Param::UInt(0))], &[(F, &[2, 9])], &[(F, &[9]), (F, &[9])])]
}

fn axis(call: &Call<'_>) -> Result<usize, Violation> {
    call.axis("axis", 0, call.dims(0)?.len())
}

fn shapes(call: &Call<'_>) -> Shapes {
    let mut dims = call.dims(0)?.to_vec();
    let n = dims.remove(axis(call)?) as usize;
    if n != call.outputs.len() {
        return Err(call.bad("number of outputs", n.to_string(), call.outputs.len().to_string()));
    }
    if dims.is_empty() {
        dims.push(1);
    }
    Ok(vec![dims; n])
}

fn lower(l: &mut Lowering<'_, '_>) -> Result<(), Violation> {
    let (input, axis) = (l.input(0)?, axis(l)?);
    (0..l.outputs.len()).for_each(|i| part(l, input, i, axis, i..i + 1));
    Ok(())
}
