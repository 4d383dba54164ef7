//! Memory that both sides see: allocated by an [`Allocator`], registered with a context where the library can.
//!
//! On a device, registered memory (rpcmem) spares a copy per run. Where memory cannot be shared, as on a host or for
//! plain heap memory, the buffer works all the same and is bound by address.

mod plain;
mod rpcmem;

use core::ptr::NonNull;
use std::sync::Arc;

use genie_types::TensorInfo;
use qnn_sys::*;

pub use plain::PlainMemory;
pub use rpcmem::Rpcmem;

use crate::backend::log_failure;
use crate::context_handle::ContextInner;
use crate::convert::{Role, raw_tensor};
use crate::error::{Error, Result};
use crate::table::{CallContext, CallError};

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

/// Nothing when the library has no shared memory here.
fn register(context: &Arc<ContextInner>, info: &TensorInfo, fd: i32) -> Result<Option<Qnn_MemHandle_t>> {
    let (mut tensor, _store) = raw_tensor(info, Role::Input, 0)?;
    // SAFETY: `raw_tensor` writes version 1.
    let tensor = unsafe { &mut tensor.anon0.v1 };
    let descriptor = Qnn_MemDescriptor_t {
        memShape: Qnn_MemShape_t { numDim: tensor.rank, dimSize: tensor.dimensions, shapeConfig: core::ptr::null() },
        dataType: tensor.dataType,
        memType: QNN_MEM_TYPE_ION,
        anon0: Qnn_MemDescriptor_t_anon0 { ionInfo: Qnn_MemIonInfo_t { fd } },
    };
    let mut handle = core::ptr::null_mut();
    let _calls = context.backend.lock();
    // SAFETY: a live context, one descriptor that lives until the call returns, an out pointer.
    match unsafe { context.table().mem_register(context.raw, &raw const descriptor, 1, &raw mut handle) } {
        Ok(()) => Ok(Some(handle)),
        Err(CallError::Missing(_)) => Ok(None),
        Err(CallError::Status(error))
            if error.is_unsupported() || error.code == u64::from(QNN_MEM_ERROR_UNSUPPORTED_MEMTYPE) =>
        {
            Ok(None)
        }
        failed => failed
            .map(|()| None)
            .context(context.display_name(), || format!("register memory for tensor `{}`", info.name)),
    }
}

impl Registered {
    /// As [`Context::allocate`](crate::Context::allocate).
    pub(crate) fn new(context: &Arc<ContextInner>, allocator: &dyn Allocator, info: &TensorInfo) -> Result<Self> {
        let block = allocator.allocate(info.size_bytes())?;
        let handle = match block.fd() {
            Some(fd) => register(context, info, fd)?,
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
