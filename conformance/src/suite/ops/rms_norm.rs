//! `RmsNorm` over the last axis: gamma, and beta if given.

use qnn_api::Param;

use crate::suite::Problem;
use crate::suite::codec::{F16, F32, Ty, U16};
use crate::suite::values::Values;

pub(super) fn problems() -> Vec<Problem> {
    vec![
        norm("gamma", F16, &[1, 6, 64], 1.0, 1e-5, false),
        norm("gamma", F32, &[1, 6, 64], 1.0, 1e-5, false),
        norm("gamma, beta", F16, &[1, 6, 64], 1.0, 1e-5, true).htp_deviates("beta is ignored"),
        norm("gamma, beta", F32, &[1, 6, 64], 1.0, 1e-5, true).htp_deviates("beta is ignored"),
        norm("rank 4: by head", F16, &[1, 4, 6, 32], 1.0, 1e-6, false),
        norm("rank 2", F16, &[5, 48], 1.0, 1e-6, false),
        norm("squares beyond float16", F16, &[1, 3, 64], 300.0, 1e-6, false),
        norm("tiny numbers", F16, &[1, 3, 64], 1e-3, 1e-6, false),
        norm("gamma", U16, &[1, 6, 64], 1.0, 1e-5, false),
        norm("gamma, beta", U16, &[1, 6, 64], 1.0, 1e-5, true),
    ]
}

fn norm(case: &str, ty: Ty, dims: &[usize], size: f64, epsilon: f32, beta: bool) -> Problem {
    let width = dims[dims.len() - 1];
    let mut problem = Problem::of("RmsNorm", case)
        .input(ty.clone(), Values::noise(41, dims, size))
        .constant(ty.clone(), Values::between(42, [width], 0.5, 1.5))
        .param("epsilon", Param::F32(epsilon))
        .list("axes", &[dims.len() - 1]);
    if beta {
        problem = problem.constant(ty.clone(), Values::noise(43, [width], 0.5));
    }
    problem.output(ty).answer(move |x| {
        x[0].map_rows(|row| {
            let mean = row.iter().map(|v| v * v).sum::<f64>() / row.len() as f64;
            let scale = (mean + f64::from(epsilon)).sqrt().recip();
            let beta = |i: usize| x.get(2).map_or(0.0, |b| b.data[i]);
            row.iter().enumerate().map(|(i, v)| v * scale * x[1].data[i] + beta(i)).collect()
        })
    })
}
