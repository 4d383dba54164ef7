//! The end of the model: final norm, LM head, `logits [1, n, vocab]`, bounded where the family does: `cap * tanh(..)`.

use super::composer::TensorValue;
use super::sink::GraphSink;
use super::weights::Norm;
use super::{LayerBuilder, norm};
use crate::Result;
use crate::family::ModelSpec;
use nsp_graph::names;

/// Adds final norm and LM head to a graph.
pub(super) fn lower<S: GraphSink>(
    spec: &ModelSpec,
    builder: &mut LayerBuilder<S>,
    final_norm: &Norm<TensorValue<S::Tensor>>,
    head: &TensorValue<S::Tensor>,
) -> Result<()> {
    let LayerBuilder { graph, x, variant, .. } = builder;
    let h = norm::lower(spec, graph, "model_", x, final_norm)?;
    let h = graph.rows("lm_head_rows_in", &h)?;
    let logits = graph.linear("lm_head", &h, head, None)?;
    let dims = vec![1, variant.ar().get(), spec.vocab];
    let Some(cap) = spec.factors.logits_cap else {
        graph.reshape("lm_head_rows", &logits, dims, Some(names::LOGITS))?;
        return Ok(());
    };
    let logits = graph.reshape("lm_head_rows", &logits, dims, None)?;
    let cap = graph.scalar("logits_cap", cap as f32)?;
    let bounded = graph.tanh("logits_bounded", &logits)?;
    graph.mul("logits_capped", &bounded, &cap, Some(names::LOGITS))?;
    Ok(())
}
