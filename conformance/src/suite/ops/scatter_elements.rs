//! `ScatterElements`: elements written along an axis, as caches are in place; moved, so exact.

use crate::suite::Problem;
use crate::suite::codec::{F16, F32, I32, Ty, U8, U16};
use crate::suite::values::Values;

pub(super) fn problems() -> Vec<Problem> {
    let mut all = Vec::new();
    for ty in [F16, F32, U16, U8] {
        all.push(cache("keys in place", ty.clone(), &[2, 1, 8, 24], 3));
        all.push(cache("values in place", ty, &[2, 1, 24, 8], 2));
    }
    all.push(cache("rank 2", F16, &[10, 12], 1));
    all
}

/// Writes 4 new columns from position 9 on (5 in rank 2).
fn cache(case: &str, ty: Ty, dims: &[usize], axis: usize) -> Problem {
    let first = if dims.len() == 2 { 5 } else { 9 };
    let mut new = dims.to_vec();
    new[axis] = 4;
    let like = |ty: &Ty| if ty.dtype.is_fixed_point() { ty.clone().like(0) } else { ty.clone() };
    Problem::of("ScatterElements", case)
        .input(ty.clone(), Values::noise(201, dims, 2.0))
        .input(I32, Values::from_fn(new.clone(), |i| (first + i[axis]) as f64))
        .input(like(&ty), Values::noise(202, new, 1.9))
        .count("axis", axis)
        .output(like(&ty))
        .answer(move |x| {
            let mut out = x[0].clone();
            Values::from_fn(x[2].dims.clone(), |i| {
                let mut at = i.to_vec();
                at[axis] = x[1].at(i) as usize;
                *out.at_mut(&at) = x[2].at(i);
                0.0
            });
            out
        })
        .exact()
}
