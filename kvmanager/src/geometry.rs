//! Which cache tensors the splits have, as plain data. No buffers here.
//!
//! *Shapes*: keys `[n_heads, 1, head_dim, n]` (sequence last), values `[n_heads, 1, n, head_dim]`; a tensor for a
//! single head has `n_heads == 1`. Both read as *lines* of rows: a key line is one dimension of one head and its unit
//! is an element, a value line is one head and its unit is a row of `head_dim` elements. Transposed values lie as keys.

use crate::KvError;
use genie_types::{Dtype, LayerIdx, Quant, TensorInfo};

/// How the graphs take their past.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum KvForm {
    /// Past of `CL - AR` rows, joined with the new ones inside the graph.
    #[default]
    Concat,
    /// Past of `CL` rows plus a cache index; the graph puts the new rows in place.
    Scatter,
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

    /// The cache type of a tensor's element type, if it is one.
    pub const fn from_dtype(dtype: Dtype) -> Option<Self> {
        match dtype {
            Dtype::UFixed8 | Dtype::U8 => Some(Self::U8),
            Dtype::UFixed16 | Dtype::U16 => Some(Self::U16),
            Dtype::F16 => Some(Self::F16),
            Dtype::F32 => Some(Self::F32),
            _ => None,
        }
    }
}

/// Key or value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)] // the names are the meaning
pub enum KvKind {
    Key,
    Value,
}

/// How a tensor's rows lie, before any mode: whether the sequence is its last axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KvLayout {
    /// `[n_heads, 1, head_dim, n]`, sequence last: keys, and the values of graphs that want them transposed.
    HeadDimSeq,
    /// `[n_heads, 1, n, head_dim]`: values.
    HeadSeqDim,
}

impl KvLayout {
    /// The graph contract's layout, which is also that of snapshots.
    pub const fn of(kind: KvKind) -> Self {
        match kind {
            KvKind::Key => Self::HeadDimSeq,
            KvKind::Value => Self::HeadSeqDim,
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
    /// Key or value.
    pub kind: KvKind,
    /// How its rows lie; [`KvLayout::of`] the kind unless a graph wants its values transposed.
    pub layout: KvLayout,
    /// Heads in this tensor.
    pub n_heads: usize,
    /// Elements of a row.
    pub head_dim: usize,
    /// Element type.
    pub dtype: KvDtype,
    /// Scale of quantised types: `real = (code + offset) * scale`; 0 for floats.
    pub scale: f32,
    /// Offset of quantised types, zero or negative; its negation is the code of 0 and so the pad value.
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

    /// Reads the geometry off a graph's `past_*_in` or `past_*_out` tensor.
    ///
    /// # Errors
    /// [`KvError::Dtype`], [`KvError::Shape`].
    pub fn from_info(kind: KvKind, layer: LayerIdx, head: Option<usize>, info: &TensorInfo) -> Result<Self, KvError> {
        let dtype = KvDtype::from_dtype(info.dtype)
            .ok_or_else(|| KvError::Dtype { tensor: info.name.clone(), dtype: info.dtype })?;
        let (expected, head_dim) = match (kind, info.dims.as_slice()) {
            (KvKind::Key, &[_, 1, dim, _]) => ("", dim),
            (KvKind::Value, &[_, 1, _, dim]) => ("", dim),
            (KvKind::Key, _) => ("[n_heads, 1, head_dim, n]", 0),
            (KvKind::Value, _) => ("[n_heads, 1, n, head_dim]", 0),
        };
        if head_dim == 0 || info.dims[0] == 0 {
            let expected = if expected.is_empty() { "extents of at least 1" } else { expected };
            return Err(KvError::Shape { tensor: info.name.clone(), expected, found: info.dims.clone() });
        }
        let (scale, offset) = match &info.quant {
            Quant::PerTensor { scale, offset } => (*scale, *offset),
            _ => (0.0, 0),
        };
        Ok(Self {
            layer,
            head,
            kind,
            layout: KvLayout::of(kind),
            n_heads: info.dims[0],
            head_dim,
            dtype,
            scale,
            offset,
            group: 0,
        })
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
    pub const fn rows_bytes(&self, n: usize) -> usize {
        self.n_lines() * self.unit_bytes() * n
    }

    /// The element that means zero: what cleared rows hold.
    pub fn pad_element(&self) -> ([u8; 4], usize) {
        let zero_code = self.offset.unsigned_abs();
        match self.dtype {
            KvDtype::U8 => ([u8::try_from(zero_code).unwrap_or(u8::MAX), 0, 0, 0], 1),
            KvDtype::U16 => {
                let [a, b] = u16::try_from(zero_code).unwrap_or(u16::MAX).to_le_bytes();
                ([a, b, 0, 0], 2)
            }
            KvDtype::F16 => ([0; 4], 2),
            KvDtype::F32 => ([0; 4], 4),
        }
    }

    /// The tensor's name in messages, after Genie's pattern.
    pub fn name(&self) -> String {
        let kind = if self.kind == KvKind::Key { "key" } else { "value" };
        match self.head {
            Some(head) => format!("past_{kind}_{}_h{head}", self.layer),
            None => format!("past_{kind}_{}", self.layer),
        }
    }
}

/// The cache tensors of one split, in the order their views are lent in.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SplitGeometry {
    /// The tensors; a split without layers (LUT, LMHEAD) has none.
    pub tensors: Vec<KvTensor>,
}

/// The cache tensors of a model, by split in execution order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KvGeometry {
    /// The splits.
    pub splits: Vec<SplitGeometry>,
}

impl KvGeometry {
    /// One split with keys and values of `n_layers` layers, key before value.
    pub fn uniform(n_layers: usize, n_heads: usize, head_dim: usize, dtype: KvDtype) -> Self {
        let kinds = [KvKind::Key, KvKind::Value];
        let tensors = (0..n_layers)
            .flat_map(|layer| kinds.map(|kind| KvTensor::new(kind, layer, n_heads, head_dim, dtype)))
            .collect();
        Self { splits: vec![SplitGeometry { tensors }] }
    }

