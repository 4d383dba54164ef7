//! `Split` at positions and `UnPack` of an axis; moved, so exact.

use crate::suite::Problem;
use crate::suite::codec::{F16, F32, I32, Ty, U8, U16};
use crate::suite::values::Values;

pub(super) fn problems() -> Vec<Problem> {
    let mut all = Vec::new();
    for ty in [F16, F32, I32, U16, U8] {
        all.push(split("q, k and v of one product", ty, &[1, 5, 64], 2, &[32, 48]));
    }
    all.push(split("heads", F16, &[1, 4, 5, 16], 1, &[1, 2, 3]));
    all.push(unpack(F16));
    all.push(unpack(U16));
    all
}

fn moved(ty: &Ty) -> Ty {
    if ty.dtype.is_fixed_point() { ty.clone().like(0) } else { ty.clone() }
}

fn values(ty: &Ty, dims: &[usize]) -> Values {
    if *ty == I32 { Values::integers(121, dims, -99, 99) } else { Values::noise(121, dims, 2.0) }
}

fn split(case: &str, ty: Ty, dims: &[usize], axis: usize, cuts: &'static [usize]) -> Problem {
    let mut problem =
        Problem::of("Split", case).input(ty.clone(), values(&ty, dims)).count("axis", axis).list("split_index", cuts);
    for _ in 0..=cuts.len() {
        problem = problem.output(moved(&ty));
    }
    problem
        .answers(move |x| {
            let starts = [&[0], cuts].concat();
            let ends = [cuts, &[x[0].dims[axis]]].concat();
            let part = |(&start, &end): (&usize, &usize)| {
                let mut dims = x[0].dims.clone();
                dims[axis] = end - start;
                Values::from_fn(dims, |i| {
                    let mut index = i.to_vec();
                    index[axis] += start;
                    x[0].at(&index)
                })
            };
            starts.iter().zip(&ends).map(part).collect()
        })
        .exact()
}

fn unpack(ty: Ty) -> Problem {
    let mut problem =
        Problem::of("UnPack", "an inner axis").input(ty.clone(), values(&ty, &[3, 2, 8])).count("axis", 1);
    for _ in 0..2 {
        problem = problem.output(moved(&ty));
    }
    problem.answers(|x| (0..2).map(|part| Values::from_fn([3, 8], |i| x[0].at(&[i[0], part, i[1]]))).collect()).exact()
}
