//! `Transpose`; moved, so exact.

use crate::suite::Problem;
use crate::suite::codec::{F16, F32, I32, Ty, U8, U16};
use crate::suite::values::Values;

pub(super) fn problems() -> Vec<Problem> {
    let mut all = Vec::new();
    for ty in [F16, F32, I32, U16, U8] {
        all.push(transpose("heads before rows", ty, &[1, 5, 4, 8], &[0, 2, 1, 3]));
    }
    all.push(transpose("keys with their sequence last", F16, &[1, 4, 6, 16], &[0, 1, 3, 2]));
    all.push(transpose("a matrix", F16, &[12, 20], &[1, 0]));
    all.push(transpose("rank 3", F16, &[3, 5, 8], &[2, 0, 1]));
    all
}

fn transpose(case: &str, ty: Ty, dims: &[usize], perm: &'static [usize]) -> Problem {
    let values = if ty == I32 { Values::integers(151, dims, -99, 99) } else { Values::noise(151, dims, 2.0) };
    let out = if ty.dtype.is_fixed_point() { ty.clone().like(0) } else { ty.clone() };
    Problem::of("Transpose", case)
        .input(ty, values)
        .list("perm", perm)
        .output(out)
        .answer(move |x| {
            let dims: Vec<usize> = perm.iter().map(|&axis| x[0].dims[axis]).collect();
            Values::from_fn(dims, |i| {
                let mut index = vec![0; perm.len()];
                perm.iter().zip(i).for_each(|(&axis, &at)| index[axis] = at);
                x[0].at(&index)
            })
        })
        .exact()
}
