//! What a weight is, and how a graph stores it: role, storage format, encoding. No reading and no rounding.
//!
//! *Shapes*: linear weights are `[out, in]`, as checkpoints store them and as `FullyConnected` takes them.

use crate::checkpoint::{BlockFormat, FiniteCheck, SourceDtype};
use crate::{Precision, Weights};
use genie_types::{Dtype, TensorInfo};

/// Elements that share a scale.
pub(super) const BLOCK: usize = 32;

/// What a tensor is for; the encoding follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// `[vocab, hidden]`, rows gathered by token id.
    Embedding,
    /// `[out, in]`.
    Linear,
    /// `[out]`.
    Bias,
    /// `[hidden]` or `[head_dim]`.
    Norm,
    /// `[positions, hidden]`, rows gathered by position.
    Positions,
}

/// One tensor to load.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct WeightSpec {
    /// Name in the checkpoint.
    pub(crate) name: String,
    /// Extents in the checkpoint.
    pub(crate) dims: Vec<usize>,
    pub(crate) role: Role,
    /// Added to every element, in double, before it is scaled.
    pub(crate) offset: f64,
    /// Multiplied into every element, in double, before conversion.
    pub(crate) scale: f64,
    /// Name in graphs.
    pub(crate) stored_as: String,
}

impl WeightSpec {
    pub(crate) fn n_elems(&self) -> usize {
        self.dims.iter().product()
    }

    /// The value that stands in the graph for one of the checkpoint.
    pub(super) fn folded(&self, value: f32) -> f32 {
        let value = f64::from(value);
        // The sum of -0 and 0 has no sign.
        let value = if self.offset == 0.0 { value } else { value + self.offset };
        (value * self.scale) as f32
    }

    /// The inverse of [`Self::folded`].
    pub(super) fn unfolded(&self, value: f32) -> f32 {
        (f64::from(value) / self.scale - self.offset) as f32
    }

    /// True where the graph has the checkpoint's values.
    pub(super) fn is_plain(&self) -> bool {
        self.scale == 1.0 && self.offset == 0.0
    }

    /// The tensor it becomes, without the quantisation parameters.
    pub(super) fn info(&self, dtype: Dtype) -> TensorInfo {
        TensorInfo::new(self.stored_as.clone(), self.dims.clone(), dtype)
    }

    /// A check for finite values whose errors name this weight.
    pub(super) fn finite_check(&self) -> FiniteCheck<'_> {
        FiniteCheck { name: &self.name, dims: &self.dims, done: 0 }
    }
}

/// The op that a linear layer becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinearForm {
    /// `FullyConnected`, weights `[out, in]` as in checkpoints: `qnn-host` reads them without rearranging.
    FullyConnected,
    /// `Conv2d` of one by one, weights `[1, 1, in, out]`: the fastest on HTP libraries (`docs/compile.md`).
    Conv2d,
}

impl LinearForm {
    /// Extents of weights `[out, in]`.
    pub(super) fn dims(self, dims: &[usize]) -> Vec<usize> {
        match self {
            Self::FullyConnected => dims.to_vec(),
            Self::Conv2d => vec![1, 1, dims[1], dims[0]],
        }
    }

    /// The axis of output channels in them.
    pub(super) const fn channel_axis(self) -> u32 {
        match self {
            Self::FullyConnected => 0,
            Self::Conv2d => 3,
        }
    }
}

/// How the weights of a model are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Format {
    /// Of activations, and of weights that are not quantised.
    pub(crate) precision: Precision,
    /// Of linear layers.
    pub(crate) weights: Weights,
    /// Beside `Weights::Q4_0`: layers that are in neither Q4_0 nor a format that all blocks copy have eight bits.
    pub(crate) keeps_eight_bits: bool,
    /// Beside either format of blocks, and beside bfloat16: matrices that the checkpoint has as floats stay floats.
    pub(crate) keeps_floats: bool,
    /// Of linear layers.
    pub(crate) form: LinearForm,
}

/// Number type and scales of one stored weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Encoding {
    /// Float.
    Float(Precision),
    /// bfloat16, whatever the activations are.
    Bf16,
    /// One byte per element and a scale per row, values from `-largest` to `largest`.
    PerRow {
        /// The largest quantised value.
        largest: i8,
    },
    /// Blocks with a scale each.
    Blocks(BlockBits),
}

impl Format {
    /// Names and shapes of tensors as the checkpoint has them.
    pub(crate) const PLAIN: Self = Self::rounded(Precision::F32, Weights::Float);

    /// Linear layers in that format, except those that [`is_copied`] is true for; for the embedded backend.
    pub(crate) const fn rounded(precision: Precision, weights: Weights) -> Self {
        Self { precision, weights, keeps_eight_bits: false, keeps_floats: false, form: LinearForm::FullyConnected }
    }

    /// The encoding of weights of that role which the checkpoint has in that type.
    pub(super) fn encoding_of(self, role: Role, source: &SourceDtype) -> Encoding {
        match source {
            SourceDtype::Blocks(_) => self.encoding(role),
            SourceDtype::Bf16 if self.keeps_floats && is_matrix(role) => Encoding::Bf16,
            _ if self.keeps_floats => Encoding::Float(self.precision),
            _ => self.encoding(role),
        }
    }

