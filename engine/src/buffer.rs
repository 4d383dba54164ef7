//! Client buffers of a graph: bytes at an aligned address that live as long as the engine.

use bytemuck::Pod;

/// A cache line, and the widest vector load.
const ALIGN: usize = 64;

/// A block of bytes at a multiple of [`ALIGN`] that never moves.
///
/// The block is a little larger and its head is skipped, so no `unsafe` is needed.
#[derive(Debug)]
pub(crate) struct Buffer {
    block: Box<[u8]>,
    start: usize,
    len: usize,
}

impl Buffer {
    /// `len` zero bytes.
    pub(crate) fn zeroed(len: usize) -> Self {
        let block = vec![0; len + ALIGN - 1].into_boxed_slice();
        let start = block.as_ptr().addr().wrapping_neg() % ALIGN;
        Self { block, start, len }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.block[self.start..self.start + self.len]
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.block[self.start..self.start + self.len]
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
