//! The system interface's slots.

use core::ffi::c_void;

use qnn_sys::*;

use super::slots;

/// The system table of one library.
pub(crate) struct SystemTable {
    pub(super) raw: QnnSystemInterfaceTable,
}

impl SystemTable {
    /// Over a copy that was cut to the provider's version.
    pub(crate) fn new(raw: QnnSystemInterfaceTable) -> Self {
        Self { raw }
    }

    /// The system interface has no call for it.
    fn message(&self, _code: u64) -> Option<String> {
        None
    }

    slots! {
        /// Makes a system context.
        context_create = systemContextCreate(out: *mut QnnSystemContext_Handle_t);
        /// Describes a context binary; what it points at lives as long as the system context.
        context_get_binary_info = systemContextGetBinaryInfo(
            context: QnnSystemContext_Handle_t, bytes: *mut c_void, n_bytes: u64,
            out: *mut *const QnnSystemContext_BinaryInfo_t, n_info_bytes: *mut u64);
        /// The same through a pointer that is only read.
        context_get_meta_data = systemContextGetMetaData(
            context: QnnSystemContext_Handle_t, bytes: *const c_void, n_bytes: u64, out: *mut *const QnnSystemContext_BinaryInfo_t);
        /// Frees a system context.
        context_free = systemContextFree(context: QnnSystemContext_Handle_t);
    }
}
