//! `Convert`, `Quantize`, `Dequantize`: the value stays, type and encoding change.

use crate::suite::codec::{F16, F32, S8, S16, Ty, U8, U16};
use crate::suite::values::Values;
use crate::suite::{Bound, Problem};

pub(super) fn problems() -> Vec<Problem> {
    let mut all = Vec::new();
    for (from, to) in [
        (F16, F32),
        (F32, F16),
        (F32, U16),
        (F16, U16),
        (F16, U8),
        (F32, U8),
        (U16, F16),
        (U16, F32),
        (U8, F16),
        (U8, F32),
        (U16, U8),
        (U8, U16),
        (U16, S16),
        (U8, S8),
        (U16, U16),
    ] {
        all.push(converted("Convert", from, to));
    }
    for to in [U16, U8, S8] {
        all.push(converted("Quantize", F32, to));
    }
    for from in [U16, U8, S8] {
        all.push(converted("Dequantize", from.clone(), F32));
        all.push(converted("Dequantize", from, F16));
    }
    all
}

fn converted(op: &'static str, from: Ty, to: Ty) -> Problem {
    let wider = from == U16 && to == U16;
    let problem = Problem::of(op, if wider { "another scale" } else { "rank 3" })
        .input(from.clone(), Values::between(161, [1, 5, 32], -1.5, 3.0));
    let (scale, bound) = if wider { (1.0 / 8192.0, Bound::Codes(1.0)) } else { (0.0, Bound::Codes(1.0)) };
    let out = match wider {
        true => {
            to.clone().with(crate::suite::codec::Fit::Given(genie_types::Quant::PerTensor { scale, offset: -20_000 }))
        }
        false => to.clone(),
    };
    let problem = problem.output(out).answer(|x| x[0].clone());
    if to.dtype.is_fixed_point() {
        problem.htp_within(bound)
    } else if to == F32 && from.dtype.is_float() {
        problem.exact()
    } else {
        problem
    }
}
