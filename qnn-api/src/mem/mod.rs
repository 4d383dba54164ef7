//! Memory that both sides see: allocated by an [`Allocator`], registered with a context where the library can.
//!
//! On a device, registered memory (rpcmem) spares a copy per run. Where memory cannot be shared, as on a host or for
//! plain heap memory, the buffer works all the same and is bound by address.

mod plain;
mod register;
mod rpcmem;
mod shared;

use core::ptr::NonNull;
use std::sync::Arc;

use genie_types::TensorInfo;
use qnn_sys::*;

pub use plain::PlainMemory;
pub(crate) use register::handle;
pub use rpcmem::Rpcmem;
pub use shared::{SharedBlock, SharedMemory};

use crate::backend::log_failure;
use crate::context_handle::ContextInner;
use crate::error::{Error, Result};

/// A block of memory.
///
/// # Safety
/// `start` points at `len` initialised bytes that no one else reads or writes, for as long as the value lives; moving the
/// value does not move them. A `fd` stands for this very memory.
pub unsafe trait Block: Send {
    /// First byte.
    fn start(&self) -> NonNull<u8>;
    /// Bytes.
    fn len(&self) -> usize;
    /// True for no bytes at all.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// A file descriptor by which a device can map it; none for memory of this process alone.
    fn fd(&self) -> Option<i32> {
        None
    }
}

/// Hands out memory. Blocks come zeroed.
pub trait Allocator: Send + Sync {
    /// A block of that many bytes.
    ///
    /// # Errors
    /// No memory.
    fn allocate(&self, n_bytes: usize) -> Result<Box<dyn Block>>;
}

/// A tensor's buffer in shared memory, if the library takes it as such.
///
/// Invariant: `handle`, if any, is a live registration with `context`, taken back once, in `drop`, before the memory goes.
pub struct Registered {
    handle: Option<Qnn_MemHandle_t>,
    block: Box<dyn Block>,
    context: Arc<ContextInner>,
}

// SAFETY: the handle is not bound to a thread; calls on it are serialised by the backend's lock; the block is `Send`.
unsafe impl Send for Registered {}

impl Registered {
    /// As [`Context::allocate`](crate::Context::allocate).
    pub(crate) fn new(context: &Arc<ContextInner>, allocator: &dyn Allocator, info: &TensorInfo) -> Result<Self> {
        let block = allocator.allocate(info.size_bytes())?;
        let handle = match block.fd() {
            Some(fd) => register::register(context, info, fd, None)?,
            None => None,
        };
        Ok(Self { handle, block, context: context.clone() })
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.block.len()
    }

    /// True for a tensor without elements.
    pub fn is_empty(&self) -> bool {
        self.block.is_empty()
    }

    /// True when the library knows this memory by handle; false when it is bound by address.
    pub fn is_shared(&self) -> bool {
        self.handle.is_some()
    }

    /// The contents.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the block's contract, and runs that write to it borrow this mutably.
        unsafe { core::slice::from_raw_parts(self.block.start().as_ptr(), self.block.len()) }
    }

    /// The contents, to be changed.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and the borrow is exclusive.
        unsafe { core::slice::from_raw_parts_mut(self.block.start().as_ptr(), self.block.len()) }
    }

    pub(crate) fn handle(&self) -> Option<Qnn_MemHandle_t> {
        self.handle
    }

    /// A handle means something to the context that it was registered with only.
    pub(crate) fn check_context(&self, context: &Arc<ContextInner>, tensor: &str) -> Result<()> {
        if self.handle.is_none() || Arc::ptr_eq(&self.context, context) {
            return Ok(());
        }
        Err(Error::Invalid {
            what: format!("memory for tensor `{tensor}`"),
            expected: "memory registered with the graph's context".into(),
            found: "memory of another context".into(),
        })
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        if let Some(handle) = self.handle {
            let _calls = self.context.backend.lock();
            // SAFETY: live until here; runs that use it borrow it.
            log_failure("memDeRegister", unsafe { self.context.table().mem_de_register(&raw const handle, 1) });
        }
    }
}

impl core::fmt::Debug for Registered {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Registered")
            .field("len", &self.len())
            .field("shared", &self.is_shared())
            .finish_non_exhaustive()
    }
}
