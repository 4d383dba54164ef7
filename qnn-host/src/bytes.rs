//! Read-only bytes that are cheap to share: owned and aligned, a range of a mapped file, or the client's own memory.
//!
//! Invariant: owned bytes start at a multiple of [`ALIGN`]; a mapped range keeps its file mapped; client memory is kept
//! by the promise given to [`Bytes::from_client`].

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
    Client(Client),
}

/// Memory of the client. Invariant: readable and unchanging while any clone lives (contract of `from_client`).
#[derive(Clone, Copy)]
struct Client {
    start: *const u8,
    len: usize,
}

// SAFETY: the memory is only read, and the contract of `from_client` promises that it is not written meanwhile.
unsafe impl Send for Client {}
// SAFETY: as above; shared reads of unchanging memory need no order.
unsafe impl Sync for Client {}

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

    /// `len` bytes of aligned memory, zeros that `fill` writes over.
    pub fn filled(len: usize, fill: impl FnOnce(&mut [u8])) -> Self {
        let mut lines: Arc<[Line]> = std::iter::repeat_n(Line([0; ALIGN]), len.div_ceil(ALIGN)).collect();
        let owned = Arc::get_mut(&mut lines).expect("made just now, and not shared yet");
        // SAFETY: `Line` is 64 plain bytes without padding, all patterns valid; the slice covers exactly the lines, which
        // are borrowed mutably meanwhile.
        let bytes = unsafe { std::slice::from_raw_parts_mut(owned.as_mut_ptr().cast::<u8>(), owned.len() * ALIGN) };
        fill(&mut bytes[..len]);
        Self { source: Source::Owned(lines), range: 0..len }
    }

    /// A range of a mapped file; `None` when it does not lie inside.
    pub fn mapped(map: Arc<Mmap>, range: Range<usize>) -> Option<Self> {
        (range.start <= range.end && range.end <= map.len()).then_some(Self { source: Source::Mapped(map), range })
    }

    /// Refers to memory of the client, without copying.
    ///
    /// # Safety
    /// `start` must be valid for reads of `len` bytes, and the bytes must not change, until the value and all its
    /// clones and slices are dropped. A context made with the persistent-binary config gives this promise for as long
    /// as the context lives, which is why freeing a context first waits for its runs and then drops its graphs.
    pub unsafe fn from_client(start: *const u8, len: usize) -> Self {
        Self { source: Source::Client(Client { start, len }), range: 0..len }
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
            Source::Client(client) if client.len == 0 => &[],
            Source::Client(client) => {
                // SAFETY: the caller of `from_client` promised `len` readable, unchanging bytes at `start` for as long
                // as any clone lives, and `self` is one.
                unsafe { std::slice::from_raw_parts(client.start, client.len) }
            }
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
