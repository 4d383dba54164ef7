//! `ScatterNd`: rows written at index rows; moved, so exact.

use crate::suite::Problem;
use crate::suite::codec::{F16, F32, I32, Ty, U8, U16, U32};
use crate::suite::values::Values;

pub(super) fn problems() -> Vec<Problem> {
    let mut all = Vec::new();
    for (ty, index) in [(F16, I32), (F16, U32), (F32, I32), (I32, I32), (U16, I32), (U8, I32)] {
        all.push(scatter("rows", ty, index, &[12, 16], &[[7], [0], [11]], 0));
    }
    all.push(scatter("added to", F16, I32, &[12, 16], &[[7], [0], [11]], 1));
    all.push(pairs());
    all
}

fn scatter(case: &str, ty: Ty, index: Ty, dims: &[usize], rows: &[[usize; 1]], reduction: usize) -> Problem {
    let values = |seed, dims: &[usize]| match ty == I32 {
        true => Values::integers(seed, dims, -99, 99),
        false => Values::noise(seed, dims, 2.0),
    };
    let like = |ty: &Ty| if ty.dtype.is_fixed_point() { ty.clone().like(0) } else { ty.clone() };
    let index_values = Values::new([rows.len(), 1], rows.iter().map(|r| r[0] as f64).collect());
    let mut problem = Problem::of("ScatterNd", case)
        .input(ty.clone(), values(191, dims))
        .input(index, index_values)
        .input(like(&ty), values(192, &[rows.len(), dims[1]]).map(|x| if ty == I32 { x } else { x * 0.9 }));
    if reduction != 0 {
        problem = problem.count("reduction", reduction);
    }
    let problem = problem.output(like(&ty)).answer(move |x| {
        let mut out = x[0].clone();
        for row in 0..x[1].dims[0] {
            for col in 0..out.dims[1] {
                let cell = out.at_mut(&[x[1].at(&[row, 0]) as usize, col]);
                let update = x[2].at(&[row, col]);
                *cell = if reduction == 1 { *cell + update } else { update };
            }
        }
        out
    });
    if reduction == 0 { problem.exact() } else { problem }
}

fn pairs() -> Problem {
    Problem::of("ScatterNd", "index rows of 2")
        .input(F16, Values::noise(193, [4, 6, 8], 2.0))
        .input(I32, Values::new([2, 2], vec![3.0, 1.0, 0.0, 5.0]))
        .input(F16, Values::noise(194, [2, 8], 2.0))
        .output(F16)
        .answer(|x| {
            let mut out = x[0].clone();
            for row in 0..2 {
                for col in 0..8 {
                    let at = [x[1].at(&[row, 0]) as usize, x[1].at(&[row, 1]) as usize, col];
                    *out.at_mut(&at) = x[2].at(&[row, col]);
                }
            }
            out
        })
        .exact()
}
