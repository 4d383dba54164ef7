//! `LayerNorm` over the last axis, and `L2Norm`.

use genie_types::Dtype;
use qnn_api::Param;

use crate::suite::Problem;
use crate::suite::codec::{F16, F32, Fit, S16, Ty, U8, U16, of};
use crate::suite::values::Values;

pub(super) fn problems() -> Vec<Problem> {
    let s32 = of(Dtype::SFixed32).with(Fit::Product(0, 1));
    vec![
        norm("gamma, beta", [F16, F16, F16], &[1, 6, 64]),
        norm("gamma, beta", [F32, F32, F32], &[1, 6, 64]),
        norm("rank 4", [F16, F16, F16], &[1, 2, 6, 32]),
        norm("gamma, beta", [U16, U16, U16], &[1, 6, 64]).htp_deviates("wrong with 16-bit unsigned gamma"),
        norm("gamma, beta", [U16, S16, S16], &[1, 6, 64]),
        norm("gamma, beta", [U16, U8, U8], &[1, 6, 64]),
        norm("gamma, beta", [U16, U8, s32.clone()], &[1, 6, 64]),
        norm("gamma, beta", [U8, U8, U8], &[1, 6, 64]),
        norm("gamma, beta", [U8, U8, s32], &[1, 6, 64]),
        l2("last axis", F16),
        l2("last axis", U16),
    ]
}

fn norm(case: &str, [ty, gamma, beta]: [Ty; 3], dims: &[usize]) -> Problem {
    let width = dims[dims.len() - 1];
    Problem::of("LayerNorm", case)
        .input(ty.clone(), Values::between(44, dims, -1.0, 2.0))
        .constant(gamma, Values::between(45, [width], 0.5, 1.5))
        .constant(beta, Values::noise(46, [width], 0.5))
        .param("epsilon", Param::F32(1e-5))
        .list("axes", &[dims.len() - 1])
        .output(ty)
        .answer(|x| {
            x[0].map_rows(|row| {
                let n = row.len() as f64;
                let mean = row.iter().sum::<f64>() / n;
                let variance = row.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n;
                let scale = (variance + f64::from(1e-5f32)).sqrt().recip();
                row.iter().enumerate().map(|(i, v)| (v - mean) * scale * x[1].data[i] + x[2].data[i]).collect()
            })
        })
}

fn l2(case: &str, ty: Ty) -> Problem {
    Problem::of("L2Norm", case)
        .input(ty.clone(), Values::noise(47, [1, 6, 32], 1.0))
        .count("axis", 2)
        .output(ty)
        .answer(|x| {
            x[0].map_rows(|row| {
                let size = row.iter().map(|v| v * v).sum::<f64>().sqrt();
                row.iter().map(|v| v / size).collect()
            })
        })
}
