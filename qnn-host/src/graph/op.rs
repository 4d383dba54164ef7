//! Typed operations: QNN's op types with their parameters read, families merged and shapes made explicit.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use super::ExecError;
use super::scalar::{BinaryOp, ReduceOp, ScatterOp, UnaryOp};
use super::step_builder::StepBuilder;
use super::typed::Node;
use crate::ir::{Dtype, Quant};
use crate::kernels::{self, BlockRule};
use crate::step::Step;

/// What a node computes. Operands are listed in the order of [`Node::inputs`]; those in brackets are there
/// when the flag of that name is set.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Op {
    /// `x` as the client or a constant declares it -> `f32` or `i32`.
    Load,
    /// `x` -> the client's output buffer.
    Store {
        output: usize,
    },
    /// `x` -> itself, rounded as the output's rounding says: a conversion between number types.
    Copy,
    /// `x` -> the other storage, by value.
    ConvertStorage,
    Unary(UnaryOp),
    /// `a, b`, broadcast.
    Binary(BinaryOp),
    Softmax {
        axis: usize,
        beta: f32,
        log: bool,
    },
    Reduce {
        op: ReduceOp,
        axes: Vec<usize>,
    },
    /// `table, index`.
    Gather {
        axis: usize,
    },
    /// `data, index, updates`.
    ScatterNd(ScatterOp),
    /// `data, index, updates`.
    ScatterElements {
        axis: usize,
        op: ScatterOp,
    },
    /// `past, new, to, from, n, enable`: `n` new rows along `axis` put into the past, if enabled; see `ops::kv_update`.
    KvUpdate {
        axis: usize,
    },
    /// An update of the client's buffer `input` into `output`, in place where they are the same; operands as those of the
    /// op it comes from, the first being that input. See `ops::update_store`.
    UpdateStore {
        input: usize,
        output: usize,
        places: UpdatePlaces,
    },
    /// All inputs along `axis`.
    Concat {
        axis: usize,
    },
    /// Element `begin + i * stride` of each axis, `counts[axis]` of them.
    Slice {
        begin: Vec<usize>,
        stride: Vec<i64>,
        counts: Vec<usize>,
    },
    Transpose {
        perm: Vec<usize>,
    },
    /// Repeats each axis.
    Tile {
        multiples: Vec<usize>,
    },
    /// `a [.., M, K], b [.., K, N], [bias]`, leading axes broadcast; the flags swap the last two axes as stored.
    MatMul {
        transpose_a: bool,
        transpose_b: bool,
        bias: bool,
    },
    /// `x, [gamma], [beta]` over the last axis.
    RmsNorm {
        epsilon: f32,
        gamma: bool,
        beta: bool,
    },
    /// `x [.., S, D], cos, sin`, the tables `[S, rotated / 2]` or `[n, S, rotated / 2]` broadcast over leading axes; the
    /// first `rotated` of `D` elements turn.
    Rope {
        interleaved: bool,
        rotated: usize,
        /// `x` is `[.., S, heads, D]`: all heads of a position together.
        by_row: bool,
    },
    /// `x [M, K], weights, [bias], [residual]` -> `[M, N]`; weights are a constant `[N, K]`.
    Linear {
        n: usize,
        k: usize,
        bias: bool,
        residual: bool,
    },
    /// `x [M, K], gate weights, up weights` -> `silu(x gate) * (x up)`, `[M, N]`.
    GatedLinear {
        n: usize,
        k: usize,
    },
    /// `mask [rows, past], columns [new]` -> `[rows, past + new]`; see `ops::scatter_mask`.
    ScatterMask {
        past: usize,
        new: usize,
    },
    /// `x` -> two of the client's outputs, and what they stand for where that is read; see [`QuantiseBlocksOp`].
    QuantiseBlocks(QuantiseBlocksOp),
    /// Attention over past and new; see [`AttentionOp`].
    Attention(AttentionOp),
    /// One that no pass looks into.
    Leaf(Leaf),
}

/// What an [`Op::UpdateStore`] writes, by the op it comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UpdatePlaces {
    /// `ScatterNd`.
    Slices,
    /// `ScatterElements`.
    Elements { axis: usize },
    /// A cache update by rows.
    Rows { axis: usize },
}

/// Operands: `q [kv_heads, group, rows, head_dim]`, `[past_k, past_v]`, `[past_k_scales, past_v_scales]`, `new_k, new_v`,
/// `[mask [rows, past + new]]`.
/// Keys are `[kv_heads, head_dim, n]` or, with `keys_by_row`, `[kv_heads, n, head_dim]`; values `[kv_heads, n, head_dim]`.
/// Operands in a client buffer or a constant are read in place. With scales the past is one of 8-bit numbers in blocks, each of which
/// has a `float16` scale: `[kv_heads, past, head_dim / 32]`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct AttentionOp {
    pub(crate) kv_heads: usize,
    pub(crate) group: usize,
    pub(crate) rows: usize,
    pub(crate) head_dim: usize,
    pub(crate) past: usize,
    pub(crate) new: usize,
    /// Multiplies the scores before the mask is added.
    pub(crate) scale: f32,
    pub(crate) keys_by_row: bool,
    /// The past is in blocks with scales.
    pub(crate) past_scales: bool,
    /// Queries are `[rows, kv_heads, group, head_dim]`.
    pub(crate) q_by_row: bool,
    /// So is the result.
    pub(crate) out_by_row: bool,
    pub(crate) mask: bool,
}

