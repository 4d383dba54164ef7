//! A split's tensors on loan for one execution.

use crate::mode::ModeKind;
use crate::tensor_buf::TensorView;
use crate::worker::Shard;

/// A split's tensors, all jobs done, lent from a [`Step`](crate::Step) until the step's next call.
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
