//! `StridedSlice`: `[begin, end, stride]` for each axis; moved, so exact.

use qnn_api::Param;

use crate::suite::Problem;
use crate::suite::codec::{F16, F32, I32, Ty, U8, U16};
use crate::suite::values::Values;

pub(super) fn problems() -> Vec<Problem> {
    let mut all = Vec::new();
    for ty in [F16, F32, I32, U16, U8] {
        all.push(slice("a window", ty, &[1, 6, 32], &[[0, 1, 1], [2, 5, 1], [8, 24, 1]]));
    }
    all.push(slice("every second column", F16, &[1, 6, 32], &[[0, 1, 1], [0, 6, 1], [0, 32, 2]]));
    all.push(slice("the last row, rank 4", F16, &[1, 2, 6, 32], &[[0, 1, 1], [0, 2, 1], [5, 6, 1], [0, 32, 1]]));
    all.push(shrunk());
    all
}

fn ranges(list: &[[usize; 3]]) -> Param {
    Param::I32Tensor { dims: vec![list.len(), 3], data: list.iter().flatten().map(|&v| v as i32).collect() }
}

fn masks(mut problem: Problem, shrink: u32) -> Problem {
    for (name, mask) in [("begin_mask", 0), ("end_mask", 0), ("shrink_axes", shrink), ("new_axes_mask", 0)] {
        problem = problem.param(name, Param::U32(mask));
    }
    problem
}

fn slice(case: &str, ty: Ty, dims: &[usize], list: &'static [[usize; 3]]) -> Problem {
    let values = if ty == I32 { Values::integers(131, dims, -99, 99) } else { Values::noise(131, dims, 2.0) };
    let out = if ty.dtype.is_fixed_point() { ty.clone().like(0) } else { ty.clone() };
    masks(Problem::of("StridedSlice", case).input(ty, values).param("ranges", ranges(list)), 0)
        .output(out)
        .answer(move |x| {
            let dims: Vec<usize> = list.iter().map(|[begin, end, stride]| (end - begin).div_ceil(*stride)).collect();
            Values::from_fn(dims, |i| {
                let index: Vec<usize> = i.iter().zip(list).map(|(i, [begin, _, stride])| begin + i * stride).collect();
                x[0].at(&index)
            })
        })
        .exact()
}

fn shrunk() -> Problem {
    let list = [[0, 1, 1], [3, 4, 1], [0, 32, 1]];
    let problem =
        Problem::of("StridedSlice", "one row, its axis dropped").input(F16, Values::noise(132, [1, 6, 32], 2.0));
    masks(problem.param("ranges", ranges(&list)), 0b10)
        .output(F16)
        .answer(|x| Values::from_fn([1, 32], |i| x[0].at(&[0, 3, i[1]])))
        .exact()
}
