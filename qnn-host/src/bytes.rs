//! Read-only bytes that are cheap to share: owned and aligned, or a range of a mapped file.
//!
//! Invariant: owned bytes start at a multiple of [`ALIGN`]; a mapped range keeps its file mapped.

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;

use memmap2::Mmap;

/// Alignment of owned bytes: a cache line, and the widest vector register.
pub const ALIGN: usize = 64;

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; ALIGN]);

#[derive(Clone)]
enum Source {
    Owned(Arc<[Line]>),
    Mapped(Arc<Mmap>),
}

/// Shared bytes; a clone shares, never copies.
#[derive(Clone)]
pub struct Bytes {
    source: Source,
    range: Range<usize>,
}

impl Bytes {
    /// Copies `data` into aligned memory.
    pub fn copy_from(data: &[u8]) -> Self {
        let mut lines = vec![Line([0; ALIGN]); data.len().div_ceil(ALIGN)];
        for (line, chunk) in lines.iter_mut().zip(data.chunks(ALIGN)) {
            line.0[..chunk.len()].copy_from_slice(chunk);
        }
        Self { source: Source::Owned(lines.into()), range: 0..data.len() }
    }

    /// A range of a mapped file; `None` when it does not lie inside.
    pub fn mapped(map: Arc<Mmap>, range: Range<usize>) -> Option<Self> {
        (range.start <= range.end && range.end <= map.len()).then_some(Self { source: Source::Mapped(map), range })
    }

    /// A part of these bytes; `None` when it does not lie inside.
    pub fn slice(&self, part: Range<usize>) -> Option<Self> {
        let range = self.range.start.checked_add(part.start)?..self.range.start.checked_add(part.end)?;
        (part.start <= part.end && range.end <= self.range.end).then(|| Self { source: self.source.clone(), range })
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let all: &[u8] = match &self.source {
            Source::Mapped(map) => map,
            Source::Owned(lines) => {
                // SAFETY: `Line` is 64 plain bytes with no padding (`repr(C, align(64))`), so a slice of lines is
                // a slice of `64 * len` initialised bytes, borrowed for as long as `self`.
                unsafe { std::slice::from_raw_parts(lines.as_ptr().cast::<u8>(), lines.len() * ALIGN) }
            }
        };
        &all[self.range.clone()]
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bytes({})", self.len())
    }
}
