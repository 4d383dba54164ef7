//! Shape rules that several ops share.

use super::call::{Call, Shapes};
use crate::graph::Violation;

/// As input 0.
pub(super) fn same(call: &Call<'_>) -> Shapes {
    Ok(vec![call.dims(0)?.to_vec()])
}

/// Two shapes aligned at the right, where 1 stretches.
pub(super) fn stretch(a: &[u32], b: &[u32]) -> Option<Vec<u32>> {
    let rank = a.len().max(b.len());
    let at = |dims: &[u32], i: usize| (i + dims.len()).checked_sub(rank).map_or(1, |j| dims[j]);
    (0..rank)
        .map(|i| match (at(a, i), at(b, i)) {
            (x, y) if x == y || y == 1 => Some(x),
            (1, y) => Some(y),
            _ => None,
        })
        .collect()
}

/// Numpy's broadcasting over two inputs.
pub(super) fn broadcast(call: &Call<'_>) -> Shapes {
    let (a, b) = (call.dims(0)?, call.dims(1)?);
    match stretch(a, b) {
        Some(out) => Ok(vec![out]),
        None => Err(call.bad_input(1, format!("dims that broadcast with {a:?}"), format!("{b:?}"))),
    }
}

/// The `operation` parameter of the numbered families, below `n`.
pub(super) fn operation(call: &Call<'_>, n: usize) -> Result<usize, Violation> {
    let op = call.uint("operation", 0)?;
    match usize::try_from(op).ok().filter(|&op| op < n) {
        Some(op) => Ok(op),
        None => Err(call.bad_param("operation", format!("0 to {}", n - 1), op.to_string())),
    }
}

/// Optional input 2 is a vector of that length.
pub(super) fn bias(call: &Call<'_>, n: u32) -> Result<(), Violation> {
    match call.optional_tensor(2) {
        Some(b) if b.dims != [n] => Err(call.bad_input(2, format!("bias [{n}]"), format!("{:?}", b.dims))),
        _ => Ok(()),
    }
}

/// Extents without some axes, or with 1 in their place; `[1]` when nothing is left. Something must be there to reduce.
pub(super) fn without(call: &Call<'_>, axes: &[usize], keep: bool) -> Shapes {
    let dims = call.dims(0)?;
    if axes.iter().any(|&axis| dims[axis] == 0) {
        return Err(call.bad_input(0, "something to reduce".into(), format!("{dims:?}")));
    }
    let left = dims.iter().enumerate().filter_map(|(i, &d)| match axes.contains(&i) {
        true => keep.then_some(1),
        false => Some(d),
    });
    let out: Vec<u32> = left.collect();
    Ok(vec![if out.is_empty() { vec![1] } else { out }])
}

/// `part` has the rank of `whole` and no larger extents, `axis` aside.
pub(super) fn is_within(part: &[u32], whole: &[u32], axis: usize) -> bool {
    part.len() == whole.len() && (0..whole.len()).all(|a| a == axis || part[a] <= whole[a])
}

/// The larger number; NaN where either is. `f32::max` would drop it, and a broken row of a cache would look whole.
pub(super) fn larger<T: PartialOrd>(a: T, b: T) -> T {
    if a > b || is_nan(&a) { a } else { b }
}

/// The smaller number; NaN where either is.
pub(super) fn smaller<T: PartialOrd>(a: T, b: T) -> T {
    if a < b || is_nan(&a) { a } else { b }
}

fn is_nan<T: PartialOrd>(x: &T) -> bool {
    x.partial_cmp(x).is_none()
}
