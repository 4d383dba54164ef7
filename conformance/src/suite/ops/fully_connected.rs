//! `FullyConnected`: weights `[out, in]`, leading axes flattened into one, or kept with `keep_dims`.

use qnn_api::Param;

use super::linear::{htp_bound, pairs, product};
use crate::suite::Problem;
use crate::suite::codec::{F16, F32, Fit, Ty, U16, of};
use crate::suite::values::Values;

const K: usize = 64;
const N: usize = 40;

pub(super) fn problems() -> Vec<Problem> {
    let mut all = Vec::new();
    for (x, w) in pairs(0) {
        all.push(layer("one row", x.clone(), w.clone(), &[1, K], None));
        all.push(layer("rank 3 input", x, w, &[1, 5, K], None));
    }
    for ty in [F16, F32] {
        all.push(layer("bias", ty.clone(), ty.clone(), &[6, K], Some(ty)));
    }
    let s32 = of(genie_types::Dtype::SFixed32).with(Fit::Product(0, 1));
    all.push(layer("bias", U16, Ty::s8_by(0), &[6, K], Some(s32)));
    all.push(kept());
    all.push(fed());
    all
}

fn layer(case: &str, x: Ty, w: Ty, dims: &[usize], bias: Option<Ty>) -> Problem {
    let mut problem = Problem::of("FullyConnected", case)
        .input(x.clone(), Values::noise(11, dims, 1.0))
        .constant(w.clone(), Values::noise(12, [N, K], 0.5));
    if let Some(bias) = bias {
        problem = problem.constant(bias, Values::noise(13, [N], 1.0));
    }
    let problem = problem.output(x).answer(|x| product(&x[0], &x[1], x.get(2)));
    let usual = problem.bounds.htp;
    problem.htp_within(htp_bound(&w, usual))
}

fn kept() -> Problem {
    Problem::of("FullyConnected", "keep_dims")
        .input(F16, Values::noise(14, [1, 5, K], 1.0))
        .constant(F16, Values::noise(15, [N, K], 0.5))
        .param("keep_dims", Param::Bool(true))
        .output(F16)
        .answer(|x| product(&x[0], &x[1], None).reshaped([1, 5, N]))
}

fn fed() -> Problem {
    Problem::of("FullyConnected", "weights are an input")
        .input(F16, Values::noise(16, [3, K], 1.0))
        .input(F16, Values::noise(17, [N, K], 0.5))
        .output(F16)
        .answer(|x| product(&x[0], &x[1], None))
}