    /// Bytes of `n` rows over all tensors.
    pub fn rows_bytes(&self, n: usize) -> usize {
        self.splits.iter().flat_map(|s| &s.tensors).map(|t| t.rows_bytes(n)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_geometry_off_graph_tensors() {
        let info = TensorInfo::new("past_key_0_in", [2, 1, 32, 96], Dtype::UFixed8)
            .with_quant(Quant::PerTensor { scale: 0.5, offset: -128 });
        let key = KvTensor::from_info(KvKind::Key, LayerIdx(0), None, &info).unwrap();
        assert_eq!((key.n_heads, key.head_dim, key.n_lines(), key.unit_bytes()), (2, 32, 64, 1));
        assert_eq!(key.pad_element(), ([128, 0, 0, 0], 1));
        let info = TensorInfo::new("past_value_0_h1_in", [1, 1, 96, 32], Dtype::F16);
        let value = KvTensor::from_info(KvKind::Value, LayerIdx(0), Some(1), &info).unwrap();
        assert_eq!((value.n_lines(), value.unit_bytes(), value.name().as_str()), (1, 64, "past_value_0_h1"));
    }

    #[test]
    fn refuses_what_is_no_cache_tensor() {
        let info = TensorInfo::new("past_key_0_in", [2, 32, 96], Dtype::F16);
        let err = KvTensor::from_info(KvKind::Key, LayerIdx(0), None, &info).unwrap_err();
        assert_eq!(
            err.to_string(),
            "`past_key_0_in`: shape [2, 32, 96] is no cache shape: expected [n_heads, 1, head_dim, n]"
        );
        let info = TensorInfo::new("past_key_0_in", [2, 1, 32, 96], Dtype::I32);
        assert!(matches!(KvTensor::from_info(KvKind::Key, LayerIdx(0), None, &info), Err(KvError::Dtype { .. })));
    }
}
