//! The system interface: what is in a context binary, without a backend.

use std::ffi::c_void;
use std::sync::Arc;

use parking_lot::Mutex;
use qnn_sys::{
    Qnn_ContextBinarySize_t, Qnn_ErrorHandle_t, Qnn_Tensor_t, QnnSystemContext_BinaryInfo_t, QnnSystemContext_Handle_t,
};

use crate::bytes::Bytes;
use crate::container::{self, Verify};
use crate::error::{Component, Error};
use crate::ir::Dtype;

use super::guard::guard;
use super::info::Info;
use super::objects::{SYSTEMS, find, take};
use super::raw;
use super::tensor::view;

const SYSTEM: Component = Component::System;

/// A client's system context: owns every description it returned until it is freed.
#[derive(Default)]
pub(super) struct SystemContext {
    infos: Mutex<Vec<Info>>,
}

pub(super) unsafe extern "C" fn create(out: *mut QnnSystemContext_Handle_t) -> Qnn_ErrorHandle_t {
    guard("QnnSystemContext_create", || {
        let handle = SYSTEMS.add(Arc::new(SystemContext::default()));
        // SAFETY: QNN's contract: `out` is null or valid for writing.
        unsafe { raw::write(out, handle, SYSTEM, "sysCtxHandle") }.inspect_err(|_| {
            SYSTEMS.remove(handle);
        })
    })
}

/// Describes a binary.
///
/// # Safety
/// `size` bytes must be readable.
unsafe fn describe(
    system: QnnSystemContext_Handle_t,
    binary: *const c_void,
    size: u64,
    out: *mut *const QnnSystemContext_BinaryInfo_t,
) -> Result<(), Error> {
    let system = find(&SYSTEMS, system)?;
    let size = usize::try_from(size)
        .map_err(|_| Error::Argument { component: SYSTEM, what: format!("expected a possible size, found {size}") })?;
    if binary.is_null() {
        return Err(Error::Null { component: SYSTEM, what: "binaryBuffer" });
    }
    // SAFETY: the caller's promise.
    let given = unsafe { raw::slice(binary.cast::<u8>(), size, SYSTEM, "binaryBuffer") }?;
    // SAFETY: the bytes stay during this call, and nothing that refers to them is kept: `Info` copies.
    let bytes = unsafe { Bytes::from_client(given.as_ptr(), given.len()) };
    let summary = container::summary(&bytes).map_err(Error::SystemBinary)?;
    let image = container::decode(&bytes, Verify::Small).map_err(Error::SystemBinary)?;
    let info = Info::new(&summary, &image);
    let mut infos = system.infos.lock();
    // SAFETY: QNN's contract: `out` is null or valid for writing. The description lives on the heap, so it stays where
    // it is when the list grows.
    unsafe { raw::write(out, info.as_ptr(), SYSTEM, "binaryInfo") }?;
    infos.push(info);
    Ok(())
}

pub(super) unsafe extern "C" fn get_binary_info(
    system: QnnSystemContext_Handle_t,
    binary: *mut c_void,
    size: u64,
    out: *mut *const QnnSystemContext_BinaryInfo_t,
    out_size: *mut Qnn_ContextBinarySize_t,
) -> Qnn_ErrorHandle_t {
    guard("QnnSystemContext_getBinaryInfo", || {
        // SAFETY: QNN's contract for the buffer.
        unsafe { describe(system, binary.cast_const(), size, out) }?;
        if out_size.is_null() {
            return Ok(());
        }
        // SAFETY: QNN's contract: valid for writing. The vendor's library writes 0 as well; no client may rely on it.
        unsafe { raw::write(out_size, 0, SYSTEM, "binaryInfoSize") }
    })
}

pub(super) unsafe extern "C" fn get_meta_data(
    system: QnnSystemContext_Handle_t,
    binary: *const c_void,
    size: u64,
    out: *mut *const QnnSystemContext_BinaryInfo_t,
) -> Qnn_ErrorHandle_t {
    guard("QnnSystemContext_getMetaData", || {
        // SAFETY: QNN's contract for the buffer.
        unsafe { describe(system, binary, size, out) }
    })
}

pub(super) unsafe extern "C" fn free(system: QnnSystemContext_Handle_t) -> Qnn_ErrorHandle_t {
    guard("QnnSystemContext_free", || take(&SYSTEMS, system).map(drop))
}

/// Bytes that a client buffer for the tensor needs.
pub(super) unsafe extern "C" fn tensor_footprint(tensor: Qnn_Tensor_t, out: *mut u64) -> Qnn_ErrorHandle_t {
    guard("QnnSystemTensor_getMemoryFootprint", || {
        // SAFETY: QNN's contract for the tensor's pointers.
        let view = unsafe { view(&tensor) }?;
        let argument = |what: String| Error::Argument { component: SYSTEM, what };
        let dtype = Dtype::from_qnn(view.dtype)
            .ok_or_else(|| argument(format!("expected a known element type, found {:#06x}", view.dtype)))?;
        let bytes = view.dims.iter().try_fold(dtype.size_bytes() as u64, |n, &d| n.checked_mul(u64::from(d)));
        let bytes = bytes.ok_or_else(|| argument(format!("expected a possible shape, found {:?}", view.dims)))?;
        // SAFETY: QNN's contract: `out` is null or valid for writing.
        unsafe { raw::write(out, bytes, SYSTEM, "footprint") }
    })
}
