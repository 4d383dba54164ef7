//! `Reshape`, `ExpandDims`, `Squeeze`: the same elements under other extents.

use crate::suite::Problem;
use crate::suite::codec::{F16, F32, I32, Ty, U8, U16};
use crate::suite::values::Values;

pub(super) fn problems() -> Vec<Problem> {
    let mut all = Vec::new();
    for ty in [F16, F32, I32, U16, U8] {
        all.push(viewed(Problem::of("Reshape", "heads out of columns"), ty, &[1, 6, 32], &[1, 6, 4, 8]));
    }
    all.push(viewed(Problem::of("Reshape", "rank 4 to 2"), F16, &[1, 6, 4, 8], &[6, 32]));
    for ty in [F16, U16] {
        let op = Problem::of("ExpandDims", "axis").count("axis", 1);
        all.push(viewed(op, ty.clone(), &[3, 32], &[3, 1, 32]));
        let op = Problem::of("Squeeze", "axes").list("axes", &[0, 2]);
        all.push(viewed(op, ty, &[1, 6, 1, 32], &[6, 32]));
    }
    all
}

fn viewed(problem: Problem, ty: Ty, from: &[usize], to: &'static [usize]) -> Problem {
    let values = if ty == I32 { Values::integers(141, from, -99, 99) } else { Values::noise(141, from, 2.0) };
    let out = if ty.dtype.is_fixed_point() { ty.clone().like(0) } else { ty.clone() };
    problem.input(ty, values).output(out).answer(move |x| x[0].reshaped(to)).exact()
}
