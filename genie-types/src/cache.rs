//! The words for a model's cache: what a cache tensor is and how graphs take their past. Plain data, no buffers.
//!
//! *Shapes*: keys `[n_heads, 1, head_dim, n]` (sequence last), values `[n_heads, 1, n, head_dim]`; a tensor for a
//! single head has `n_heads == 1`. Both read as *lines* of rows: a key line is one dimension of one head and its unit
//! is an element, a value line is one head and its unit is a row of `head_dim` elements. Transposed values lie as keys.
//! Where rows are kept in blocks of [`KV_BLOCK`] elements with a scale each (`q8_0`), keys lie as values do, and the scales are
//! tensors of their own: `[n_heads, 1, n, head_dim / KV_BLOCK]`.

use core::fmt;

use crate::LayerIdx;

/// Elements of a row that share a scale, where rows are kept in blocks.
pub const KV_BLOCK: usize = 32;

/// Half of a cache entry, or the scales of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KvKind {
    /// Kept transposed: `[n_heads, 1, head_dim, n]`.
    Key,
    /// Kept row by row: `[n_heads, 1, n, head_dim]`.
    Value,
    /// Scales of keys that are kept in blocks, row by row.
    KeyScale,
    /// Scales of values that are kept in blocks, row by row.
    ValueScale,
}

impl KvKind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Key, Self::Value, Self::KeyScale, Self::ValueScale];

    /// `key`, `value`, `key_scale` or `value_scale`, as in tensor names.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::Value => "value",
            Self::KeyScale => "key_scale",
            Self::ValueScale => "value_scale",
        }
    }

    /// The scales of these rows; `None` for scales.
    pub const fn scales(self) -> Option<Self> {
        match self {
            Self::Key => Some(Self::KeyScale),
            Self::Value => Some(Self::ValueScale),
            Self::KeyScale | Self::ValueScale => None,
        }
    }

    /// Whether these are scales rather than rows.
    pub const fn is_scale(self) -> bool {
        self.scales().is_none()
    }
}

/// How graphs take their past.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum KvForm {
    /// The past has `CL - AR` rows and the graph appends its own `AR`: mask columns `[CL - AR, CL)` are the new ones.
    #[default]
    Concat,
    /// The past has `CL` rows and the graph writes its own at `cache_index`: new mask columns begin there.
    Scatter,
}

impl fmt::Display for KvForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Concat => "concat",
            Self::Scatter => "scatter",
        })
    }
}

/// Element types of cache rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // the names are the meaning
pub enum KvDtype {
    U8,
    U16,
    F16,
    F32,
}

impl KvDtype {
    /// Bytes of one element.
    pub const fn size_bytes(self) -> usize {
        match self {
            Self::U8 => 1,
            Self::U16 | Self::F16 => 2,
            Self::F32 => 4,
        }
    }

    /// The name used in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::U8 => "uint8",
            Self::U16 => "uint16",
            Self::F16 => "float16",
            Self::F32 => "float32",
        }
    }
}

/// How a tensor's rows lie, before any mode: whether the sequence is its last axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KvLayout {
    /// `[n_heads, 1, head_dim, n]`, sequence last: keys, and the values of graphs that want them transposed.
    HeadDimSeq,
    /// `[n_heads, 1, n, head_dim]`: values, scales, and keys in blocks.
    HeadSeqDim,
}

impl KvLayout {
    /// The graph contract's layout, which is also that of snapshots.
    pub const fn of(kind: KvKind) -> Self {
        match kind {
            KvKind::Key => Self::HeadDimSeq,
            KvKind::Value | KvKind::KeyScale | KvKind::ValueScale => Self::HeadSeqDim,
        }
    }
}

/// One cache tensor of a split: its `_in` and `_out` sides share all of this.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KvTensor {
    /// The decoder layer.
    pub layer: LayerIdx,
    /// The head, for a tensor that holds just one.
    pub head: Option<usize>,
    /// Key, value, or the scales of one.
    pub kind: KvKind,
    /// How its rows lie; [`KvLayout::of`] the kind unless a graph wants its values transposed, or its keys by row.
    pub layout: KvLayout,
    /// Heads in this tensor.
    pub n_heads: usize,
    /// Elements of a row.
    pub head_dim: usize,
    /// Element type.
    pub dtype: KvDtype,
    /// Scale of quantised types: `real = (quantised + offset) * scale`; 0 for floats.
    pub scale: f32,
    /// Offset of quantised types, zero or negative; its negation is the quantised 0 and so the pad value.
    pub offset: i32,
    /// The cache group it belongs to; 0 is the default group.
    pub group: usize,
}

