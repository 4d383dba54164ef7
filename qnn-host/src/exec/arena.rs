//! The memory of intermediate values: one aligned buffer, sharable by all graphs that never run at the same time.

use crate::bytes::ALIGN;

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; ALIGN]);

/// Scratch memory of runs. Give each graph of a context the same one: it is as large as the largest asked for.
#[derive(Default)]
pub struct Arena {
    lines: Vec<Line>,
}

impl Arena {
    /// An empty arena.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes it at least that large; what it held is lost when it grows. Allocates only then.
    pub fn ensure(&mut self, bytes: usize) {
        let lines = bytes.div_ceil(ALIGN);
        if lines > self.lines.len() {
            self.lines = Vec::new();
            self.lines = vec![Line([0; ALIGN]); lines];
        }
    }

    /// Its size, in bytes.
    pub fn bytes(&self) -> usize {
        self.lines.len() * ALIGN
    }

    /// Start of the memory; valid for `bytes()` bytes, all initialised, aligned to [`ALIGN`].
    pub(crate) fn base(&mut self) -> *mut u8 {
        self.lines.as_mut_ptr().cast()
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
