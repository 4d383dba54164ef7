//! One decoder layer: attention, then feed-forward, both added to the residual stream.

use super::composer::Val;
use super::sink::GraphSink;
use super::weights::LayerWeights;
use super::{Flow, attention, mlp};
use crate::Result;
use crate::family::ModelSpec;

/// Lowers layer `layer`; its result is the graph output `out` where named.
pub(super) fn lower<S: GraphSink>(
    spec: &ModelSpec,
    layer: usize,
    flow: &mut Flow<S>,
    weights: &LayerWeights<Val<S::Tensor>>,
    out: Option<&str>,
) -> Result<()> {
    flow.x = attention::lower(spec, layer, flow, weights)?;
    flow.x = mlp::lower(spec, layer, flow, weights, out)?;
    Ok(())
}
