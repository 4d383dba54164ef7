//! Activations under their own names.

use super::neuron::{elu, gelu, hard_swish, sigmoid, tables};
use crate::suite::Problem;
use crate::suite::codec::{F16, F32, S16, Ty, U8, U16};
use crate::suite::values::Values;

type F = fn(f64) -> f64;

pub(super) fn problems() -> Vec<Problem> {
    let mut all = Vec::new();
    let named: [(&'static str, F); 4] =
        [("Sigmoid", sigmoid), ("Gelu", gelu), ("Relu", |x| x.max(0.0)), ("Tanh", f64::tanh)];
    for (op, f) in named {
        for ty in [F16, F32, U16, U8] {
            all.push(activation(op, "rank 3", f, ty, &[1, 5, 64]));
        }
        if op != "Gelu" {
            all.push(activation(op, "rank 3", f, S16, &[1, 5, 64]));
        }
        all.push(activation(op, "rank 4", f, F16, &[1, 2, 5, 32]));
    }
    all.push(activation("HardSwish", "rank 3", hard_swish, F16, &[1, 5, 64]));
    all.push(activation("Elu", "rank 3", elu, F16, &[1, 5, 64]));
    all.push(activation("Relu6", "rank 3", |x| x.clamp(0.0, 6.0), F16, &[1, 5, 64]));
    all
}

fn activation(op: &'static str, case: &str, f: F, ty: Ty, dims: &[usize]) -> Problem {
    let number = match op {
        "Gelu" => 1,
        "Sigmoid" => 6,
        "Tanh" => 8,
        _ => 4,
    };
    let bound = tables(number, &ty);
    let problem =
        Problem::of(op, case).input(ty.clone(), Values::noise(181, dims, 4.0)).output(ty).answer(move |x| x[0].map(f));
    match bound {
        Some(bound) => problem.htp_within(bound),
        None => problem,
    }
}
