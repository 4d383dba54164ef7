//! The memory of intermediate values: one aligned buffer, sharable by all graphs that never run at the same time.

use crate::bytes::ALIGN;

/// Scratch memory of runs. Give all graphs of a backend the same one: it is as large as the largest need.
///
/// Pages that no run has touched cost nothing: the system hands out zeroed memory, and no code fills it.
#[derive(Default)]
pub struct Arena {
    /// A little larger than needed; the used part begins at `start`. An aligned allocation would be filled with zeros by
    /// hand, page by page.
    block: Vec<u8>,
    start: usize,
    len: usize,
}

impl Arena {
    /// An empty arena.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes it at least that large; what it held is lost when it grows. Allocates only then.
    pub fn ensure(&mut self, bytes: usize) {
        let len = bytes.next_multiple_of(ALIGN);
        if len > self.len {
            *self = Self::default();
            let block = vec![0; len + ALIGN - 1];
            let start = block.as_ptr().addr().wrapping_neg() % ALIGN;
            *self = Self { block, start, len };
        }
    }

    /// Its size, in bytes.
    pub fn bytes(&self) -> usize {
        self.len
    }

    /// Start of the memory; valid for `bytes()` bytes, all initialised, aligned to [`ALIGN`].
    pub(crate) fn base(&mut self) -> *mut u8 {
        self.block[self.start..].as_mut_ptr()
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
        arena.ensure(65);
        assert_eq!(arena.bytes(), 128);
        arena.ensure(1);
        assert_eq!(arena.bytes(), 128);
        assert_eq!(arena.base() as usize % ALIGN, 0);
    }
}
