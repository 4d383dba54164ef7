//! Ops in company, as decoders have them: what a backend fuses must still be right.

use genie_types::Quant;
use qnn_api::Param;

use super::linear::product;
use super::mat_mul::mat_mul;
use super::neuron::sigmoid;
use crate::suite::codec::{F16, F32, Fit, I32, Ty, U8, U16};
use crate::suite::values::Values;
use crate::suite::{Bound, Problem};

pub(super) fn problems() -> Vec<Problem> {
    let mut all = Vec::new();
    for ty in [F16, F32] {
        all.push(swiglu(&ty));
        all.push(attention("masked, grouped heads", Types::floats(&ty)));
        all.push(cache_in_place(&ty));
    }
    all.push(attention("masked, grouped heads, 8-bit cache", Types::codes()));
    all
}

/// Types of queries, cache, mask, scores, shares.
struct Types {
    queries: Ty,
    cache: Ty,
    mask: Ty,
    scores: Ty,
    masked: Ty,
    shares: Ty,
    /// What the mask adds to hidden columns.
    hidden: f64,
    htp: Bound,
    host: Option<Bound>,
}

impl Types {
    fn floats(ty: &Ty) -> Self {
        let ty = || ty.clone();
        let (queries, cache, mask, scores, masked, shares) = (ty(), ty(), ty(), ty(), ty(), ty());
        Self { queries, cache, mask, scores, masked, shares, hidden: -1e4, htp: Bound::Largest(5e-3), host: None }
    }

    /// As a model with 16-bit activations and an 8-bit cache has them; each step between rounds to its codes.
    fn codes() -> Self {
        let given = |ty: Ty, scale: f32, offset: i32| ty.with(Fit::Given(Quant::PerTensor { scale, offset }));
        Self {
            queries: U16,
            cache: U8.with(Fit::Centred),
            mask: U16,
            scores: given(U16, 16.0 / 65535.0, -32768),
            masked: given(U16, 40.0 / 65535.0, -49152),
            shares: given(U16, 1.0 / 65535.0, 0),
            hidden: -20.0,
            htp: Bound::Largest(1e-3),
            host: Some(Bound::Largest(1e-3)),
        }
    }
}

/// `down(silu(gate(x)) * up(x))`.
fn swiglu(ty: &Ty) -> Problem {
    let mut problem = Problem::graph("SwiGLU", "gate, up, silu, down")
        .input(ty.clone(), Values::noise(261, [6, 64], 1.0))
        .constant(ty.clone(), Values::noise(262, [96, 64], 0.3))
        .constant(ty.clone(), Values::noise(263, [96, 64], 0.3))
        .constant(ty.clone(), Values::noise(264, [64, 96], 0.3));
    for name in ["gate", "up", "soft", "silu", "both"] {
        problem = problem.native(name, ty, [6, 96]);
    }
    problem
        .node("FullyConnected", vec![], &["x0", "x1"], &["gate"])
        .node("FullyConnected", vec![], &["x0", "x2"], &["up"])
        .node("Sigmoid", vec![], &["gate"], &["soft"])
        .node("ElementWiseMultiply", vec![], &["gate", "soft"], &["silu"])
        .node("ElementWiseMultiply", vec![], &["silu", "up"], &["both"])
        .node("FullyConnected", vec![], &["both", "x3"], &["y0"])
        .output(ty.clone())
        .answer(|x| {
            let (gate, up) = (product(&x[0], &x[1], None), product(&x[0], &x[2], None));
            product(&gate.zip(&up, |g, u| g * sigmoid(g) * u), &x[3], None)
        })
        .htp_within(Bound::Largest(5e-3))
}

/// Softmax of masked scores, mixed values: 4 query heads over 2 key heads.
fn attention(case: &str, types: Types) -> Problem {
    let transposes = || vec![("transpose_in0", Param::Bool(false)), ("transpose_in1", Param::Bool(false))];
    let mask = Values::from_fn([1, 1, 6, 24], |i| if i[3] <= i[2] + 18 && i[3] != 3 { 0.0 } else { types.hidden });
    let mut problem = Problem::graph("Attention", case)
        .input(types.queries.clone(), Values::noise(271, [2, 2, 6, 16], 0.7))
        .input(types.cache.clone(), Values::noise(272, [2, 1, 16, 24], 1.0))
        .input(types.cache, Values::noise(273, [2, 1, 24, 16], 1.0))
        .input(types.mask, mask);
    for (name, ty) in [("scores", &types.scores), ("masked", &types.masked), ("shares", &types.shares)] {
        problem = problem.native(name, ty, [2, 2, 6, 24]);
    }
    let problem = problem
        .node("MatMul", transposes(), &["x0", "x1"], &["scores"])
        .node("ElementWiseAdd", vec![], &["scores", "x3"], &["masked"])
        .node("Softmax", vec![("axis", Param::U32(3))], &["masked"], &["shares"])
        .node("MatMul", transposes(), &["shares", "x2"], &["y0"])
        .output(types.queries)
        .answer(|x| {
            let masked = mat_mul(&x[0], &x[1], [false, false]).zip(&x[3], |s, m| s + m);
            let shares = masked.map_rows(|row| {
                let top = row.iter().fold(f64::MIN, |m, v| m.max(*v));
                let powers: Vec<f64> = row.iter().map(|v| (v - top).exp()).collect();
                let sum: f64 = powers.iter().sum();
                powers.iter().map(|p| p / sum).collect()
            });
            mat_mul(&shares, &x[2], [false, false])
        })
        .htp_within(types.htp);
    match types.host {
        Some(bound) => problem.host_within(bound),
        None => problem,
    }
}

/// New keys written into the cache, which is an output too, and read by the product in the same graph.
fn cache_in_place(ty: &Ty) -> Problem {
    Problem::graph("ScatterThenMatMul", "a cache written in place and read")
        .input(ty.clone(), Values::noise(281, [2, 1, 16, 24], 1.0))
        .input(I32, Values::from_fn([2, 1, 16, 4], |i| (9 + i[3]) as f64))
        .input(ty.clone(), Values::noise(282, [2, 1, 16, 4], 1.0))
        .input(ty.clone(), Values::noise(283, [2, 2, 4, 16], 0.7))
        .node("ScatterElements", vec![("axis", Param::U32(3))], &["x0", "x1", "x2"], &["y0"])
        .node(
            "MatMul",
            vec![("transpose_in0", Param::Bool(false)), ("transpose_in1", Param::Bool(false))],
            &["x3", "y0"],
            &["y1"],
        )
        .output(ty.clone())
        .output(ty.clone())
        .answers(|x| {
            let mut cache = x[0].clone();
            Values::from_fn(x[2].dims.clone(), |i| {
                *cache.at_mut(&[i[0], i[1], i[2], 9 + i[3]]) = x[2].at(i);
                0.0
            });
            let scores = mat_mul(&x[3], &cache, [false, false]);
            vec![cache, scores]
        })
}
