//! Which cache tensors the splits have, as plain data. No buffers here; one tensor is [`KvTensor`] of `genie-types`.

pub use genie_types::{KV_BLOCK, KvDtype, KvForm, KvKind, KvLayout, KvTensor};

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

    /// The same with keys and values in blocks of [`KV_BLOCK`] numbers, 8 bits each, and scales in float16.
    ///
    /// # Panics
    /// When `head_dim` is not a multiple of [`KV_BLOCK`].
    pub fn in_blocks(n_layers: usize, n_heads: usize, head_dim: usize) -> Self {
        assert!(head_dim.is_multiple_of(KV_BLOCK), "heads of {head_dim} numbers are no whole blocks");
        let rows =
            |kind, layer| KvTensor::new(kind, layer, n_heads, head_dim, KvDtype::U8).with_quant(1.0, -128).by_row();
        let scales = |kind, layer| KvTensor::new(kind, layer, n_heads, head_dim / KV_BLOCK, KvDtype::F16);
        let of_layer =
            |layer| KvKind::ALL.map(|kind| if kind.is_scale() { scales(kind, layer) } else { rows(kind, layer) });
        Self { splits: vec![SplitGeometry { tensors: (0..n_layers).flat_map(of_layer).collect() }] }
    }

    /// The same with keys row by row, as values are: a token's key is one stretch of memory then.
    #[must_use]
    pub fn with_keys_by_row(mut self) -> Self {
        for tensor in self.splits.iter_mut().flat_map(|split| &mut split.tensors) {
            *tensor = if tensor.kind == KvKind::Key { tensor.by_row() } else { *tensor };
        }
        self
    }

    /// Bytes of `n` rows over all tensors.
    pub fn rows_bytes(&self, n: usize) -> usize {
        self.splits.iter().flat_map(|s| &s.tensors).map(|t| t.rows_bytes(n)).sum()
    }
}
