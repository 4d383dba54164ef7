//! What a context has registered of shared memory: each part of a block once for each shape that graphs give it.
//!
//! *Invariant*: handles are live until the context is freed; its graphs copy them, and keep the context.

use core::any::Any;
use std::sync::{Mutex, MutexGuard, PoisonError};

use genie_types::{Dtype, TensorInfo};
use qnn_sys::Qnn_MemHandle_t;

use crate::backend::log_failure;
use crate::table::Table;

/// See the module's text.
#[derive(Default)]
pub(crate) struct Registrations(Mutex<List>);

/// The list of a context.
#[derive(Default)]
pub(crate) struct List {
    made: Vec<Registration>,
    /// The library refused a part; a warning has said so.
    pub(crate) refused: bool,
}

struct Registration {
    handle: Qnn_MemHandle_t,
    fd: i32,
    offset: usize,
    dims: Vec<usize>,
    dtype: Dtype,
    /// Freed after the registration was taken back.
    _memory: Box<dyn Any + Send + Sync>,
}

impl List {
    /// The handle of a part of a file as that tensor.
    pub(crate) fn find(&self, info: &TensorInfo, (fd, offset): (i32, usize)) -> Option<Qnn_MemHandle_t> {
        let is_it = |r: &&Registration| (r.fd, r.offset, r.dtype) == (fd, offset, info.dtype) && r.dims == info.dims;
        self.made.iter().find(is_it).map(|r| r.handle)
    }

    /// Keeps a new one, with the memory that it is of.
    pub(crate) fn add(
        &mut self,
        handle: Qnn_MemHandle_t,
        info: &TensorInfo,
        (fd, offset): (i32, usize),
        memory: Box<dyn Any + Send + Sync>,
    ) {
        let (dims, dtype) = (info.dims.clone(), info.dtype);
        self.made.push(Registration { handle, fd, offset, dims, dtype, _memory: memory });
    }
}

impl Registrations {
    pub(crate) fn lock(&self) -> MutexGuard<'_, List> {
        // A list is whole whatever a thread died of.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes all of them back; for the context's end.
    pub(crate) fn clear(&self, table: &Table) {
        for registration in self.lock().made.drain(..) {
            // SAFETY: live until here, and no graph of the context is left to use it.
            let done = unsafe { table.mem_de_register(&raw const registration.handle, 1) };
            log_failure("memDeRegister", done);
        }
    }
}

// SAFETY: handles are not bound to a thread; calls on them are serialised by the backend's lock.
unsafe impl Send for Registrations {}
// SAFETY: all of it is behind a mutex.
unsafe impl Sync for Registrations {}
