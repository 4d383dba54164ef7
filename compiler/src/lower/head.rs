//! The end of the model: final norm (and hidden states where they are wanted), LM head, `logits [1, n, vocab]`, bounded where the family does: `cap * tanh(..)`.

use super::composer::TensorValue;
use super::sink::GraphSink;
use super::weights::Norm;
use super::{LayerBuilder, norm};
use crate::Result;
use crate::family::ModelSpec;
use nsp_graph::names;

/// Name of the head's weight where it is an input; its file is named after it.
const HEAD_WEIGHT: &str = "lm_head_weight";

/// Adds final norm and LM head to a graph.
pub(super) fn lower<S: GraphSink>(
    spec: &ModelSpec,
    builder: &mut LayerBuilder<S>,
    final_norm: Option<&Norm<TensorValue<S::Tensor>>>,
    (head, gives_features): (&TensorValue<S::Tensor>, bool),
) -> Result<()> {
    if gives_features {
        let LayerBuilder { graph, x, .. } = builder;
        let h = norm::optional(spec, graph, "model_", x, final_norm)?;
        let dims = h.dims.clone();
        *x = graph.reshape("last_hidden_states_rows", &h, dims, Some(names::LAST_HIDDEN_STATES))?;
    }
    let final_norm = final_norm.filter(|_| !gives_features);
    let dims = vec![1, builder.variant.ar().get(), spec.vocab];
    lower_shaped(spec, builder, final_norm, head, dims)
}

/// The same for logits of any extents with as many rows.
pub(super) fn lower_shaped<S: GraphSink>(
    spec: &ModelSpec,
    builder: &mut LayerBuilder<S>,
    final_norm: Option<&Norm<TensorValue<S::Tensor>>>,
    head: &TensorValue<S::Tensor>,
    dims: Vec<usize>,
) -> Result<()> {
    let LayerBuilder { graph, x, .. } = builder;
    let h = norm::optional(spec, graph, "model_", x, final_norm)?;
    let h = graph.rows("lm_head_rows_in", &h)?;
    let logits = graph.linear("lm_head", &h, head, None)?;
    finish(spec, builder, &logits, dims)
}

/// The same with the head's weight as an input, `lm_head_weight [1, 1, vocab, hidden]`.
pub(super) fn lower_with_input<S: GraphSink>(
    spec: &ModelSpec,
    builder: &mut LayerBuilder<S>,
    final_norm: Option<&Norm<TensorValue<S::Tensor>>>,
) -> Result<()> {
    let LayerBuilder { graph, x, variant, .. } = builder;
    let (n, dtype) = (variant.ar().get(), graph.dtype());
    let weight = graph.input(HEAD_WEIGHT, vec![1, 1, spec.vocab, spec.hidden], dtype)?;
    let h = norm::optional(spec, graph, "model_", x, final_norm)?;
    let h = graph.reshape("lm_head_rows_in", &h, vec![1, 1, n, spec.hidden], None)?;
    let logits = graph.matmul_transposed("lm_head", &h, &weight)?;
    finish(spec, builder, &logits, vec![1, n, spec.vocab])
}

/// Logits in their shape, bounded where the family does.
fn finish<S: GraphSink>(
    spec: &ModelSpec,
    builder: &mut LayerBuilder<S>,
    logits: &TensorValue<S::Tensor>,
    dims: Vec<usize>,
) -> Result<()> {
    let LayerBuilder { graph, .. } = builder;
    let Some(cap) = spec.factors.logits_cap else {
        graph.reshape("lm_head_rows", logits, dims, Some(names::LOGITS))?;
        return Ok(());
    };
    let logits = graph.reshape("lm_head_rows", logits, dims, None)?;
    let cap = graph.scalar("logits_cap", cap as f32)?;
    let bounded = graph.tanh("logits_bounded", &logits)?;
    graph.mul("logits_capped", &bounded, &cap, Some(names::LOGITS))?;
    Ok(())
}
