//! The beginning of an EAGLE head: `x = fc([embedding, target_hidden_states])`.
//!
//! *Shapes*: both halves `[1, n, hidden]`, the weight `[hidden, 2 * hidden]`, the embedding's half first.

use super::sink::GraphSink;
use super::{LayerBuilder, Source, weights};
use crate::Result;
use crate::family::ModelSpec;
use nsp_graph::names;

/// Makes the residual stream of a head; that of another model stays as it is.
pub(super) fn lower<S: GraphSink>(
    spec: &ModelSpec,
    builders: &mut [LayerBuilder<S>],
    source: &mut Source<'_>,
) -> Result<()> {
    let Some(fc) = weights::eagle_fc(spec) else { return Ok(()) };
    let weight = source.load(&fc.weight, builders.iter_mut().map(|b| &mut b.graph))?;
    let bias = match &fc.bias {
        Some(bias) => Some(source.load(bias, builders.iter_mut().map(|b| &mut b.graph))?),
        None => None,
    };
    for (i, LayerBuilder { variant, graph, x, .. }) in builders.iter_mut().enumerate() {
        let (n, dtype) = (variant.ar().get(), graph.dtype());
        let features = graph.input(names::TARGET_HIDDEN_STATES, vec![1, n, spec.hidden], dtype)?;
        let both = graph.concat("model_fc_in", x, &features, 2)?;
        let rows = graph.rows("model_fc_rows_in", &both)?;
        let h = graph.linear("model_fc", &rows, &weight[i], bias.as_ref().map(|bias| &bias[i]))?;
        *x = graph.reshape("model_fc_rows", &h, vec![1, n, spec.hidden], None)?;
    }
    Ok(())
}