impl AttentionOp {
    /// Whether the vector kernel takes it.
    pub(crate) fn has_kernel(&self) -> bool {
        self.head_dim <= kernels::attention::MAX_DIM
    }

    /// Which operand the mask is, if there is one.
    pub(crate) fn mask_slot(&self) -> usize {
        self.new_slot() + 2
    }

    /// Which operand the new keys are; the new values are the next.
    pub(crate) fn new_slot(&self) -> usize {
        match (self.past > 0, self.past_scales) {
            (false, _) => 1,
            (true, false) => 3,
            (true, true) => 5,
        }
    }
}

/// Rows into blocks of 32 8-bit numbers with a `float16` scale each, both of which are outputs of the graph.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct QuantiseBlocksOp {
    /// The output that takes the numbers.
    pub(crate) numbers: usize,
    /// The output that takes the scales.
    pub(crate) scales: usize,
    pub(crate) rule: BlockRule,
}

/// An operation that no pass looks into: its file in `ops` lowers to it and makes its step.
pub(crate) trait LeafOp: fmt::Debug + Send + Sync {
    /// For profiles and messages.
    fn label(&self) -> &'static str;

    /// The step that runs it.
    fn step(&self, b: &StepBuilder<'_>, node: &Node) -> Result<Box<dyn Step>, ExecError>;

    /// Whether its step writes its output by itself, and uses scratch or the task counter.
    fn is_team(&self) -> bool {
        false
    }

    /// Whether it may be computed once where all it reads is fixed.
    fn is_pure(&self) -> bool {
        true
    }

    /// Whether its step reads that operand as a client or a constant declares it.
    fn reads_raw(&self, _slot: usize, _dtype: Dtype, _quant: &Quant) -> bool {
        false
    }

    /// Operands whose buffer may be an output's too.
    fn updates(&self) -> &[Update] {
        &[]
    }
}

/// An operand that is a client's input, and the output that may be bound to the very same buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Update {
    pub(crate) operand: usize,
    pub(crate) input: usize,
    pub(crate) output: usize,
}

/// A shared [`LeafOp`]; equal to its clones only.
#[derive(Clone, Debug)]
pub(crate) struct Leaf(Arc<dyn LeafOp>);

impl Deref for Leaf {
    type Target = dyn LeafOp;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

impl PartialEq for Leaf {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Op {
    /// An operation that no pass looks into.
    pub(crate) fn leaf(op: impl LeafOp + 'static) -> Self {
        Self::Leaf(Leaf(Arc::new(op)))
    }

    /// Whether its step writes its output by itself, and uses scratch or the task counter.
    pub(crate) fn is_team(&self) -> bool {
        match self {
            Self::Leaf(leaf) => leaf.is_team(),
            op => matches!(
                op,
                Self::Linear { .. }
                    | Self::GatedLinear { .. }
                    | Self::Attention(_)
                    | Self::ScatterNd(_)
                    | Self::ScatterElements { .. }
            ),
        }
    }

    /// Whether it fills client buffers beside what other nodes read of it.
    pub(crate) fn stores(&self) -> bool {
        matches!(self, Self::QuantiseBlocks(_))
    }

    /// Operands whose buffer may be an output's too.
    pub(crate) fn updates(&self) -> Vec<Update> {
        match self {
            &Self::UpdateStore { input, output, .. } => vec![Update { operand: 0, input, output }],
            Self::Leaf(leaf) => leaf.updates().to_vec(),
            _ => Vec::new(),
        }
    }

    /// For profiles and messages.
    pub(crate) fn label(&self) -> &'static str {
        match self {
            Self::Load => "Load",
            Self::Store { .. } => "Store",
            Self::Copy => "Convert",
            Self::ConvertStorage => "ConvertStorage",
            Self::Unary(op) => op.label(),
            Self::Binary(op) => op.label(),
            Self::Softmax { log: false, .. } => "Softmax",
            Self::Softmax { log: true, .. } => "LogSoftmax",
            Self::Reduce { op, .. } => op.label(),
            Self::Gather { .. } => "Gather",
            Self::ScatterNd(_) => "ScatterNd",
            Self::ScatterElements { .. } => "ScatterElements",
            Self::KvUpdate { .. } => "PDKVCacheUpdate",
            Self::UpdateStore { places: UpdatePlaces::Slices, .. } => "ScatterNd+Store",
            Self::UpdateStore { places: UpdatePlaces::Elements { .. }, .. } => "ScatterElements+Store",
            Self::UpdateStore { places: UpdatePlaces::Rows { .. }, .. } => "PDKVCacheUpdate+Store",
            Self::Concat { .. } => "Concat",
            Self::Slice { .. } => "Slice",
            Self::Transpose { .. } => "Transpose",
            Self::Tile { .. } => "Tile",
            Self::MatMul { .. } => "MatMul",
            Self::RmsNorm { .. } => "RmsNorm",
            Self::Rope { .. } => "Rope",
            Self::Linear { residual: false, .. } => "Linear",
            Self::Linear { residual: true, .. } => "Linear+Add",
            Self::GatedLinear { .. } => "GatedLinear",
            Self::ScatterMask { .. } => "ScatterMask",
            Self::QuantiseBlocks(_) => "QuantiseBlocks",
            Self::Attention(_) => "Attention",
            Self::Leaf(leaf) => leaf.label(),
        }
    }
}
