//! Norms over the residual stream, of either kind.

use super::composer::{Composer, TensorValue};
use super::sink::GraphSink;
use super::weights::Norm;
use crate::Result;
use crate::family::ModelSpec;

/// Adds a norm; `at` is what its node's name begins with.
pub(super) fn lower<S: GraphSink>(
    spec: &ModelSpec,
    graph: &mut Composer<S>,
    at: &str,
    x: &TensorValue<S::Tensor>,
    norm: &Norm<TensorValue<S::Tensor>>,
) -> Result<TensorValue<S::Tensor>> {
    let node = format!("{at}{}", norm.name);
    match &norm.bias {
        Some(bias) => graph.layer_norm(&node, x, &norm.weight, bias, spec.norm_eps),
        None => graph.rms_norm(&node, x, &norm.weight, spec.norm_eps),
    }
}

/// The same where there is a norm, else `x`.
pub(super) fn optional<S: GraphSink>(
    spec: &ModelSpec,
    graph: &mut Composer<S>,
    at: &str,
    x: &TensorValue<S::Tensor>,
    norm: Option<&Norm<TensorValue<S::Tensor>>>,
) -> Result<TensorValue<S::Tensor>> {
    norm.map_or_else(|| Ok(x.clone()), |norm| lower(spec, graph, at, x, norm))
}
