//! Memory for many buffers of one process, known by address: what a graph is lent out of it is bound by handle.
//!
//! *Invariants*: bytes are reached through the one [`SharedBlock`] only; everything else keeps the block's address, length and
//! descriptor. Memory that is registered lives until the registration is taken back.

use core::ptr::NonNull;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::{Allocator, Block, PlainMemory};
use crate::error::Result;

/// Hands out blocks that graphs may be given by handle, see [`Graph::share`](crate::Graph::share).
pub struct SharedMemory {
    allocator: Box<dyn Allocator>,
    /// By first address.
    blocks: Mutex<BTreeMap<usize, Weak<Owned>>>,
    /// The library takes no such memory.
    refused: AtomicBool,
}

/// A block. Through a shared reference only its address, length and descriptor are looked at.
pub(crate) struct Owned(Box<dyn Block>);

// SAFETY: `Block` is `Send`, and no byte of it is reached through a shared `Owned`.
unsafe impl Sync for Owned {}

impl Owned {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

/// Part of a block that has a descriptor.
pub(crate) struct Place {
    pub(crate) block: Arc<Owned>,
    pub(crate) fd: i32,
    pub(crate) offset: usize,
}

impl SharedMemory {
    /// Memory of that allocator.
    pub fn new(allocator: impl Allocator + 'static) -> Arc<Self> {
        Arc::new(Self { allocator: Box::new(allocator), blocks: Mutex::default(), refused: AtomicBool::new(false) })
    }

    /// That many zero bytes. Where the allocator refuses, a warning says so and the block is plain memory, bound by address.
    ///
    /// # Errors
    /// No memory of either kind.
    pub fn zeroed(&self, n_bytes: usize) -> Result<SharedBlock> {
        let block = match self.allocator.allocate(n_bytes) {
            Ok(block) => block,
            Err(error) => {
                tracing::warn!("{n_bytes} bytes are not shared with the NPU: {error}");
                PlainMemory.allocate(n_bytes)?
            }
        };
        let owned = Arc::new(Owned(block));
        let mut blocks = self.lock();
        // Their addresses may be in use again.
        blocks.retain(|_, block| block.strong_count() > 0);
        blocks.insert(owned.0.start().addr().get(), Arc::downgrade(&owned));
        Ok(SharedBlock { owned })
    }

    /// The library takes no such memory: nothing is found from now on.
    pub(crate) fn refuse(&self) {
        self.refused.store(true, Ordering::Relaxed);
    }

    /// The block that holds those bytes; none for other memory.
    pub(crate) fn find(&self, address: usize, n_bytes: usize) -> Option<Place> {
        if self.refused.load(Ordering::Relaxed) {
            return None;
        }
        let blocks = self.lock();
        let (start, block) = blocks.range(..=address).next_back()?;
        let (block, offset) = (block.upgrade()?, address - start);
        let fd = block.0.fd()?;
        let inside = offset.checked_add(n_bytes).is_some_and(|end| end <= block.len());
        (inside && n_bytes > 0).then_some(Place { block, fd, offset })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<usize, Weak<Owned>>> {
        // A map of addresses is whole whatever a thread died of.
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl core::fmt::Debug for SharedMemory {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("SharedMemory").field("n_blocks", &self.lock().len()).finish_non_exhaustive()
    }
}

/// Bytes of a [`SharedMemory`], at a fixed address on a page boundary.
pub struct SharedBlock {
    owned: Arc<Owned>,
}

impl SharedBlock {
    fn start(&self) -> NonNull<u8> {
        self.owned.0.start()
    }

    /// The contents.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the block's contract; this value alone reaches the bytes, and it is borrowed.
        unsafe { core::slice::from_raw_parts(self.start().as_ptr(), self.owned.len()) }
    }

    /// The contents, to be changed.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and the borrow is exclusive.
        unsafe { core::slice::from_raw_parts_mut(self.start().as_ptr(), self.owned.len()) }
    }
}

impl core::fmt::Debug for SharedBlock {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("SharedBlock").field("len", &self.owned.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;

    struct Numbered;
    struct WithFd(Box<dyn Block>);

    // SAFETY: a plain block.
    unsafe impl Block for WithFd {
        fn start(&self) -> NonNull<u8> {
            self.0.start()
        }
        fn len(&self) -> usize {
            self.0.len()
        }
        fn fd(&self) -> Option<i32> {
            Some(9)
        }
    }

    impl Allocator for Numbered {
        fn allocate(&self, n_bytes: usize) -> Result<Box<dyn Block>> {
            if n_bytes > 1 << 20 {
                let (what, expected) = ("a block".to_owned(), "at most 1 MB".to_owned());
                return Err(Error::Invalid { what, expected, found: n_bytes.to_string() });
            }
            Ok(Box::new(WithFd(PlainMemory.allocate(n_bytes)?)))
        }
    }

    #[test]
    fn blocks_are_found_by_the_addresses_in_them() {
        let memory = SharedMemory::new(Numbered);
        let mut block = memory.zeroed(8192).unwrap();
        block.bytes_mut()[4096] = 7;
        let start = block.bytes().as_ptr().addr();
        let place = |at: usize, n| memory.find(start + at, n).map(|p| (p.fd, p.offset));
        assert_eq!(place(0, 8192), Some((9, 0)));
        assert_eq!(place(4096, 4096), Some((9, 4096)));
        assert_eq!((place(4096, 4097), place(0, 0)), (None, None), "beyond the end; no bytes");
        let other = [0_u8; 16];
        assert!(memory.find(other.as_ptr().addr(), 16).is_none());
        drop(block);
        assert!(memory.find(start, 1).is_none(), "its memory is gone");
    }

    #[test]
    fn what_is_refused_is_plain_memory() {
        let memory = SharedMemory::new(Numbered);
        let block = memory.zeroed(2 << 20).unwrap();
        assert_eq!(block.bytes().len(), 2 << 20);
        assert!(memory.find(block.bytes().as_ptr().addr(), 1).is_none(), "no descriptor");
    }
}