impl KvTensor {
    /// A tensor of all heads of a layer, unquantised, in the default group.
    pub const fn new(kind: KvKind, layer: usize, n_heads: usize, head_dim: usize, dtype: KvDtype) -> Self {
        let (layer, layout) = (LayerIdx(layer), KvLayout::of(kind));
        Self { layer, head: None, kind, layout, n_heads, head_dim, dtype, scale: 0.0, offset: 0, group: 0 }
    }

    /// The same tensor with the sequence as its last axis: values as some graphs want them.
    #[must_use]
    pub const fn transposed(self) -> Self {
        Self { layout: KvLayout::HeadDimSeq, ..self }
    }

    /// The same tensor row by row: keys of a cache of rows, or in blocks.
    #[must_use]
    pub const fn by_row(self) -> Self {
        Self { layout: KvLayout::HeadSeqDim, ..self }
    }

    /// The same tensor in the layout of its kind: how snapshots hold it.
    #[must_use]
    pub const fn canonical(self) -> Self {
        Self { layout: KvLayout::of(self.kind), ..self }
    }

    /// The same tensor with an encoding.
    #[must_use]
    pub const fn with_quant(self, scale: f32, offset: i32) -> Self {
        Self { scale, offset, ..self }
    }

    /// The same tensor for one head of its layer.
    #[must_use]
    pub const fn for_head(self, head: usize) -> Self {
        Self { head: Some(head), n_heads: 1, ..self }
    }

    /// Lines of the tensor: see the module's text.
    pub const fn n_lines(&self) -> usize {
        match self.layout {
            KvLayout::HeadDimSeq => self.n_heads * self.head_dim,
            KvLayout::HeadSeqDim => self.n_heads,
        }
    }

    /// Bytes that one row has in each line.
    pub const fn unit_bytes(&self) -> usize {
        match self.layout {
            KvLayout::HeadDimSeq => self.dtype.size_bytes(),
            KvLayout::HeadSeqDim => self.head_dim * self.dtype.size_bytes(),
        }
    }

    /// The line of an element, the elements of a unit, and the element's index within its unit.
    pub const fn line_of(&self, head: usize, dim: usize) -> (usize, usize, usize) {
        match self.layout {
            KvLayout::HeadDimSeq => (head * self.head_dim + dim, 1, 0),
            KvLayout::HeadSeqDim => (head, self.head_dim, dim),
        }
    }

    /// Bytes of `n` rows over all lines.
    #[inline]
    pub const fn rows_bytes(&self, n: usize) -> usize {
        self.n_lines() * self.unit_bytes() * n
    }

    /// The element that means zero: what cleared rows hold.
    pub fn pad_element(&self) -> ([u8; 4], usize) {
        let zero = self.offset.unsigned_abs();
        match self.dtype {
            KvDtype::U8 => ([u8::try_from(zero).unwrap_or(u8::MAX), 0, 0, 0], 1),
            KvDtype::U16 => {
                let [a, b] = u16::try_from(zero).unwrap_or(u16::MAX).to_le_bytes();
                ([a, b, 0, 0], 2)
            }
            KvDtype::F16 => ([0; 4], 2),
            KvDtype::F32 => ([0; 4], 4),
        }
    }

    /// The tensor's name in messages, after Genie's pattern.
    pub fn name(&self) -> String {
        let (kind, layer) = (self.kind.name(), self.layer);
        match self.head {
            Some(head) => format!("past_{kind}_{layer}_h{head}"),
            None => format!("past_{kind}_{layer}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_a_line_per_dimension_and_values_one_per_head() {
        let key = KvTensor::new(KvKind::Key, 0, 2, 32, KvDtype::U8).with_quant(0.5, -128);
        assert_eq!((key.n_heads, key.head_dim, key.n_lines(), key.unit_bytes()), (2, 32, 64, 1));
        assert_eq!(key.pad_element(), ([128, 0, 0, 0], 1));
        let value = KvTensor::new(KvKind::Value, 0, 2, 32, KvDtype::F16).for_head(1);
        assert_eq!((value.n_lines(), value.unit_bytes(), value.name().as_str()), (1, 64, "past_value_0_h1"));
    }

    #[test]
    fn rows_in_blocks_take_eight_and_a_half_bits_for_each_number() {
        let key = KvTensor::new(KvKind::Key, 0, 2, 64, KvDtype::U8).with_quant(1.0, -128).by_row();
        let scales = KvTensor::new(KvKind::KeyScale, 0, 2, 64 / KV_BLOCK, KvDtype::F16);
        assert_eq!((key.n_lines(), key.unit_bytes(), scales.n_lines(), scales.unit_bytes()), (2, 64, 2, 4));
        assert_eq!((key.rows_bytes(1) + scales.rows_bytes(1)) * 8 * 2, 17 * 2 * 64);
        assert_eq!((scales.name().as_str(), scales.canonical()), ("past_key_scale_0", scales));
        assert!(KvKind::ALL.iter().all(|kind| kind.scales().is_none_or(KvKind::is_scale)));
    }
}
