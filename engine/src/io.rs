//! The persistent buffers of a model and what each is for: made once from the layout, bound without allocation.
//!
//! One buffer serves all variants of a tensor with the same role (and element type), sized for the largest; tensors
//! between splits share theirs by name. Cache tensors are the KV manager's and are lent step by step.

use std::sync::Arc;

use genie_types::{Dtype, LayerIdx, Quant};
use kvmanager::TensorView;
use nsp_graph::{GraphLayout, InputRole, ModelLayout, OutputRole, WireIdx};
use qnn_api::SharedMemory;

use crate::EngineError;
use crate::buffer::Buffer;
use crate::executor::Binding;

/// What a buffer is for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum BufferRole {
    /// Filled by the engine; graphs that take it in another type have another buffer.
    Input(InputRole, Dtype, Quant),
    /// From one split to another.
    Wire(WireIdx),
    /// A layer's anchor with this step's keys.
    AnchorOut(LayerIdx, Dtype, Quant),
    /// Hidden states behind the last layer.
    Features(Dtype, Quant),
    /// Logits, in the element type of the graph.
    Logits(Dtype, Quant),
    /// Written by a graph; nothing reads it.
    Extra(usize, String),
}

/// A tensor that has one of the shared buffers.
#[derive(Clone, Copy, Debug)]
struct Slot {
    output: bool,
    tensor: usize,
    len: usize,
}

/// Where the buffers of one graph go.
#[derive(Debug)]
pub(crate) struct GraphIo {
    /// Parallel to the buffers.
    slots: Vec<Option<Slot>>,
    /// Parallel to the split's cache tensors: the place of the past, if the graph has one, and of the new rows.
    kv: Vec<(Option<usize>, usize)>,
}

/// All buffers and their users.
#[derive(Debug)]
pub(crate) struct IoBuffers {
    pub(crate) buffers: Vec<Buffer>,
    roles: Vec<BufferRole>,
    /// By split, then by graph.
    graphs: Vec<Vec<GraphIo>>,
}

impl IoBuffers {
    /// `memory`: where the buffers are to be, if not in plain memory; they begin at multiples of `align`.
    pub(crate) fn new(
        layout: &ModelLayout,
        memory: Option<&Arc<SharedMemory>>,
        align: usize,
    ) -> Result<Self, EngineError> {
        let mut roles: Vec<BufferRole> = Vec::new();
        let mut sizes: Vec<usize> = Vec::new();
        let mut place = |wanted: BufferRole, len: usize| {
            let at = roles.iter().position(|u| *u == wanted).unwrap_or_else(|| {
                roles.push(wanted);
                sizes.push(0);
                roles.len() - 1
            });
            sizes[at] = sizes[at].max(len);
            at
        };
        let mut placed: Vec<Vec<Vec<(usize, Slot)>>> = Vec::new();
        for (s, split) in layout.splits.iter().enumerate() {
            placed.push(split.graphs.iter().map(|graph| shared(s, graph, &mut place)).collect());
        }
        let buffers = sizes.into_iter().map(|len| Buffer::shared(memory, len, align)).collect::<Result<Vec<_>, _>>()?;
        let graphs = layout
            .splits
            .iter()
            .zip(placed)
            .map(|(split, placed)| {
                let graphs = split.graphs.iter().zip(placed);
                graphs.map(|(graph, placed)| GraphIo::new(graph, split.kv.len(), &placed, buffers.len())).collect()
            })
            .collect();
        Ok(Self { buffers, roles, graphs })
    }

    /// The buffers with what they are for.
    pub(crate) fn roles(&self) -> &[BufferRole] {
        &self.roles
    }

    /// The buffer that a graph's logits are in.
    pub(crate) fn logits(&self, split: usize, graph: usize) -> Option<usize> {
        let slots = &self.graphs[split][graph].slots;
        (0..slots.len()).find(|&i| slots[i].is_some() && matches!(self.roles[i], BufferRole::Logits(..)))
    }

