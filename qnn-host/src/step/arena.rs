//! The memory of intermediate values: one aligned buffer, sharable by all graphs that never run at the same time.

use std::io;

use memmap2::MmapMut;

use crate::bytes::ALIGN;

/// A huge page, and so the least memory that is worth one.
const HUGE: usize = 2 << 20;

/// Scratch memory of runs. Give all graphs of a backend the same one: it is as large as the largest need.
///
/// Pages that no run has touched cost nothing: the system hands out zeroed memory, and no code fills it. Large memory asks for huge
/// pages: rows of a prompt lie pages apart, and each would need an entry of the CPU's table of addresses.
#[derive(Default)]
pub struct Arena {
    /// A little larger than needed; the used part begins at `start`. An aligned allocation would be filled with zeros by
    /// hand, page by page.
    block: Block,
    start: usize,
    len: usize,
}

enum Block {
    Allocated(Vec<u8>),
    Mapped(MmapMut),
}

impl Default for Block {
    fn default() -> Self {
        Self::Allocated(Vec::new())
    }
}

impl Block {
    /// Zeros: at least `len` bytes, and where they begin.
    fn new(len: usize) -> io::Result<(Self, usize)> {
        if len >= HUGE {
            let pages = MmapMut::map_anon(len.saturating_add(HUGE))?;
            // A wish, no more: a kernel without huge pages serves small ones.
            #[cfg(target_os = "linux")]
            let _ = pages.advise(memmap2::Advice::HugePage);
            let start = pages.as_ptr().addr().wrapping_neg() % HUGE;
            return Ok((Self::Mapped(pages), start));
        }
        let mut block = Vec::new();
        block.try_reserve_exact(len + ALIGN - 1)?;
        block.resize(len + ALIGN - 1, 0);
        let start = block.as_ptr().addr().wrapping_neg() % ALIGN;
        Ok((Self::Allocated(block), start))
    }

    fn bytes(&mut self) -> &mut [u8] {
        match self {
            Self::Allocated(block) => block,
            Self::Mapped(pages) => pages,
        }
    }
}

impl Arena {
    /// An empty arena.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes it at least that large; what it held is lost when it grows. Allocates only then.
    ///
    /// # Errors
    /// The system gives no memory: the arena is empty then.
    pub fn ensure(&mut self, bytes: usize) -> io::Result<()> {
        if bytes > self.len {
            *self = Self::default();
            let len = bytes.checked_next_multiple_of(ALIGN).ok_or(io::ErrorKind::OutOfMemory)?;
            let (block, start) = Block::new(len)?;
            *self = Self { block, start, len };
        }
        Ok(())
    }

    /// Its size, in bytes.
    pub fn bytes(&self) -> usize {
        self.len
    }

    /// Start of the memory; valid for `bytes()` bytes, all initialised, aligned to [`ALIGN`].
    pub(crate) fn base(&mut self) -> *mut u8 {
        self.block.bytes()[self.start..].as_mut_ptr()
    }
}

impl std::fmt::Debug for Arena {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Arena({} bytes)", self.bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_grows_and_never_shrinks() {
        let mut arena = Arena::new();
        assert_eq!(arena.bytes(), 0);
        arena.ensure(65).unwrap();
        assert_eq!(arena.bytes(), 128);
        arena.ensure(1).unwrap();
        assert_eq!(arena.bytes(), 128);
        assert_eq!(arena.base() as usize % ALIGN, 0);
    }

    #[test]
    fn large_memory_begins_a_huge_page_and_is_zeros() {
        let mut arena = Arena::new();
        arena.ensure(HUGE + 1).unwrap();
        assert_eq!(arena.bytes(), HUGE + ALIGN);
        assert_eq!(arena.base().addr() % HUGE, 0);
        let (bytes, len) = (arena.start, arena.len);
        assert!(arena.block.bytes()[bytes..][..len].iter().all(|&b| b == 0));
    }

    #[test]
    fn memory_that_the_system_does_not_have_is_an_error_and_the_arena_serves_on() {
        let mut arena = Arena::new();
        for bytes in [1 << 60, usize::MAX / 2, usize::MAX - 1, usize::MAX] {
            assert!(arena.ensure(bytes).is_err(), "{bytes}");
            assert_eq!(arena.bytes(), 0);
            arena.ensure(65).unwrap();
            assert_eq!(arena.bytes(), 128);
        }
    }
}
