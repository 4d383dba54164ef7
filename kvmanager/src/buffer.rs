//! Plain bytes at an aligned address, as client buffers of a graph want to be.
//!
//! Large blocks are anonymous memory of their own, at a huge-page boundary and with huge pages asked for: the keys of
//! one token lie in lines kilobytes apart, and with pages of 4 KiB each of them would cost a walk through the page
//! table (the keys of an append of 128 tokens then take 1.2 to 1.5 times as long).

use crate::KvError;
use crate::memory::{Memory, MemorySource};
#[cfg(not(miri))]
use memmap2::{MmapMut, MmapOptions};

/// Alignment of every buffer: a cache line, and the widest vector load.
pub(crate) const ALIGN: usize = 64;

/// A huge page, and so the least block that is worth one.
#[cfg(not(miri))]
const HUGE: usize = 2 << 20;

#[derive(Debug)]
enum Block {
    Heap(Box<[u8]>),
    /// The program's.
    Given(Box<dyn Memory>),
    /// Not under Miri, which knows no mappings.
    #[cfg(not(miri))]
    Pages(MmapMut),
}

/// A block of bytes that starts at a multiple of [`ALIGN`] and never moves.
///
/// The address is aligned by skipping the head of a slightly larger block, so no `unsafe` is needed; what is skipped
/// of a mapping is never touched and so takes no memory.
#[derive(Debug)]
pub(crate) struct AlignedBytes {
    block: Block,
    start: usize,
    len: usize,
}

impl Default for AlignedBytes {
    fn default() -> Self {
        Self { block: Block::Heap(Box::default()), start: 0, len: 0 }
    }
}

impl AlignedBytes {
    /// `len` zero bytes.
    ///
    /// # Errors
    /// [`KvError::Memory`].
    pub(crate) fn zeroed(len: usize) -> Result<Self, KvError> {
        #[cfg(not(miri))]
        if len >= HUGE {
            return Self::mapped(len);
        }
        let block = vec![0; if len == 0 { 0 } else { len + ALIGN - 1 }].into_boxed_slice();
        let start = if len == 0 { 0 } else { block.as_ptr().addr().wrapping_neg() % ALIGN };
        Ok(Self { block: Block::Heap(block), start, len })
    }

    /// `len` zero bytes out of that source, else of our own.
    ///
    /// # Errors
    /// [`KvError::Memory`].
    pub(crate) fn from_source(source: Option<&dyn MemorySource>, len: usize) -> Result<Self, KvError> {
        let Some(source) = source.filter(|_| len > 0) else { return Self::zeroed(len) };
        let refused = |why: String| KvError::Memory { bytes: len, why };
        let block = source.zeroed(len + ALIGN - 1).map_err(|error| refused(error.to_string()))?;
        let start = block.bytes().as_ptr().addr().wrapping_neg() % ALIGN;
        let found = block.bytes().len();
        if found < start + len {
            return Err(refused(format!("the program's memory has {found} bytes")));
        }
        Ok(Self { block: Block::Given(block), start, len })
    }

    #[cfg(not(miri))]
    fn mapped(len: usize) -> Result<Self, KvError> {
        let refused = |why: String| KvError::Memory { bytes: len, why };
        let total = len.checked_add(HUGE).ok_or_else(|| refused("more than this machine can address".to_owned()))?;
        let pages = MmapOptions::new().len(total).map_anon().map_err(|e| refused(e.to_string()))?;
        // A wish, no more: a kernel without huge pages serves small ones.
        #[cfg(target_os = "linux")]
        let _ = pages.advise(memmap2::Advice::HugePage);
        let start = pages.as_ptr().addr().wrapping_neg() % HUGE;
        Ok(Self { block: Block::Pages(pages), start, len })
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        let block: &[u8] = match &self.block {
            Block::Heap(block) => block,
            Block::Given(block) => block.bytes(),
            #[cfg(not(miri))]
            Block::Pages(pages) => pages,
        };
        &block[self.start..self.start + self.len]
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        let block: &mut [u8] = match &mut self.block {
            Block::Heap(block) => block,
            Block::Given(block) => block.bytes_mut(),
            #[cfg(not(miri))]
            Block::Pages(pages) => pages,
        };
        &mut block[self.start..self.start + self.len]
    }
}

/// Fills with a repeated element of 1, 2 or 4 bytes.
pub(crate) fn fill(bytes: &mut [u8], element: &[u8]) {
    match *element {
        [] => {}
        [b] => bytes.fill(b),
        [a, b] if a == b => bytes.fill(a),
        [a, b, c, d] if a == b && b == c && c == d => bytes.fill(a),
        _ => bytes.chunks_exact_mut(element.len()).for_each(|chunk| chunk.copy_from_slice(element)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_aligned_for_any_length() {
        for len in [0, 1, 63, 64, 65, 4096, if cfg!(miri) { 0 } else { (2 << 20) + 1 }] {
            let mut bytes = AlignedBytes::zeroed(len).unwrap();
            assert_eq!(bytes.as_mut_slice().len(), len);
            assert!(bytes.as_slice().iter().all(|&b| b == 0));
            assert!(len == 0 || bytes.as_slice().as_ptr().addr().is_multiple_of(ALIGN));
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "maps memory")]
    fn more_than_there_is_is_an_error() {
        let err = AlignedBytes::zeroed(usize::MAX / 4).unwrap_err().to_string();
        assert!(err.starts_with("no memory for 4611686018427387903 bytes of KV cache: "), "{err}");
        assert!(AlignedBytes::zeroed(usize::MAX - 1).is_err());
    }

    #[test]
    fn fills_with_the_element() {
        let mut bytes = [0; 8];
        fill(&mut bytes, &[1, 2]);
        assert_eq!(bytes, [1, 2, 1, 2, 1, 2, 1, 2]);
        fill(&mut bytes, &[3, 3]);
        assert_eq!(bytes, [3; 8]);
        fill(&mut bytes, &[0, 0, 128, 63]);
        assert_eq!(bytes, [0, 0, 128, 63, 0, 0, 128, 63]);
    }
}
