//! The end of the model: final norm, LM head, `logits [1, n, vocab]`.

use super::LayerBuilder;
use super::composer::TensorValue;
use super::sink::GraphSink;
use crate::Result;
use crate::family::ModelSpec;
use nsp_graph::names;

/// Adds final norm and LM head to a graph.
pub(super) fn lower<S: GraphSink>(
    spec: &ModelSpec,
    builder: &mut LayerBuilder<S>,
    norm: &TensorValue<S::Tensor>,
    head: &TensorValue<S::Tensor>,
) -> Result<()> {
    let LayerBuilder { graph, x, variant, .. } = builder;
    let h = graph.rms_norm("model_norm", x, norm, spec.rms_eps)?;
    let h = graph.rows("lm_head_rows_in", &h)?;
    let logits = graph.linear("lm_head", &h, head, None)?;
    graph.reshape("lm_head_rows", &logits, vec![1, variant.ar().get(), spec.vocab], Some(names::LOGITS))?;
    Ok(())
}
