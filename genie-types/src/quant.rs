//! How the quantised values of a fixed-point tensor become numbers.
//!
//! Units: `real = (quantised + offset) * scale`; offsets are zero or negative in practice, as in QNN.

/// Encoding of a tensor.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Quant {
    /// Plain numbers, no encoding.
    #[default]
    None,
    /// One scale and offset for the whole tensor.
    PerTensor {
        /// Step between two quantised values.
        scale: f32,
        /// Added to the quantised value before scaling.
        offset: i32,
    },
    /// One scale and offset per index of an axis.
    PerAxis {
        /// The axis that the pairs run along.
        axis: u32,
        /// Bits of a quantised value, when fewer than the element's width.
        bits: Option<u32>,
        /// `(scale, offset)` for each index.
        scale_offsets: Vec<(f32, i32)>,
    },
    /// Blocks along the axes, each with its own scale and offset.
    Block {
        /// Length of a block on each axis.
        block_dims: Vec<u32>,
        /// `(scale, offset)` for each block, row-major over the blocks.
        scale_offsets: Vec<(f32, i32)>,
    },
    /// An encoding this build does not interpret; the number is QNN's.
    Other(u32),
}

impl Quant {
    /// The scale and offset when there is just one pair.
    pub fn per_tensor(&self) -> Option<(f32, i32)> {
        match self {
            Self::PerTensor { scale, offset } => Some((*scale, *offset)),
            _ => None,
        }
    }
}
