//! Client buffers of a graph: bytes at an aligned address that live as long as the engine.

use std::sync::Arc;

use bytemuck::Pod;
use qnn_api::{SharedBlock, SharedMemory};

use crate::EngineError;

/// A cache line, and the widest vector load.
const ALIGN: usize = 64;

/// What shared blocks begin at a multiple of.
const PAGE: usize = 4096;

/// A block of bytes at a multiple of [`ALIGN`] that never moves.
///
#[derive(Debug)]
pub(crate) struct Buffer(Block);

#[derive(Debug)]
enum Block {
    /// A little larger than asked for, so its head can be skipped and no `unsafe` is needed.
    Heap { block: Box<[u8]>, start: usize, len: usize },
    /// The same in memory that the NPU sees as well.
    Shared { block: SharedBlock, start: usize, len: usize },
}

impl Buffer {
    /// `len` zero bytes.
    pub(crate) fn zeroed(len: usize) -> Self {
        Self::aligned(len, ALIGN)
    }

    /// `len` zero bytes at a multiple of `align`, and of [`ALIGN`].
    fn aligned(len: usize, align: usize) -> Self {
        let align = align_of(align);
        let block = vec![0; len + align - 1].into_boxed_slice();
        let start = from_multiple(block.as_ptr(), align);
        Self(Block::Heap { block, start, len })
    }

    /// `len` zero bytes that the NPU sees as well, if there is such memory.
    pub(crate) fn shared(memory: Option<&Arc<SharedMemory>>, len: usize, align: usize) -> Result<Self, EngineError> {
        let Some(memory) = memory.filter(|_| len > 0) else { return Ok(Self::aligned(len, align)) };
        let align = align_of(align);
        // Blocks begin at a page.
        let more = if PAGE.is_multiple_of(align) { 0 } else { align - 1 };
        let block = memory.zeroed(len + more).map_err(|source| EngineError::SharedMemory { bytes: len, source })?;
        let start = from_multiple(block.bytes().as_ptr(), align);
        Ok(Self(Block::Shared { block, start, len }))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match &self.0 {
            Block::Heap { block, start, len } => &block[*start..start + len],
            Block::Shared { block, start, len } => &block.bytes()[*start..start + len],
        }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        match &mut self.0 {
            Block::Heap { block, start, len } => &mut block[*start..*start + *len],
            Block::Shared { block, start, len } => &mut block.bytes_mut()[*start..*start + *len],
        }
    }
}

/// The least that is a multiple of both: the alignment asked for, and [`ALIGN`].
fn align_of(asked: usize) -> usize {
    let mut align = ALIGN;
    while !align.is_multiple_of(asked.max(1)) {
        align += ALIGN;
    }
    align
}

/// Bytes from an address to the next multiple.
fn from_multiple(start: *const u8, align: usize) -> usize {
    start.addr().next_multiple_of(align) - start.addr()
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
    fn any_alignment_holds_beside_our_own() {
        let memory = SharedMemory::new(qnn_api::PlainMemory);
        for align in [0, 1, 48, 64, 100, 4096, 6000, 2 << 20] {
            for memory in [None, Some(&memory)] {
                let mut buffer = Buffer::shared(memory, 1000, align).unwrap();
                let address = buffer.bytes().as_ptr().addr();
                assert!(address.is_multiple_of(ALIGN) && address.is_multiple_of(align.max(1)), "{align}");
                assert_eq!((buffer.bytes().len(), buffer.bytes_mut().len()), (1000, 1000));
            }
        }
    }

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
