//! Look-ups for several checks: tensors by name, the width of a head.

use genie_types::KvKind;
use genie_types::{Quant, TensorInfo};
use nsp_graph::names::KvName;

use crate::Facts;

/// A tensor with its binary and graph.
pub(super) struct Tensor<'f> {
    pub(super) binary: String,
    pub(super) graph: &'f str,
    pub(super) tensor: &'f TensorInfo,
}

impl Tensor<'_> {
    /// The place, as a finding names it.
    pub(super) fn at(&self) -> String {
        format!("{} graph `{}`", self.binary, self.graph)
    }
}

/// The inputs with a wanted name, in all graphs of all readable binaries.
pub(super) fn inputs(facts: &Facts, wanted: fn(&str) -> bool) -> impl Iterator<Item = Tensor<'_>> {
    tensors(facts, |graph| &graph.inputs, wanted)
}

/// The outputs with a wanted name.
pub(super) fn outputs(facts: &Facts, wanted: fn(&str) -> bool) -> impl Iterator<Item = Tensor<'_>> {
    tensors(facts, |graph| &graph.outputs, wanted)
}

fn tensors(
    facts: &Facts,
    list: fn(&genie_types::GraphInfo) -> &Vec<TensorInfo>,
    wanted: fn(&str) -> bool,
) -> impl Iterator<Item = Tensor<'_>> {
    facts.described().flat_map(move |(binary, info)| {
        info.graphs.iter().flat_map(move |graph| {
            list(graph).iter().filter(move |t| wanted(&t.name)).map(move |tensor| Tensor {
                binary: binary.name(),
                graph: &graph.name,
                tensor,
            })
        })
    })
}

/// Width of a head, and the tensor it is read from.
pub(super) fn head_dim(facts: &Facts) -> Option<(usize, String)> {
    let is_value = |name: &str| KvName::parse(name).is_some_and(|name| name.kind == KvKind::Value);
    let value = outputs(facts, is_value).next()?;
    let dim = *value.tensor.dims.last()?;
    Some((dim, format!("`{}` of {}", value.tensor.name, value.at())))
}

/// A tensor's dtype and encoding, as text.
pub(super) fn encoding_words(t: &TensorInfo) -> String {
    match &t.quant {
        Quant::None => t.dtype.to_string(),
        Quant::PerTensor { scale, offset } => format!("{} with scale {scale:e} and offset {offset}", t.dtype),
        _ => format!("{} with another encoding", t.dtype),
    }
}
