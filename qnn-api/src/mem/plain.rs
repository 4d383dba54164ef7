//! Plain memory of this process, on page boundaries so that vector loads and copies are aligned.

use core::ptr::NonNull;

use memmap2::MmapMut;

use super::{Allocator, Block};
use crate::error::{Error, Result};

/// Memory that only this process sees.
#[derive(Clone, Copy, Debug, Default)]
pub struct PlainMemory;

impl Allocator for PlainMemory {
    fn allocate(&self, n_bytes: usize) -> Result<Box<dyn Block>> {
        // An empty mapping is refused by the system; a byte costs a page either way.
        let mut map = MmapMut::map_anon(n_bytes.max(1)).map_err(|source| Error::Io {
            operation: "allocate memory for",
            path: format!("{n_bytes} bytes").into(),
            source,
        })?;
        // Blocks are written through this pointer.
        let start = NonNull::from(&mut *map).cast();
        Ok(Box::new(Plain { start, n_bytes, _map: map }))
    }
}

struct Plain {
    start: NonNull<u8>,
    n_bytes: usize,
    _map: MmapMut,
}

// SAFETY: the mapping is owned by the value alone.
unsafe impl Send for Plain {}

// SAFETY: an anonymous mapping: zeroed, ours alone, at a fixed place until it is dropped.
unsafe impl Block for Plain {
    fn start(&self) -> NonNull<u8> {
        self.start
    }

    fn len(&self) -> usize {
        self.n_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_zeroed_and_as_long_as_asked() {
        for n in [0, 1, 5000] {
            let block = PlainMemory.allocate(n).unwrap();
            assert_eq!((block.len(), block.fd()), (n, None));
            // SAFETY: the block's contract.
            let bytes = unsafe { core::slice::from_raw_parts(block.start().as_ptr(), n) };
            assert!(bytes.iter().all(|&b| b == 0));
        }
    }
}
