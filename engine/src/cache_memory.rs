//! Where the KV cache's blocks come from: memory that the NPU sees as well, handed to the cache manager, which knows no QNN.

use std::sync::Arc;

use kvmanager::memory::{Memory, MemorySource, NoMemory};
use qnn_api::{SharedBlock, SharedMemory};

/// Blocks of a [`SharedMemory`].
#[derive(Debug)]
pub(crate) struct CacheMemory(pub(crate) Arc<SharedMemory>);

#[derive(Debug)]
struct CacheBlock(SharedBlock);

impl MemorySource for CacheMemory {
    fn zeroed(&self, n_bytes: usize) -> Result<Box<dyn Memory>, NoMemory> {
        Ok(Box::new(CacheBlock(self.0.zeroed(n_bytes)?)))
    }
}

impl Memory for CacheBlock {
    fn bytes(&self) -> &[u8] {
        self.0.bytes()
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        self.0.bytes_mut()
    }
}
