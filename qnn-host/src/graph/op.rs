//! Typed operations: QNN's op types with their parameters read, families merged and shapes made explicit.

use crate::graph::scalar::BinaryOp;
use crate::graph::scalar::ReduceOp;
use crate::graph::scalar::ScatterOp;
use crate::graph::scalar::UnaryOp;
use crate::storage::QuantGrid;

/// What a node computes. Operands are listed in the order of [`crate::graph::typed::Node::inputs`]; those in brackets are there
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
    /// `x` -> the other kind, by value.
    ConvertStorage,
    /// `x` -> the code or value that a cast makes of it, quantisation ignored.
    Cast(CastOp),
    Unary(UnaryOp),
    /// `a, b`, broadcast.
    Binary(BinaryOp),
    /// `condition, if_true, if_false`, broadcast.
    Select,
    Softmax {
        axis: usize,
        beta: f32,
        log: bool,
    },
    Reduce {
        op: ReduceOp,
        axes: Vec<usize>,
    },
    Argmax {
        axis: usize,
    },
    /// The last axis' first `k` in sorted order; `indices` yields places instead of values.
    TopK {
        k: usize,
        largest: bool,
        indices: bool,
    },
    CumulativeSum {
        axis: usize,
        exclusive: bool,
        reverse: bool,
    },
    /// `table, index`.
    Gather {
        axis: usize,
    },
    /// `table, index` of the same rank.
    GatherElements {
        axis: usize,
    },
    /// `table, index`.
    GatherNd {
        batch_dims: usize,
    },
    /// `data, index, updates`.
    ScatterNd(ScatterOp),
    /// `data, index, updates`.
    ScatterElements {
        axis: usize,
        op: ScatterOp,
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
    Pad {
        before: Vec<usize>,
        scheme: PadScheme,
    },
    /// `a [.., M, K], b [.., K, N], [bias]`, leading axes broadcast; the flags swap the last two axes as stored.
    MatMul {
        transpose_a: bool,
        transpose_b: bool,
        bias: bool,
    },
    /// `x [.., H, W, C], w [kh, kw, C / groups, O], [bias]`.
    Conv2d {
        stride: [usize; 2],
        pad: [[usize; 2]; 2],
        dilation: [usize; 2],
        groups: usize,
        bias: bool,
    },
    /// `x, [gamma], [beta]` over the last axis.
    RmsNorm {
        epsilon: f32,
        gamma: bool,
        beta: bool,
    },
    /// `x, [gamma], [beta]` over the last axis.
    LayerNorm {
        epsilon: f32,
        gamma: bool,
        beta: bool,
    },
    L2Norm {
        axes: Vec<usize>,
        epsilon: f32,
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
    /// `mask [rows, past], columns [new]` -> `[rows, past + new]`; see `exec::ops::scatter_mask`.
    ScatterMask {
        past: usize,
        new: usize,
    },
    /// Attention over past and new; see [`AttentionOp`].
    Attention(AttentionOp),
}

/// What a cast does with codes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct CastOp {
    /// From a fixed-point number: its code, not its value.
    pub(crate) from: Option<QuantGrid>,
    /// To a fixed-point number: the value becomes its code.
    pub(crate) to: Option<QuantGrid>,
    /// To a boolean: anything but zero is one.
    pub(crate) boolean: bool,
}

/// What fills the border.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum PadScheme {
    /// A number (for integers: its value).
    Constant(f64),
    /// The border mirrored, without repeating the edge.
    Reflect,
    /// The border mirrored, repeating the edge.
    Symmetric,
    /// The edge.
    Edge,
}

/// Operands: `q [kv_heads, group, rows, head_dim]`, `[past_k, past_v]`, `new_k, new_v`, `[mask [rows, past + new]]`.
/// Keys are `[kv_heads, head_dim, n]` or, with `keys_by_row`, `[kv_heads, n, head_dim]`; values `[kv_heads, n, head_dim]`.
/// Operands in a client buffer or a constant are read in place.
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
    /// Queries are `[rows, kv_heads, group, head_dim]`.
    pub(crate) q_by_row: bool,
    /// So is the result.
    pub(crate) out_by_row: bool,
    pub(crate) mask: bool,
}

impl AttentionOp {
    /// Which operand the mask is, if there is one.
    pub(crate) fn mask_slot(&self) -> usize {
        if self.past > 0 { 5 } else { 3 }
    }
}

impl Op {
    /// For profiles and messages.
    pub(crate) fn label(&self) -> &'static str {
        match self {
            Self::Load => "Load",
            Self::Store { .. } => "Store",
            Self::Copy => "Convert",
            Self::ConvertStorage => "ConvertStorage",
            Self::Cast(_) => "Cast",
            Self::Unary(op) => op.label(),
            Self::Binary(op) => op.label(),
            Self::Select => "Select",
            Self::Softmax { log: false, .. } => "Softmax",
            Self::Softmax { log: true, .. } => "LogSoftmax",
            Self::Reduce { op, .. } => op.label(),
            Self::Argmax { .. } => "Argmax",
            Self::TopK { .. } => "TopK",
            Self::CumulativeSum { .. } => "CumulativeSum",
            Self::Gather { .. } => "Gather",
            Self::GatherElements { .. } => "GatherElements",
            Self::GatherNd { .. } => "GatherNd",
            Self::ScatterNd(_) => "ScatterNd",
            Self::ScatterElements { .. } => "ScatterElements",
            Self::Concat { .. } => "Concat",
            Self::Slice { .. } => "Slice",
            Self::Transpose { .. } => "Transpose",
            Self::Tile { .. } => "Tile",
            Self::Pad { .. } => "Pad",
            Self::MatMul { .. } => "MatMul",
            Self::Conv2d { .. } => "Conv2d",
            Self::RmsNorm { .. } => "RmsNorm",
            Self::LayerNorm { .. } => "LayerNorm",
            Self::L2Norm { .. } => "L2Norm",
            Self::Rope { .. } => "Rope",
            Self::Linear { residual: false, .. } => "Linear",
            Self::Linear { residual: true, .. } => "Linear+Add",
            Self::GatedLinear { .. } => "GatedLinear",
            Self::ScatterMask { .. } => "ScatterMask",
            Self::Attention(_) => "Attention",
        }
    }
}
