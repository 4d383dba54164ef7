//! `ElementWiseSelect`: condition, then, else.

use crate::suite::Problem;
use crate::suite::codec::{BOOL, F16, F32, I32, Ty, U16};
use crate::suite::values::Values;

pub(super) fn problems() -> Vec<Problem> {
    vec![
        select("alike", F16, &[1, 5, 32], &[1, 5, 32]),
        select("alike", F32, &[1, 5, 32], &[1, 5, 32]),
        select("alike", I32, &[1, 5, 32], &[1, 5, 32]),
        select("alike", U16, &[1, 5, 32], &[1, 5, 32]),
        select("a mask for all heads", F16, &[1, 1, 3, 16], &[1, 4, 3, 16]),
    ]
}

fn select(case: &str, ty: Ty, mask: &[usize], dims: &[usize]) -> Problem {
    let values = |seed| match ty == I32 {
        true => Values::integers(seed, dims, -99, 99),
        false => Values::noise(seed, dims, 2.0),
    };
    let fixed = ty.dtype.is_fixed_point();
    // Codes are moved if all three tensors share one encoding.
    let like = |ty: &Ty| if fixed { ty.clone().like(1) } else { ty.clone() };
    let (yes, no) = (values(92), values(93).map(|x| x * 0.9));
    Problem::of("ElementWiseSelect", case)
        .input(BOOL, Values::integers(91, mask, 0, 2))
        .input(ty.clone(), yes)
        .input(like(&ty), no)
        .output(like(&ty))
        .answer(|x| {
            Values::from_fn(x[1].dims.clone(), |i| if x[0].stretched(i) == 0.0 { x[2].at(i) } else { x[1].at(i) })
        })
        .exact()
}
