//! Look-ups that several checks need: tensors by name with their place, the width of a head.

use genie_types::KvKind;
use genie_types::{Quant, TensorInfo};
use nsp_graph::names::KvName;

use crate::Case;

/// A tensor and where it is.
pub(super) struct Tensor<'c> {
    pub(super) binary: String,
    pub(super) graph: &'c str,
    pub(super) tensor: &'c TensorInfo,
}

impl Tensor<'_> {
    /// How a finding names the place.
    pub(super) fn at(&self) -> String {
        format!("{} graph `{}`", self.binary, self.graph)
    }
}

/// All inputs whose name is wanted, of all graphs of all binaries that could be read.
pub(super) fn inputs(case: &Case, wanted: fn(&str) -> bool) -> impl Iterator<Item = Tensor<'_>> {
    tensors(case, |graph| &graph.inputs, wanted)
}

/// All such outputs.
pub(super) fn outputs(case: &Case, wanted: fn(&str) -> bool) -> impl Iterator<Item = Tensor<'_>> {
    tensors(case, |graph| &graph.outputs, wanted)
}

fn tensors(
    case: &Case,
    list: fn(&genie_types::GraphInfo) -> &Vec<TensorInfo>,
    wanted: fn(&str) -> bool,
) -> impl Iterator<Item = Tensor<'_>> {
    case.described().flat_map(move |(binary, info)| {
        info.graphs.iter().flat_map(move |graph| {
            list(graph).iter().filter(move |t| wanted(&t.name)).map(move |tensor| Tensor {
                binary: binary.name(),
                graph: &graph.name,
                tensor,
            })
        })
    })
}

/// Width of a head, and the tensor that tells it.
pub(super) fn head_dim(case: &Case) -> Option<(usize, String)> {
    let is_value = |name: &str| KvName::parse(name).is_some_and(|name| name.kind == KvKind::Value);
    let value = outputs(case, is_value).next()?;
    let dim = *value.tensor.dims.last()?;
    Some((dim, format!("`{}` of {}", value.tensor.name, value.at())))
}

/// A tensor's type and encoding.
pub(super) fn encoding_words(t: &TensorInfo) -> String {
    match &t.quant {
        Quant::None => t.dtype.to_string(),
        Quant::PerTensor { scale, offset } => format!("{} with scale {scale:e} and offset {offset}", t.dtype),
        _ => format!("{} with another encoding", t.dtype),
    }
}
