//! A graph as the client described it: tensors and nodes, unchecked, never executed as it is.
//!
//! The C API builds it, the container stores it, `passes` lowers it. It knows QNN's op names and
//! parameters, and nothing of memory plans or kernels.

use std::sync::Arc;

use crate::bytes::Bytes;

/// Index into [`SourceGraph::tensors`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TensorId(pub u32);

/// Element types that the host accepts. The numbers are QNN's (`Qnn_DataType_t`), so the container can store them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Dtype {
    /// int8.
    I8 = 0x0008,
    /// int16.
    I16 = 0x0016,
    /// int32.
    I32 = 0x0032,
    /// int64.
    I64 = 0x0064,
    /// uint8.
    U8 = 0x0108,
    /// uint16.
    U16 = 0x0116,
    /// uint32.
    U32 = 0x0132,
    /// uint64.
    U64 = 0x0164,
    /// float16.
    F16 = 0x0216,
    /// bfloat16.
    Bf16 = 0x0226,
    /// float32.
    F32 = 0x0232,
    /// Signed fixed point, 4 bits (one value per byte unless a block encoding packs them).
    SFixed4 = 0x0304,
    /// Signed fixed point, 8 bits.
    SFixed8 = 0x0308,
    /// Signed fixed point, 16 bits.
    SFixed16 = 0x0316,
    /// Signed fixed point, 32 bits.
    SFixed32 = 0x0332,
    /// Unsigned fixed point, 4 bits.
    UFixed4 = 0x0404,
    /// Unsigned fixed point, 8 bits.
    UFixed8 = 0x0408,
    /// Unsigned fixed point, 16 bits.
    UFixed16 = 0x0416,
    /// Unsigned fixed point, 32 bits.
    UFixed32 = 0x0432,
    /// One byte, 0 or not 0.
    Bool8 = 0x0508,
}

impl Dtype {
    /// Every type, for look-ups and tests.
    pub const ALL: [Self; 20] = [
        Self::I8,
        Self::I16,
        Self::I32,
        Self::I64,
        Self::U8,
        Self::U16,
        Self::U32,
        Self::U64,
        Self::F16,
        Self::F32,
        Self::SFixed4,
        Self::SFixed8,
        Self::SFixed16,
        Self::SFixed32,
        Self::UFixed4,
        Self::UFixed8,
        Self::UFixed16,
        Self::UFixed32,
        Self::Bool8,
        Self::Bf16,
    ];

    /// From QNN's number.
    pub fn from_qnn(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|d| *d as u32 == number)
    }

    /// Bytes of one element in a buffer.
    pub fn size_bytes(self) -> usize {
        match self {
            Self::I8 | Self::U8 | Self::Bool8 | Self::SFixed4 | Self::SFixed8 | Self::UFixed4 | Self::UFixed8 => 1,
            Self::I16 | Self::U16 | Self::F16 | Self::Bf16 | Self::SFixed16 | Self::UFixed16 => 2,
            Self::I32 | Self::U32 | Self::F32 | Self::SFixed32 | Self::UFixed32 => 4,
            Self::I64 | Self::U64 => 8,
        }
    }

    /// True for float16, bfloat16 and float32.
    pub fn is_float(self) -> bool {
        matches!(self, Self::F16 | Self::Bf16 | Self::F32)
    }
}

/// How quantised values become numbers: `real = (quantised + offset) * scale`.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Quant {
    /// No encoding.
    #[default]
    None,
    /// One pair for all.
    PerTensor {
        /// Step between quantised values.
        scale: f32,
        /// Added to a quantised value before scaling.
        offset: i32,
    },
    /// One pair for each index of `axis`.
    PerAxis {
        /// The axis.
        axis: u32,
        /// Bits of a value when fewer than the element has (the BW encodings).
        bits: u32,
        /// A scale for each index.
        scales: Arc<[f32]>,
        /// An offset for each index; empty means all zero.
        offsets: Arc<[i32]>,
    },
    /// Blocks along the axes (`QNN_QUANTIZATION_ENCODING_BLOCK`), pairs row-major over the blocks.
    Block {
        /// Length of a block on each axis.
        block_dims: Arc<[u32]>,
        /// A scale for each block: many, so they are kept once per context and mapped as weights are.
        scales: BlockScales,
        /// An offset for each block; empty means all zero.
        offsets: Arc<[i32]>,
    },
}

/// Scales of blocks, as bytes that graphs share and a file can hold.
///
/// *Layout*: f32, little-endian, no alignment promised.
#[derive(Clone, Debug)]
pub struct BlockScales(Bytes);

impl BlockScales {
    /// Bytes of one scale.
    pub const BYTES: usize = size_of::<f32>();

    /// Views bytes; `None` when they are no whole number of scales.
    pub fn new(bytes: Bytes) -> Option<Self> {
        bytes.len().is_multiple_of(Self::BYTES).then_some(Self(bytes))
    }

    /// The bytes.
    pub fn bytes(&self) -> &Bytes {
        &self.0
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len() / Self::BYTES
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Scale of block `i`.
    ///
    /// # Panics
    /// When there is no such block.
    pub fn get(&self, i: usize) -> f32 {
        f32::from_le_bytes(self.0.as_chunks().0[i])
    }

    /// All of them, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = f32> + '_ {
        self.0.as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes))
    }
}

impl PartialEq for BlockScales {
    fn eq(&self, other: &Self) -> bool {
        let same_place = self.0.id() == other.0.id() && self.0.len() == other.0.len();
        same_place || self.0[..] == other.0[..]
    }
}

