//! One decoder layer: attention, then feed-forward, both added to the residual stream.

use super::composer::TensorValue;
use super::sink::GraphSink;
use super::weights::LayerWeights;
use super::{LayerBuilder, attention, mlp};
use crate::Result;
use crate::family::ModelSpec;

/// Lowers layer `layer`; its result is the graph output `out` where named.
pub(super) fn lower<S: GraphSink>(
    spec: &ModelSpec,
    layer: usize,
    builder: &mut LayerBuilder<S>,
    weights: &LayerWeights<TensorValue<S::Tensor>>,
    out: Option<&str>,
) -> Result<()> {
    builder.x = attention::lower(spec, layer, builder, weights)?;
    builder.x = mlp::lower(spec, layer, builder, weights, out)?;
    Ok(())
}
