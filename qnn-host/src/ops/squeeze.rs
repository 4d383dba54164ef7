//! `Squeeze`: axes of extent 1 dropped, those named or all.

use super::prelude::*;
use super::reshape::lower;

pub(super) const OPS: &[OpSpec] = &[OpSpec {
    name: "Squeeze",
    inputs: (1, 1),
    outputs: (1, 1),
    params: &[opt("axes", Ints)],
    same_in: 0b1,
    same_out: 0b1,
    rows: &[row!(Moved: [ALL] => [ALL])],
    shapes,
    lower,
}];

#[cfg(test)]
pub(super) fn samples() -> Vec<Sample> {
    vec![sample("Squeeze", &[], &[(F, &[1, 3, 1])], &[(F, &[3])])]
}

fn shapes(call: &Call<'_>) -> Shapes {
    let dims = call.dims(0)?;
    let axes = call.axes("axes", dims.len())?;
    if let Some(&axis) = axes.iter().flatten().find(|&&a| dims[a] != 1) {
        return Err(call.bad_param("axes", format!("axes of extent 1 in {dims:?}"), axis.to_string()));
    }
    let drop = |i: usize, d: u32| axes.as_ref().map_or(d == 1, |axes| axes.contains(&i));
    let left: Vec<u32> = dims.iter().enumerate().filter(|&(i, &d)| !drop(i, d)).map(|(_, &d)| d).collect();
    Ok(vec![if left.is_empty() { vec![1] } else { left }])
}
