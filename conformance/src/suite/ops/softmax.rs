//! `Softmax` and `LogSoftmax`, over the last axis unless said otherwise.

use genie_types::Quant;
use qnn_api::Param;

use crate::suite::codec::{F16, F32, Fit, Ty, U8, U16};
use crate::suite::values::Values;
use crate::suite::{Bound, Problem};

pub(super) fn problems() -> Vec<Problem> {
    let to_one = |ty: Ty, codes: f32| ty.with(Fit::Given(Quant::PerTensor { scale: codes.recip(), offset: 0 }));
    let noise = |dims: &[usize]| Values::noise(101, dims, 4.0);
    let masked = Values::from_fn([1, 4, 6, 24], |i| {
        let score = ((i[1] * 31 + i[2] * 17 + i[3] * 7) % 23) as f64 / 6.0 - 2.0;
        if i[3] > i[2] + 10 { score - 1e4 } else { score }
    });
    vec![
        softmax("Softmax", "rank 4", F16, F16, noise(&[1, 4, 6, 24]), 1.0),
        softmax("Softmax", "rank 2", F16, F16, noise(&[5, 33]), 1.0).htp_within(Bound::Largest(3e-3)),
        softmax("Softmax", "rank 4", F32, F32, noise(&[1, 4, 6, 24]), 1.0),
        softmax("Softmax", "masked by -1e4", F16, F16, masked, 1.0),
        softmax("Softmax", "beta 0.5", F16, F16, noise(&[1, 4, 6, 24]), 0.5),
        softmax("Softmax", "rank 4", U16, to_one(U16, 65535.0), noise(&[1, 4, 6, 24]), 1.0)
            .htp_within(Bound::Largest(1e-3)),
        softmax("Softmax", "rank 4", U8, to_one(U8, 255.0), noise(&[1, 4, 6, 24]), 1.0),
        softmax("LogSoftmax", "rank 4", F16, F16, noise(&[1, 1, 6, 24]), 1.0),
        softmax("LogSoftmax", "rank 4", F32, F32, noise(&[1, 1, 6, 24]), 1.0),
        softmax("LogSoftmax", "rank 4", U16, U16, noise(&[1, 1, 6, 24]), 1.0).htp_within(Bound::Codes(5.0)),
    ]
}

fn softmax(op: &'static str, case: &str, ty: Ty, out: Ty, values: Values, beta: f32) -> Problem {
    let axis = values.dims.len() - 1;
    let mut problem = Problem::of(op, case).input(ty, values).count("axis", axis);
    if beta != 1.0 {
        problem = problem.param("beta", Param::F32(beta));
    }
    problem.output(out).answer(move |x| {
        x[0].map_rows(|row| {
            let top = row.iter().fold(f64::MIN, |m, v| m.max(*v));
            let shifted: Vec<f64> = row.iter().map(|v| (v - top) * f64::from(beta)).collect();
            let sum: f64 = shifted.iter().map(|v| v.exp()).sum();
            let one = |v: &f64| if op == "Softmax" { v.exp() / sum } else { v - sum.ln() };
            shifted.iter().map(one).collect()
        })
    })
}
