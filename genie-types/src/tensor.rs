//! What a context binary says about its graphs, as plain values.

use crate::{Dtype, Quant};

/// How a tensor's elements are arranged in its buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DataFormat {
    /// Row-major, dense.
    #[default]
    Flat,
    /// Hexagon matrix-unit weight tiles (`HMX_WEIGHT_LAYOUT`, 8): the cache is then kept in tiles.
    HmxWeight,
    /// Any other of QNN's formats, by number.
    Other(u32),
}

impl DataFormat {
    /// Rows and columns of a tile of [`Self::HmxWeight`].
    pub const TILE: usize = 32;
}

/// One input or output of a graph.
///
/// *Shapes*: `dims` outermost first. *Units*: elements; [`TensorInfo::size_bytes`] for bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorInfo {
    /// Name in the graph; splits are wired by it.
    pub name: String,
    /// Extents, outermost first.
    pub dims: Vec<usize>,
    /// Element type.
    pub dtype: Dtype,
    /// Encoding of the codes.
    pub quant: Quant,
    /// Arrangement in memory.
    pub format: DataFormat,
}

impl TensorInfo {
    /// A dense, unquantised tensor.
    pub fn new(name: impl Into<String>, dims: impl Into<Vec<usize>>, dtype: Dtype) -> Self {
        Self { name: name.into(), dims: dims.into(), dtype, quant: Quant::None, format: DataFormat::Flat }
    }

    /// The same tensor with an encoding.
    #[must_use]
    pub fn with_quant(mut self, quant: Quant) -> Self {
        self.quant = quant;
        self
    }

    /// Number of elements.
    pub fn n_elems(&self) -> usize {
        self.dims.iter().product()
    }

    /// Bytes of a client buffer for it. Codes of 4 bits take a byte each, but in a block encoding lie two per byte, the
    /// earlier in the lower half. In tiles, the last two extents are padded to whole ones.
    pub fn size_bytes(&self) -> usize {
        if let (DataFormat::HmxWeight, Some((lead, &[rows, cols]))) = (self.format, self.dims.split_last_chunk::<2>()) {
            let tiled = |n: usize| n.next_multiple_of(DataFormat::TILE);
            return lead.iter().product::<usize>() * tiled(rows) * tiled(cols) * self.dtype.size_bytes();
        }
        match (self.dtype, &self.quant) {
            (Dtype::SFixed4 | Dtype::UFixed4, Quant::Block { .. }) => self.n_elems().div_ceil(2),
            _ => self.n_elems() * self.dtype.size_bytes(),
        }
    }
}

/// One graph of a context: its name and its client-visible tensors.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GraphInfo {
    /// Name in the context.
    pub name: String,
    /// Inputs, in the order the graph declares them.
    pub inputs: Vec<TensorInfo>,
    /// Outputs, in the order the graph declares them.
    pub outputs: Vec<TensorInfo>,
}

impl GraphInfo {
    /// The input of that name.
    pub fn input(&self, name: &str) -> Option<&TensorInfo> {
        self.inputs.iter().find(|t| t.name == name)
    }

    /// The output of that name.
    pub fn output(&self, name: &str) -> Option<&TensorInfo> {
        self.outputs.iter().find(|t| t.name == name)
    }
}
