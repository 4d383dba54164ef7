//! `MatMul`: batched products; the second operand `[.., K, N]`, or `[.., N, K]` with `transpose_in1`.
//!
//! Both transposes are always given: the real library's check of a node crashes without them for weights by axis.

use qnn_api::Param;

use super::linear::{htp_bound, pairs};
use crate::suite::codec::{F16, F32, Fit, Ty, U8, U16};
use crate::suite::values::Values;
use crate::suite::{Bound, Problem};

pub(super) fn problems() -> Vec<Problem> {
    let centred = || U8.with(Fit::Centred);
    let mut all = vec![
        fed("plain", F16, F16, &[4, 32], &[32, 24], [false, false]),
        fed("second transposed", F16, F16, &[4, 32], &[24, 32], [false, true]),
        fed("first transposed", F16, F16, &[32, 4], &[32, 24], [true, false]),
        fed("second transposed", F32, F32, &[4, 32], &[24, 32], [false, true]),
        fed("rank 3", F16, F16, &[3, 4, 32], &[3, 32, 8], [false, false]),
        fed("scores: heads of queries by keys", F16, F16, &[1, 4, 6, 32], &[1, 4, 20, 32], [false, true]),
        fed("scores: keys with their sequence last", F16, F16, &[2, 4, 6, 32], &[2, 1, 32, 20], [false, false]),
        fed("one batch serves eight", F16, F16, &[8, 3, 32], &[1, 32, 8], [false, false]),
        fed("values", F16, F16, &[2, 4, 6, 20], &[2, 1, 20, 32], [false, false]),
        fed("8-bit keys", U16, centred(), &[1, 4, 6, 32], &[1, 4, 20, 32], [false, true]).htp_within(Bound::Codes(4.0)),
        fed("8-bit values", U16, centred(), &[2, 4, 6, 20], &[2, 1, 20, 32], [false, false])
            .htp_within(Bound::Codes(4.0)),
        fed("16-bit keys", U16, U16, &[1, 4, 6, 32], &[1, 4, 20, 32], [false, true]).htp_within(Bound::Codes(6.0)),
    ];
    for (x, w) in pairs(0) {
        all.push(weights("constant [N, K]", x, w, &[5, 64], true));
    }
    for (x, w) in pairs(1) {
        all.push(weights("constant [K, N]", x, w, &[5, 64], false));
    }
    all.push(weights("constant [K, N], rank 4", F16, F16, &[1, 2, 5, 64], false));
    all
}

fn problem(case: &str, flip: [bool; 2]) -> Problem {
    Problem::of("MatMul", case)
        .param("transpose_in0", Param::Bool(flip[0]))
        .param("transpose_in1", Param::Bool(flip[1]))
}

fn fed(case: &str, a: Ty, b: Ty, a_dims: &[usize], b_dims: &[usize], flip: [bool; 2]) -> Problem {
    problem(case, flip)
        .input(a.clone(), Values::noise(21, a_dims, 1.0))
        .input(b, Values::noise(22, b_dims, 1.0))
        .output(a)
        .answer(move |x| mat_mul(&x[0], &x[1], flip))
}

fn weights(case: &str, x: Ty, w: Ty, dims: &[usize], flip: bool) -> Problem {
    let stored = if flip { [40, 64] } else { [64, 40] };
    let problem = problem(case, [false, flip])
        .input(x.clone(), Values::noise(23, dims, 1.0))
        .constant(w.clone(), Values::noise(24, stored, 0.5))
        .output(x)
        .answer(move |x| mat_mul(&x[0], &x[1], [false, flip]));
    let usual = problem.bounds.htp;
    problem.htp_within(htp_bound(&w, usual))
}

/// Batches stretch by numpy's rules.
pub(super) fn mat_mul(a: &Values, b: &Values, flip: [bool; 2]) -> Values {
    let split = |v: &Values, flip: bool| {
        let (batch, matrix) = v.dims.split_at(v.dims.len() - 2);
        let (r, c) = if flip { (matrix[1], matrix[0]) } else { (matrix[0], matrix[1]) };
        (batch.to_vec(), r, c)
    };
    let ((batch_a, m, k), (batch_b, _, n)) = (split(a, flip[0]), split(b, flip[1]));
    let rank = batch_a.len().max(batch_b.len());
    let extent = |dims: &[usize], i: usize| (i + dims.len()).checked_sub(rank).map_or(1, |j| dims[j]);
    let batch: Vec<usize> = (0..rank).map(|i| extent(&batch_a, i).max(extent(&batch_b, i))).collect();
    let at = |v: &Values, flip: bool, batch: &[usize], r: usize, c: usize| {
        let tail = if flip { [c, r] } else { [r, c] };
        v.stretched(&[batch, &tail].concat())
    };
    Values::from_fn([&batch[..], &[m, n]].concat(), |i| {
        let (batch, tail) = i.split_at(rank);
        (0..k).map(|j| at(a, flip[0], batch, tail[0], j) * at(b, flip[1], batch, j, tail[1])).sum()
    })
}
