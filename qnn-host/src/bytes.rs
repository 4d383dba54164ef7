//! Read-only bytes that are cheap to share: owned and aligned, a range of a mapped file, the client's own memory, or made
//! when they are first read.
//!
//! Invariant: owned bytes start at a multiple of [`ALIGN`]; a mapped range keeps its file mapped; client memory is kept
//! by the promise given to [`Bytes::from_client`].

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::{Arc, OnceLock};

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
    Later(Arc<Later>),
}

/// Bytes that no caller has read yet, or that were made since.
struct Later {
    made: OnceLock<Bytes>,
    len: usize,
    make: Box<dyn Fn() -> Bytes + Send + Sync>,
}

impl Later {
    fn bytes(&self) -> &Bytes {
        self.made.get_or_init(|| {
            let made = (self.make)();
            assert_eq!(made.len(), self.len, "bytes that are made later have the length they were announced with");
            made
        })
    }
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
        // Not by way of a vector: what is shared has its counts in front, so that a vector would be copied once more.
        Self::filled(data.len(), |to| to.copy_from_slice(data))
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

    /// `len` bytes that `make` makes when they are first read; their length and [`Bytes::id`] are known before.
    pub fn later(len: usize, make: impl Fn() -> Self + Send + Sync + 'static) -> Self {
        Self {
            source: Source::Later(Arc::new(Later { made: OnceLock::new(), len, make: Box::new(make) })),
            range: 0..len,
        }
    }

    /// Whether they can be read without being made first.
    pub fn is_made(&self) -> bool {
        match &self.source {
            Source::Later(later) => later.made.get().is_some(),
            _ => true,
        }
    }

    /// Takes the pages of a mapped file out of memory; they are read again where they are used again.
    pub fn forget_pages(&self) {
        if matches!(self.source, Source::Mapped(_)) {
            // SAFETY: a shared, read-only mapping of a file, as `Mmap`s are that were not made to copy on write.
            unsafe { crate::pages::forget(self) };
        }
    }

    /// Takes the pages of client memory out of memory; other bytes stay.
    ///
    /// # Safety
    /// Client memory must be a shared, read-only mapping of a file.
    pub(crate) unsafe fn forget_client_pages(&self) {
        if matches!(self.source, Source::Client(_)) {
            // SAFETY: the caller's promise.
            unsafe { crate::pages::forget(self) };
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// Names where the bytes lie, for as long as any clone lives: clones have the same, and other bytes that begin elsewhere another.
    pub fn id(&self) -> (usize, usize) {
        match &self.source {
            Source::Later(later) => (Arc::as_ptr(later).addr(), self.range.start),
            _ => (0, self.as_ptr().addr()),
        }
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
            Source::Later(later) => later.bytes(),
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn later_bytes_are_made_once_and_only_when_read() {
        let made = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&made);
        let bytes = Bytes::later(3, move || {
            count.fetch_add(1, Ordering::Relaxed);
            Bytes::copy_from(&[1, 2, 3])
        });
        let part = bytes.slice(1..3).expect("inside");
        assert_eq!((bytes.len(), part.len(), bytes.is_empty()), (3, 2, false));
        assert_eq!(bytes.id(), bytes.clone().id());
        assert_ne!(bytes.id(), part.id());
        assert!(!bytes.is_made() && made.load(Ordering::Relaxed) == 0);
        assert_eq!(part[..], [2, 3]);
        assert_eq!(bytes[..], [1, 2, 3]);
        assert!(part.is_made() && made.load(Ordering::Relaxed) == 1);
    }
}
