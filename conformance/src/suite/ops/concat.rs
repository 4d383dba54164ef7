//! `Concat` along an axis and `Pack` along a new one; moved, so exact.

use crate::suite::Problem;
use crate::suite::codec::{F16, F32, I32, Ty, U8, U16};
use crate::suite::values::Values;

pub(super) fn problems() -> Vec<Problem> {
    let mut all = Vec::new();
    for ty in [F16, F32, I32, U16, U8] {
        all.push(concat("keys: the last axis", ty.clone(), &[&[2, 1, 8, 20], &[2, 1, 8, 4]], 3));
    }
    all.push(concat("values: an inner axis", F16, &[&[2, 1, 20, 8], &[2, 1, 4, 8]], 2));
    all.push(concat("the first axis", F16, &[&[2, 8], &[3, 8]], 0));
    all.push(concat("three operands", F16, &[&[1, 5, 16], &[1, 5, 1], &[1, 5, 7]], 2));
    for ty in [F16, U16] {
        all.push(pack(ty));
    }
    all
}

fn values(seed: u64, ty: &Ty, dims: &[usize]) -> Values {
    if *ty == I32 { Values::integers(seed, dims, -99, 99) } else { Values::noise(seed, dims, 2.0) }
}

/// Later operands share the encoding of the first.
fn operands(mut problem: Problem, ty: &Ty, dims: &[&[usize]]) -> Problem {
    for (i, dims) in dims.iter().enumerate() {
        let like = ty.dtype.is_fixed_point() && i > 0;
        let own = if like { ty.clone().like(0) } else { ty.clone() };
        let shrink = if like { 0.9 } else { 1.0 };
        problem = problem.input(own, values(111 + i as u64, ty, dims).map(|x| x * shrink));
    }
    let out = if ty.dtype.is_fixed_point() { ty.clone().like(0) } else { ty.clone() };
    problem.output(out)
}

fn concat(case: &str, ty: Ty, dims: &[&[usize]], axis: usize) -> Problem {
    operands(Problem::of("Concat", case).count("axis", axis), &ty, dims)
        .answer(move |x| {
            let mut dims = x[0].dims.clone();
            dims[axis] = x.iter().map(|v| v.dims[axis]).sum();
            Values::from_fn(dims, |i| {
                let mut index = i.to_vec();
                let own = x.iter().find(|v| {
                    let inside = index[axis] < v.dims[axis];
                    if !inside {
                        index[axis] -= v.dims[axis];
                    }
                    inside
                });
                own.expect("the extents add up").at(&index)
            })
        })
        .exact()
}

fn pack(ty: Ty) -> Problem {
    operands(Problem::of("Pack", "a new axis in the middle").count("axis", 1), &ty, &[&[3, 8], &[3, 8]])
        .answer(|x| Values::from_fn([3, 2, 8], |i| x[i[1]].at(&[i[0], i[2]])))
        .exact()
}
