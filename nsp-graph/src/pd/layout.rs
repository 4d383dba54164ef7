//! What the graphs of a fused pair mean: roles of their tensors, widths, the cache.

use genie_types::{Dtype, GraphIdx, GraphInfo, KvTensor, Quant};

use super::Slot;

/// What an input is filled with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// Token ids, `[1, N]`.
    Ids,
    /// Positions, `[N]`.
    Positions,
    /// What each row sees, `[1, 1, N, CL]`.
    Mask,
    /// The six words of `fusion_ctrl`.
    Ctrl,
    /// The past of a cache tensor (index into [`PairLayout::tensors`]).
    Past(Slot, usize),
    /// Always -1.
    Override,
}

/// What an output holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// The rows of logits that are wanted.
    Logits,
    /// New rows of a cache tensor.
    Present(usize),
    /// A past with the new rows in it.
    Updated(Slot, usize),
}

/// One graph.
#[derive(Clone, Debug, PartialEq)]
pub struct PairGraph {
    /// Index of its binary.
    pub binary: usize,
    /// Its number there.
    pub graph: GraphIdx,
    /// As the binary has it.
    pub info: GraphInfo,
    /// Rows of a step: N, or 1 for a decode row alone.
    pub rows: usize,
    /// Rows of logits: 2, or 1.
    pub n_logits: usize,
    /// Roles of the inputs, in their order.
    pub inputs: Vec<Input>,
    /// Roles of the outputs, in their order.
    pub outputs: Vec<Output>,
}

/// A cache tensor as these graphs have it.
#[derive(Clone, Debug, PartialEq)]
pub struct PairTensor {
    /// Geometry; lines of rows as in [`KvTensor`].
    pub tensor: KvTensor,
    /// Element type in the graphs.
    pub dtype: Dtype,
    /// Encoding.
    pub quant: Quant,
}

/// All graphs of a fused pair.
///
/// *Invariants*: `pairs` has at least one graph, widths rise; all graphs have the same context, vocabulary and cache tensors.
#[derive(Clone, Debug, PartialEq)]
pub struct PairLayout {
    /// Columns of a mask: past and new.
    pub context: usize,
    /// The graphs for both requests, by rising width.
    pub pairs: Vec<PairGraph>,
    /// The graph for a decode row alone.
    pub single: PairGraph,
    /// Keys and values by layer: key 0, value 0, key 1, ...
    pub tensors: Vec<PairTensor>,
    /// Entries of the vocabulary.
    pub vocab_size: usize,
    /// The graphs write new rows into the past themselves.
    pub updates: bool,
}

impl PairLayout {
    /// Rows of the past that a graph of so many rows sees.
    pub fn past_of(&self, rows: usize) -> usize {
        self.context - rows
    }

    /// All graphs: those for both requests, then the one for a decode row.
    pub fn graphs(&self) -> impl Iterator<Item = &PairGraph> {
        self.pairs.iter().chain([&self.single])
    }
}
