//! A context's handle, which graphs and registered memory share with their [`Context`](crate::Context).

use std::sync::Arc;

use qnn_sys::Qnn_ContextHandle_t;

use crate::backend::{Backend, log_failure};
use crate::mapped::MappedFile;
use crate::options::SpillGroup;
use crate::registrations::Registrations;
use crate::table::Table;

/// Invariant: `raw` is live, made by `backend`'s table; freed exactly once, in `drop`.
pub(crate) struct ContextInner {
    pub(crate) raw: Qnn_ContextHandle_t,
    /// It was made with a folder for weights: the library was promised shared mappings of files to write binaries to.
    pub(crate) maps_binaries: bool,
    /// Parts of shared memory that its graphs were lent.
    pub(crate) registrations: Registrations,
    // Parents last: fields drop in order.
    file: Option<MappedFile>,
    /// The context whose spill buffer it uses.
    _spill: Option<SpillGroup>,
    pub(crate) backend: Arc<Backend>,
}

// SAFETY: the handle is not bound to a thread; calls on it are serialised by the backend's lock.
unsafe impl Send for ContextInner {}
// SAFETY: as above.
unsafe impl Sync for ContextInner {}

impl ContextInner {
    pub(crate) fn new(
        raw: Qnn_ContextHandle_t,
        file: Option<MappedFile>,
        spill: Option<SpillGroup>,
        maps_binaries: bool,
        backend: &Arc<Backend>,
    ) -> Arc<Self> {
        Arc::new(Self {
            raw,
            maps_binaries,
            registrations: Registrations::default(),
            file,
            _spill: spill,
            backend: backend.clone(),
        })
    }

    /// The binary that it was made of, where that is mapped.
    #[cfg_attr(not(target_os = "linux"), expect(dead_code))]
    pub(crate) fn mapped_file(&self) -> Option<&MappedFile> {
        self.file.as_ref()
    }

    pub(crate) fn table(&self) -> &Table {
        &self.backend.library().table
    }

    pub(crate) fn display_name(&self) -> &str {
        self.backend.library().display_name()
    }
}

impl Drop for ContextInner {
    fn drop(&mut self) {
        let _calls = self.backend.lock();
        self.registrations.clear(self.table());
        // SAFETY: live until here; graphs and memory of it hold this, so none is left.
        log_failure("contextFree", unsafe { self.table().context_free(self.raw, core::ptr::null_mut()) });
    }
}
