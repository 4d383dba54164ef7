//! `ExpandDims`: new axes of extent 1, at places counted in the output.

use super::prelude::*;
use super::reshape::lower;

pub(super) const OPS: &[OpSpec] = &[OpSpec {
    name: "ExpandDims",
    inputs: (1, 1),
    outputs: (1, 1),
    params: &[opt("axis", UInt), opt("axes", Ints)],
    same_in: 0b1,
    same_out: 0b1,
    rows: &[row!(Moved: [ALL] => [ALL])],
    shapes,
    lower,
}];

#[cfg(test)]
pub(super) fn samples() -> Vec<Sample> {
    vec![
        sample("ExpandDims", &[("axis", Param::UInt(1))], &[(F, &[3, 9])], &[(F, &[3, 1, 9])]),
        sample("ExpandDims", &[("axes", ints(&[0, 3]))], &[(F, &[3, 9])], &[(F, &[1, 3, 9, 1])]),
    ]
}

fn shapes(call: &Call<'_>) -> Shapes {
    let dims = call.dims(0)?;
    let axes = match call.ints("axes")? {
        Some((_, values)) => call.axes("axes", dims.len() + values.len())?.unwrap_or_default(),
        None if call.node.param("axis").is_some() => vec![call.axis("axis", 0, dims.len() + 1)?],
        None => return Err(call.bad_param("axis", "it (or `axes`) given".into(), "none".into())),
    };
    let mut rest = dims.iter();
    let place = |i| if axes.contains(&i) { Some(1) } else { rest.next().copied() };
    Ok(vec![(0..dims.len() + axes.len()).map_while(place).collect()])
}
