//! `Tile`: keys repeated for their group of heads, say; moved, so exact.

use crate::suite::Problem;
use crate::suite::codec::{F16, F32, I32, Ty, U16};
use crate::suite::values::Values;

pub(super) fn problems() -> Vec<Problem> {
    let mut all: Vec<Problem> =
        [F16, F32, I32, U16].into_iter().map(|ty| tile("an inner axis", ty, &[1, 2, 5, 8], &[1, 3, 1, 1])).collect();
    all.push(tile("two axes", F16, &[2, 3, 8], &[2, 1, 3]));
    all
}

fn tile(case: &str, ty: Ty, dims: &[usize], times: &'static [usize]) -> Problem {
    let values = if ty == I32 { Values::integers(221, dims, -99, 99) } else { Values::noise(221, dims, 2.0) };
    let out = if ty.dtype.is_fixed_point() { ty.clone().like(0) } else { ty.clone() };
    Problem::of("Tile", case)
        .input(ty, values)
        .list("multiples", times)
        .output(out)
        .answer(move |x| {
            let dims: Vec<usize> = x[0].dims.iter().zip(times).map(|(d, n)| d * n).collect();
            Values::from_fn(dims, |i| x[0].at(&i.iter().zip(&x[0].dims).map(|(i, d)| i % d).collect::<Vec<_>>()))
        })
        .exact()
}
