//! Memory that a program hands to a cache: the cache fills it and does not know where it comes from.

use std::error::Error;
use std::fmt::Debug;

/// A block of bytes that never moves. It should begin at a multiple of 64.
pub trait Memory: Send + Debug {
    /// The contents.
    fn bytes(&self) -> &[u8];
    /// The contents, to be changed.
    fn bytes_mut(&mut self) -> &mut [u8];
}

/// Why there is none.
pub type NoMemory = Box<dyn Error + Send + Sync>;

/// Hands out memory.
pub trait MemorySource: Send + Sync + Debug {
    /// At least that many bytes, all zero.
    ///
    /// # Errors
    /// No memory.
    fn zeroed(&self, n_bytes: usize) -> Result<Box<dyn Memory>, NoMemory>;
}
