//! `TopK` and `Argmax` over the last axis. No two numbers of a row are alike, so the order is given.

use qnn_api::Param;

use crate::suite::Problem;
use crate::suite::codec::{F16, F32, I32, Ty, U16, U32};
use crate::suite::values::Values;

pub(super) fn problems() -> Vec<Problem> {
    vec![
        top_k("k = 8", F16, U32, true),
        top_k("k = 8", F16, I32, true),
        top_k("k = 8", F32, U32, true),
        top_k("k = 8", I32, U32, true),
        top_k("k = 8", U16, U32, true),
        top_k("the smallest", F16, U32, false),
        argmax("kept", F16, true),
        argmax("dropped", F16, false),
        argmax("kept", U16, true),
    ]
}

/// Rows of different quarters, in an order that looks like none.
fn shuffled(ty: &Ty, rows: usize) -> Values {
    let quarter = if *ty == I32 { 1.0 } else { 0.25 };
    Values::from_fn([1, rows, 64], |i| (((i[2] * 37 + i[1] * 11) % 64) as f64 - 30.0) * quarter)
}

fn top_k(case: &str, ty: Ty, index: Ty, largest: bool) -> Problem {
    let out = if ty.dtype.is_fixed_point() { ty.clone().like(0) } else { ty.clone() };
    let mut problem = Problem::of("TopK", case).input(ty.clone(), shuffled(&ty, 3)).count("k", 8);
    if !largest {
        problem = problem.param("largest", Param::Bool(false));
    }
    problem
        .output(out)
        .output(index)
        .answers(move |x| {
            let ranked = |row: &[f64]| {
                let mut order: Vec<usize> = (0..row.len()).collect();
                order.sort_by(|&a, &b| if largest { row[b].total_cmp(&row[a]) } else { row[a].total_cmp(&row[b]) });
                order.truncate(8);
                order
            };
            let rows: Vec<&[f64]> = x[0].data.chunks(64).collect();
            let values = rows.iter().flat_map(|row| ranked(row).into_iter().map(|i| row[i])).collect();
            let indices = rows.iter().flat_map(|row| ranked(row).into_iter().map(|i| i as f64)).collect();
            vec![Values::new([1, 3, 8], values), Values::new([1, 3, 8], indices)]
        })
        .exact()
}

fn argmax(case: &str, ty: Ty, keep: bool) -> Problem {
    Problem::of("Argmax", case)
        .input(ty.clone(), shuffled(&ty, 5))
        .count("axis", 2)
        .param("keep_dims", Param::Bool(keep))
        .output(I32)
        .answer(move |x| {
            let best = |row: &[f64]| (0..row.len()).max_by(|&a, &b| row[a].total_cmp(&row[b])).expect("a row") as f64;
            let dims = if keep { vec![1, 5, 1] } else { vec![1, 5] };
            Values::new(dims, x[0].data.chunks(64).map(best).collect())
        })
        .exact()
}
