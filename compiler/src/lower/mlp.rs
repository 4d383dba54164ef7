//! The feed-forward half of a decoder layer: `x + down(silu(gate(h)) * up(h))` with `h = norm(x)`.
//!
//! QNN has no SiLU: it is `g * sigmoid(g)`.

use super::LayerBuilder;
use super::composer::TensorValue;
use super::sink::GraphSink;
use super::weights::LayerWeights;
use crate::Result;
use crate::family::ModelSpec;

/// Adds it for layer `layer`; returns the new residual stream, as graph output `out` where named.
pub(super) fn lower<S: GraphSink>(
    spec: &ModelSpec,
    layer: usize,
    builder: &mut LayerBuilder<S>,
    weights: &LayerWeights<TensorValue<S::Tensor>>,
    out: Option<&str>,
) -> Result<TensorValue<S::Tensor>> {
    let LayerBuilder { graph, x, .. } = builder;
    let at = |part: &str| format!("model_layers_{layer}_mlp_{part}");
    let norm = format!("model_layers_{layer}_post_attention_layernorm");
    let h = graph.rms_norm(&norm, x, &weights.post_norm, spec.rms_eps)?;
    let h = graph.rows(&at("rows"), &h)?;
    let gate = graph.linear(&at("gate_proj"), &h, &weights.gate.weight, weights.gate.bias.as_ref())?;
    let up = graph.linear(&at("up_proj"), &h, &weights.up.weight, weights.up.bias.as_ref())?;
    let share = graph.sigmoid(&at("sigmoid"), &gate)?;
    let silu = graph.mul(&at("silu"), &gate, &share)?;
    let inner = graph.mul(&at("gated"), &silu, &up)?;
    let down = graph.linear(&at("down_proj"), &inner, &weights.down.weight, weights.down.bias.as_ref())?;
    let down = graph.reshape(&at("down_rows"), &down, x.dims.clone(), None)?;
    graph.add(&at("residual"), x, &down, out)
}
