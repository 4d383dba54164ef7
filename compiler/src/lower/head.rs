//! The end of the model: final norm, LM head, `logits [1, n, vocab]`.

use super::Flow;
use super::composer::Val;
use super::sink::GraphSink;
use crate::Result;
use crate::family::ModelSpec;

/// Adds them to a graph.
pub(super) fn lower<S: GraphSink>(
    spec: &ModelSpec,
    flow: &mut Flow<S>,
    norm: &Val<S::Tensor>,
    head: &Val<S::Tensor>,
) -> Result<()> {
    let Flow { graph, x, variant, .. } = flow;
    let h = graph.rms_norm("model_norm", x, norm, spec.rms_eps)?;
    let h = graph.rows("lm_head_rows_in", &h)?;
    let logits = graph.linear("lm_head", &h, head, None)?;
    graph.reshape("lm_head_rows", &logits, vec![1, variant.ar().get(), spec.vocab], Some("logits"))?;
    Ok(())
}
