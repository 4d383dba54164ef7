//! Client buffers of a graph: bytes at an aligned address that live as long as the engine.

use std::sync::Arc;

use bytemuck::Pod;
use qnn_api::{SharedBlock, SharedMemory};

use crate::EngineError;

/// A cache line, and the widest vector load.
const ALIGN: usize = 64;

/// A block of bytes at a multiple of [`ALIGN`] that never moves.
///
#[derive(Debug)]
pub(crate) struct Buffer(Block);

#[derive(Debug)]
enum Block {
    /// A little larger than asked for, so its head can be skipped and no `unsafe` is needed.
    Heap { block: Box<[u8]>, start: usize, len: usize },
    /// Begins at a page.
    Shared(SharedBlock),
}

impl Buffer {
    /// `len` zero bytes.
    pub(crate) fn zeroed(len: usize) -> Self {
        let block = vec![0; len + ALIGN - 1].into_boxed_slice();
        let start = block.as_ptr().addr().wrapping_neg() % ALIGN;
        Self(Block::Heap { block, start, len })
    }

    /// `len` zero bytes that the NPU sees as well, if there is such memory.
    pub(crate) fn shared(memory: Option<&Arc<SharedMemory>>, len: usize) -> Result<Self, EngineError> {
        let Some(memory) = memory.filter(|_| len > 0) else { return Ok(Self::zeroed(len)) };
        let block = memory.zeroed(len).map_err(|source| EngineError::SharedMemory { bytes: len, source })?;
        Ok(Self(Block::Shared(block)))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match &self.0 {
            Block::Heap { block, start, len } => &block[*start..start + len],
            Block::Shared(block) => block.bytes(),
        }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        match &mut self.0 {
            Block::Heap { block, start, len } => &mut block[*start..*start + *len],
            Block::Shared(block) => block.bytes_mut(),
        }
    }
}

/// The bytes as elements. *Invariant* asked of the caller: they come from the start of a [`Buffer`] and hold whole elements.
pub(crate) fn elements<T: Pod>(bytes: &[u8]) -> &[T] {
    bytemuck::cast_slice(bytes)
}

/// As [`elements`], to be written.
pub(crate) fn elements_mut<T: Pod>(bytes: &mut [u8]) -> &mut [T] {
    bytemuck::cast_slice_mut(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aligned_and_typed() {
        for len in [0, 4, 64, 4096] {
            let mut buffer = Buffer::zeroed(len);
            assert!(buffer.bytes().as_ptr().addr().is_multiple_of(ALIGN));
            elements_mut::<u32>(buffer.bytes_mut()).fill(0x0403_0201);
            assert_eq!(elements::<u32>(buffer.bytes()).len(), len / 4);
        }
    }
}