    /// The buffer that an output of a graph is in; `None` for the cache's.
    pub(crate) fn output(&self, split: usize, graph: usize, tensor: usize) -> Option<usize> {
        let slots = &self.graphs[split][graph].slots;
        slots.iter().position(|slot| slot.is_some_and(|slot| slot.output && slot.tensor == tensor))
    }

    /// True if the graph is bound to the buffer.
    pub(crate) fn is_bound(&self, split: usize, graph: usize, buffer: usize) -> bool {
        self.graphs[split][graph].slots[buffer].is_some()
    }

    /// Bytes of the buffer that a graph reads or writes, if it is bound to it.
    pub(crate) fn bound_bytes(&self, split: usize, graph: usize, buffer: usize) -> Option<usize> {
        self.graphs[split][graph].slots[buffer].map(|slot| slot.len)
    }

    /// Everything a graph reads and writes, each tensor once.
    pub(crate) fn bind<'io>(
        &'io mut self,
        split: usize,
        graph: usize,
        views: impl Iterator<Item = TensorView<'io>> + 'io,
    ) -> impl Iterator<Item = Binding<'io>> + 'io {
        let plan = &self.graphs[split][graph];
        let shared = self.buffers.iter_mut().zip(&plan.slots).filter_map(|(buffer, slot)| {
            let slot = (*slot)?;
            Some(if slot.output {
                Binding::Output(slot.tensor, &mut buffer.bytes_mut()[..slot.len])
            } else {
                Binding::Input(slot.tensor, &buffer.bytes()[..slot.len])
            })
        });
        let cache = views.zip(&plan.kv).flat_map(|(view, &(past, new))| {
            let past = past.map(|tensor| Binding::Input(tensor, view.past));
            [past, Some(Binding::Output(new, view.new))].into_iter().flatten()
        });
        shared.chain(cache)
    }
}

/// The tensors of a graph that live in shared buffers.
fn shared(split: usize, graph: &GraphLayout, place: &mut impl FnMut(BufferRole, usize) -> usize) -> Vec<(usize, Slot)> {
    let inputs = graph.inputs.iter().zip(&graph.info.inputs).enumerate().filter_map(|(tensor, (role, info))| {
        let wanted = match *role {
            InputRole::Past(_) => return None,
            InputRole::Wire(wire) => BufferRole::Wire(wire),
            role => BufferRole::Input(role, info.dtype, info.quant.clone()),
        };
        Some((wanted, Slot { output: false, tensor, len: info.size_bytes() }))
    });
    let outputs = graph.outputs.iter().zip(&graph.info.outputs).enumerate().filter_map(|(tensor, (role, info))| {
        let wanted = match *role {
            OutputRole::New(_) => return None,
            OutputRole::Wire(wire) => BufferRole::Wire(wire),
            OutputRole::Logits => BufferRole::Logits(info.dtype, info.quant.clone()),
            OutputRole::Anchor(layer) => BufferRole::AnchorOut(layer, info.dtype, info.quant.clone()),
            OutputRole::Features => BufferRole::Features(info.dtype, info.quant.clone()),
            OutputRole::Extra => BufferRole::Extra(split, info.name.clone()),
        };
        Some((wanted, Slot { output: true, tensor, len: info.size_bytes() }))
    });
    inputs.chain(outputs).map(|(wanted, slot)| (place(wanted, slot.len), slot)).collect()
}

impl GraphIo {
    fn new(graph: &GraphLayout, n_kv: usize, placed: &[(usize, Slot)], n_buffers: usize) -> Self {
        let mut slots = vec![None; n_buffers];
        for &(buffer, slot) in placed {
            slots[buffer] = Some(slot);
        }
        let kv = (0..n_kv).map(|i| {
            let past = graph.inputs.iter().position(|role| matches!(role, InputRole::Past(k) if k.0 == i));
            let new = graph.outputs.iter().position(|role| matches!(role, OutputRole::New(k) if k.0 == i));
            (past, new.expect("the layout gives every graph of a split its new rows"))
        });
        Self { slots, kv: kv.collect() }
    }
}