    /// The encoding of weights of that role, where [`keeps_floats`](Self::keeps_floats) says nothing else.
    pub(super) fn encoding(self, role: Role) -> Encoding {
        match (self.weights, role) {
            (Weights::W8, Role::Linear) => Encoding::PerRow { largest: 127 },
            (Weights::W4, Role::Linear) => Encoding::PerRow { largest: 7 },
            (Weights::Q8_0, Role::Linear | Role::Embedding) | (Weights::Q4_0, Role::Embedding) => {
                Encoding::Blocks(BlockBits::Eight)
            }
            (Weights::Q4_0, Role::Linear) => Encoding::Blocks(BlockBits::Four),
            (Weights::Bf16, Role::Linear | Role::Embedding) => Encoding::Bf16,
            (_, Role::Bias | Role::Norm | Role::Positions) | (Weights::Float | Weights::W8 | Weights::W4, _) => {
                Encoding::Float(self.precision)
            }
        }
    }

    /// Bytes of a weight in a graph that has it in its [encoding](Self::encoding), scales included.
    pub(crate) fn size_bytes(self, weight: &WeightSpec) -> u64 {
        let (n_elems, n_rows) = (weight.n_elems() as u64, weight.dims[0] as u64);
        match self.encoding(weight.role) {
            Encoding::Float(precision) => n_elems * precision.dtype().size_bytes() as u64,
            Encoding::Bf16 => n_elems * Dtype::Bf16.size_bytes() as u64,
            Encoding::PerRow { .. } => n_elems + 8 * n_rows,
            Encoding::Blocks(bits) => bits.size_bytes(n_elems),
        }
    }
}

/// Bits of a quantised value in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockBits {
    /// -8 to 7.
    Four,
    /// -127 to 127.
    Eight,
    /// -32 to 31, a byte each, blocks of 16: those of `Q6_K`, which are copied and never rounded to.
    Six,
    /// 0 to 15, with minima: those of `Q4_K`, only copied.
    KFour,
    /// 0 to 31, a byte each, with minima: those of `Q5_K`, only copied.
    KFive,
    /// 0 to 3, blocks of 16, with minima: those of `Q2_K`, only copied.
    KTwo,
    /// The levels of `IQ4_XS`, a byte each, only copied.
    Levels,
}

impl BlockBits {
    /// Element type in graphs.
    pub(super) fn dtype(self) -> Dtype {
        match self {
            Self::Four => Dtype::SFixed4,
            Self::Eight | Self::Six | Self::Levels => Dtype::SFixed8,
            Self::KFour | Self::KTwo => Dtype::UFixed4,
            Self::KFive => Dtype::UFixed8,
        }
    }

    /// Elements that share a scale.
    pub(super) fn block(self) -> usize {
        if matches!(self, Self::Six | Self::KTwo) { BLOCK / 2 } else { BLOCK }
    }

    /// True where blocks of that format need no rounding.
    pub(super) fn hold(self, format: BlockFormat) -> bool {
        format.plain_bits().is_some_and(|bits| bits <= if self == Self::Four { 4 } else { 8 })
    }

    /// Those that keep a file's blocks as they are though they are of another kind than any that weights are rounded to.
    pub(super) fn of_copied(format: BlockFormat, role: Role) -> Option<Self> {
        match (format, role) {
            (format, _) if format.has_two_levels() => Some(Self::Six),
            (BlockFormat::Q2K, Role::Linear | Role::Embedding) => Some(Self::KTwo),
            (BlockFormat::Q4K, Role::Linear | Role::Embedding) => Some(Self::KFour),
            (BlockFormat::Q5K, Role::Linear | Role::Embedding) => Some(Self::KFive),
            (BlockFormat::IQ4_XS, Role::Linear | Role::Embedding) => Some(Self::Levels),
            // What has four bits keeps them: they hold the same numbers.
            (BlockFormat::Q4_0, Role::Linear | Role::Embedding) => Some(Self::Four),
            // A byte each in the graph; the host packs them in their bits.
            (BlockFormat::Q5_0 | BlockFormat::IQ4_NL | BlockFormat::MXFP4, Role::Linear | Role::Embedding) => {
                Some(Self::Eight)
            }
            _ => None,
        }
    }

    /// Bytes of `n_elems` weights as a client passes them: quantised values, and pairs of scale and offset.
    fn size_bytes(self, n_elems: u64) -> u64 {
        let values = if self == Self::Four { n_elems.div_ceil(2) } else { n_elems };
        values + n_elems / self.block() as u64 * 8
    }
}

/// Whether weights of that role are a matrix, which has a format of its own.
pub(crate) fn is_matrix(role: Role) -> bool {
    matches!(role, Role::Linear | Role::Embedding)
}

/// Whether weights of that role stay as a file has them, whichever format of blocks others are rounded to.
pub(crate) fn is_copied(format: BlockFormat, role: Role) -> bool {
    BlockBits::of_copied(format, role).is_some()
}
