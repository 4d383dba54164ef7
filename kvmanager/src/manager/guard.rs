//! A split's tensors on loan for one execution.

use crate::geometry::KvTensor;
use crate::mode::ModeKind;
use crate::worker::Shard;

/// Both sides of one cache tensor, for the current shape.
///
/// *Shapes* for AR = n and a past of p rows: keys `[n_heads, 1, head_dim, p]` and `[n_heads, 1, head_dim, n]`, values
/// `[n_heads, 1, p, head_dim]` and `[n_heads, 1, n, head_dim]`; `NativeKv` pads p and n to whole tiles. `past` is empty
/// when AR == CL.
#[derive(Debug)]
pub struct TensorView<'a> {
    /// Which tensor it is.
    pub spec: &'a KvTensor,
    /// Bytes for the graph's `past_*_in`.
    pub past: &'a [u8],
    /// Bytes for the graph's `past_*_out`; what was there before means nothing.
    pub new: &'a mut [u8],
}

/// A split's tensors at home, all jobs done. Drop it before [`commit`](crate::KvCache::commit).
#[derive(Debug)]
pub struct SplitGuard<'a> {
    shards: &'a mut [Shard],
    mode: ModeKind,
}

impl<'a> SplitGuard<'a> {
    pub(super) fn new(shards: &'a mut [Shard], mode: ModeKind) -> Self {
        Self { shards, mode }
    }

    /// Number of cache tensors.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|s| s.tensors().len()).sum()
    }

    /// Whether the split has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All tensors in the order of the [`SplitGeometry`](crate::SplitGeometry), to be bound at once.
    pub fn views(&mut self) -> impl Iterator<Item = TensorView<'_>> {
        let mode = self.mode;
        self.shards.iter_mut().flat_map(Shard::parts_mut).map(move |(tensor, bytes)| tensor.view(bytes, &mode))
    }

    /// One tensor by its index in the geometry.
    pub fn view(&mut self, index: usize) -> Option<TensorView<'_>> {
        self.views().nth(index)
    }
}
