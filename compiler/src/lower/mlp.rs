//! The feed-forward half of a decoder layer: `x + down(act(gate(h)) * up(h))` with `h = norm(x)`, or with the norm behind `down`, or both;
//! without a gate, `x + down(act(up(h)))`.
//!
//! QNN has no SiLU: it is `g * sigmoid(g)`. Its `Gelu` is the one by the error function; the approximation
//! `g/2 * (1 + tanh(c (g + 0.044715 g^3)))` with `c = sqrt(2 / pi)` is `g * sigmoid(2c g + 2c * 0.044715 g^3)`.

use super::composer::{Composer, TensorValue};
use super::sink::GraphSink;
use super::weights::LayerWeights;
use super::{LayerBuilder, lora, norm};
use crate::Result;
use crate::family::{Activation, ModelSpec};

/// Twice the square root of 2 / pi.
const GELU_LINEAR: f32 = 1.595_769_2;
/// The same times 0.044715.
const GELU_CUBIC: f32 = 0.071_354_82;

/// Adds it for layer `layer`; returns the new residual stream, as graph output `out` where named.
pub(super) fn lower<S: GraphSink>(
    spec: &ModelSpec,
    layer: usize,
    builder: &mut LayerBuilder<S>,
    weights: &LayerWeights<TensorValue<S::Tensor>>,
    out: Option<&str>,
) -> Result<TensorValue<S::Tensor>> {
    let LayerBuilder { graph, x, shared, strengths, .. } = builder;
    let strengths = strengths.as_ref();
    let at = |part: &str| format!("model_layers_{layer}_mlp_{part}");
    let h = norm::optional(spec, graph, &format!("model_layers_{layer}_"), x, weights.before_mlp.as_ref())?;
    let h = graph.rows(&at("rows"), &h)?;
    let inner = match &weights.gate {
        Some(gate) => {
            let gate = lora::linear(graph, &at("gate_proj"), &h, gate, strengths)?;
            let up = lora::linear(graph, &at("up_proj"), &h, &weights.up, strengths)?;
            let active = activate(spec.activation, graph, &at, &gate)?;
            graph.mul(&at("gated"), &active, &up, None)?
        }
        None => {
            let up = lora::linear(graph, &at("up_proj"), &h, &weights.up, strengths)?;
            activate(spec.activation, graph, &at, &up)?
        }
    };
    let down = lora::linear(graph, &at("down_proj"), &inner, &weights.down, strengths)?;
    let mut down = graph.reshape(&at("down_rows"), &down, x.dims.clone(), None)?;
    if let Some(scale) = shared.as_ref().and_then(|shared| shared.residual.as_ref()) {
        down = graph.mul(&at("residual_scaled"), &down, scale, None)?;
    }
    let down = norm::optional(spec, graph, &format!("model_layers_{layer}_"), &down, weights.after_mlp.as_ref())?;
    graph.add(&at("residual"), x, &down, out)
}

fn activate<S: GraphSink>(
    activation: Activation,
    graph: &mut Composer<S>,
    at: &impl Fn(&str) -> String,
    gate: &TensorValue<S::Tensor>,
) -> Result<TensorValue<S::Tensor>> {
    let argument = match activation {
        Activation::Gelu => return graph.gelu(&at("gelu"), gate),
        Activation::Relu => return graph.relu(&at("relu"), gate),
        Activation::Silu => gate.clone(),
        Activation::GeluTanh => {
            let linear = graph.scalar(&at("gelu_linear"), GELU_LINEAR)?;
            let cubic = graph.scalar(&at("gelu_cubic"), GELU_CUBIC)?;
            let square = graph.mul(&at("square"), gate, gate, None)?;
            let scaled = graph.mul(&at("square_scaled"), &square, &cubic, None)?;
            let factor = graph.add(&at("factor"), &scaled, &linear, None)?;
            graph.mul(&at("argument"), &factor, gate, None)?
        }
    };
    let share = graph.sigmoid(&at("sigmoid"), &argument)?;
    let name = if activation == Activation::Silu { "silu" } else { "gelu" };
    graph.mul(&at(name), gate, &share, None)
}