impl FromIterator<f32> for BlockScales {
    fn from_iter<I: IntoIterator<Item = f32>>(scales: I) -> Self {
        let bytes: Vec<u8> = scales.into_iter().flat_map(f32::to_le_bytes).collect();
        Self(Bytes::copy_from(&bytes))
    }
}

impl<const N: usize> From<[f32; N]> for BlockScales {
    fn from(scales: [f32; N]) -> Self {
        scales.into_iter().collect()
    }
}

/// Where a tensor's bytes come from.
#[derive(Clone, Debug)]
pub enum Role {
    /// The client writes it before an execution.
    Input,
    /// The client reads it after an execution.
    Output,
    /// Fixed when the graph is made; shared by all graphs of a context that hold the same bytes.
    Static(Bytes),
    /// Between nodes; never seen by the client, so its storage type is the executor's choice.
    Native,
    /// An optional input that was left out.
    Null,
}

/// A tensor of a graph.
#[derive(Clone, Debug)]
pub struct Tensor {
    /// Unique in its graph.
    pub name: String,
    /// Extents, outermost first.
    pub dims: Vec<u32>,
    /// Element type as declared.
    pub dtype: Dtype,
    /// Encoding as declared.
    pub quant: Quant,
    /// QNN's data format number (0 = flat).
    pub data_format: u32,
    /// Where its bytes are.
    pub role: Role,
}

impl Tensor {
    /// Number of elements.
    pub fn n_elems(&self) -> usize {
        self.dims.iter().map(|&d| d as usize).product()
    }

    /// Bytes of a client buffer for it.
    pub fn size_bytes(&self) -> usize {
        self.n_elems() * self.dtype.size_bytes()
    }

    /// Whether static data may hold two values per byte, the earlier in the lower half: 4 bits each, in a block encoding.
    pub fn may_pack_4_bits(&self) -> bool {
        matches!(self.dtype, Dtype::SFixed4 | Dtype::UFixed4) && matches!(self.quant, Quant::Block { .. })
    }
}

/// A parameter of a node.
#[derive(Clone, Debug, PartialEq)]
pub enum Param {
    /// `float32` scalar.
    F32(f32),
    /// Any signed integer scalar.
    Int(i64),
    /// Any unsigned integer scalar.
    UInt(u64),
    /// `bool8` scalar.
    Bool(bool),
    /// A static integer tensor (axes, perm, ranges, ...), widened, with its dims.
    Ints(Vec<u32>, Vec<i64>),
    /// `float64` scalar; ops of packages only.
    F64(f64),
    /// Text without a zero byte; ops of packages only.
    Text(String),
    /// A static tensor without an encoding, in its own type; ops of packages only.
    Tensor {
        /// Element type.
        dtype: Dtype,
        /// Extents, outermost first.
        dims: Vec<u32>,
        /// Elements as in a client's buffer: as many bytes as type and extents say.
        data: Arc<[u8]>,
    },
}

/// The package of QNN's own ops, whose names stand without it.
pub const QNN_PACKAGE: &str = "qti.aisw";

/// Package and type of an op.
pub fn split_op(op: &str) -> (&str, &str) {
    op.split_once("::").unwrap_or((QNN_PACKAGE, op))
}

/// An op's name from its package and type.
pub fn join_op(package: &str, op: &str) -> String {
    if package == QNN_PACKAGE { op.to_owned() } else { format!("{package}::{op}") }
}

/// One operation.
#[derive(Clone, Debug)]
pub struct Node {
    /// Unique in its graph.
    pub name: String,
    /// QNN's op type string, e.g. `FullyConnected`; `package::type` for ops of other packages.
    pub op: String,
    /// Parameters by QNN's names; those left out are absent.
    pub params: Vec<(String, Param)>,
    /// Inputs in QNN's order; [`Role::Null`] tensors stand for left-out optional ones.
    pub inputs: Vec<TensorId>,
    /// Outputs in QNN's order.
    pub outputs: Vec<TensorId>,
}

impl Node {
    /// The parameter of that name.
    pub fn param(&self, name: &str) -> Option<&Param> {
        self.params.iter().find(|(n, _)| n == name).map(|(_, p)| p)
    }
}

/// A whole graph.
#[derive(Clone, Debug, Default)]
pub struct SourceGraph {
    /// Unique in its context.
    pub name: String,
    /// All tensors; a [`TensorId`] indexes it.
    pub tensors: Vec<Tensor>,
    /// All nodes, in the order they were added (each after the makers of its inputs).
    pub nodes: Vec<Node>,
}

impl SourceGraph {
    /// The tensor with that id.
    pub fn tensor(&self, id: TensorId) -> &Tensor {
        &self.tensors[id.0 as usize]
    }

    /// Ids of the client's inputs, in the order they were made.
    pub fn inputs(&self) -> impl Iterator<Item = TensorId> + '_ {
        self.ids(|role| matches!(role, Role::Input))
    }

    /// Ids of the client's outputs, in the order they were made.
    pub fn outputs(&self) -> impl Iterator<Item = TensorId> + '_ {
        self.ids(|role| matches!(role, Role::Output))
    }

    fn ids(&self, keep: impl Fn(&Role) -> bool + 'static) -> impl Iterator<Item = TensorId> + '_ {
        self.tensors.iter().enumerate().filter(move |(_, t)| keep(&t.role)).map(|(i, _)| TensorId(i as u32))
    }
}
