//! Registers memory with a context, as a tensor of one of its graphs.
//!
//! *Trap*: several tensors lie in one block, so the descriptor carries an offset. QNN's own kind of descriptor (`ION`) has none;
//! HTP's shared buffer has, and is used where the offset is not 0.

use core::ffi::c_void;
use std::sync::Arc;

use genie_types::TensorInfo;
use qnn_sys::*;

use super::shared::{Place, SharedMemory};
use crate::context_handle::ContextInner;
use crate::convert::{Ownership, Role, raw_tensor};
use crate::error::Result;
use crate::table::{CallContext, CallError};

/// The handle of that memory as that tensor; none where the library takes none, which a warning says once.
pub(crate) fn handle(
    context: &Arc<ContextInner>,
    info: &TensorInfo,
    shared: &SharedMemory,
    place: Place,
) -> Option<Qnn_MemHandle_t> {
    let mut list = context.registrations.lock();
    let (fd, offset) = (place.fd, place.offset);
    if let Some(found) = list.find(info, (fd, offset)) {
        return Some(found);
    }
    if list.refused {
        return None;
    }
    let part = (offset > 0).then_some((offset, place.block.len()));
    let why = match register(context, info, fd, part) {
        Ok(Some(handle)) => {
            list.add(handle, info, (fd, offset), Box::new(place.block));
            tracing::debug!(tensor = info.name, fd, offset, "memory registered");
            return Some(handle);
        }
        Ok(None) => {
            shared.refuse();
            "it takes no shared memory".to_owned()
        }
        Err(error) => std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string),
    };
    let library = context.display_name();
    tracing::warn!("{library}: tensor `{}` and what follows are bound by address: {why}", info.name);
    list.refused = true;
    None
}

/// Registers memory as a tensor. `part`: where in a block it begins, and the block's length; otherwise at the block's beginning.
/// Nothing when the library has no shared memory here.
pub(super) fn register(
    context: &Arc<ContextInner>,
    info: &TensorInfo,
    fd: i32,
    part: Option<(usize, usize)>,
) -> Result<Option<Qnn_MemHandle_t>> {
    let (mut tensor, _store) = raw_tensor(info, Role::Input, 0, Ownership::Copied)?;
    // SAFETY: `raw_tensor` writes version 1.
    let tensor = unsafe { &mut tensor.anon0.v1 };
    let mut shared = QnnMemHtp_Descriptor_t { r#type: QNN_HTP_MEM_SHARED_BUFFER, ..Default::default() };
    let (mem_type, of_type) = match part {
        None => (QNN_MEM_TYPE_ION, Qnn_MemDescriptor_t_anon0 { ionInfo: Qnn_MemIonInfo_t { fd } }),
        Some((offset, len)) => {
            shared.size = len as u64;
            shared.anon0.sharedBufferConfig = QnnHtpMem_SharedBufferConfig_t { fd, offset: offset as u64 };
            let custom = (&raw mut shared).cast::<c_void>();
            (QNN_MEM_TYPE_CUSTOM, Qnn_MemDescriptor_t_anon0 { customInfo: custom })
        }
    };
    let descriptor = Qnn_MemDescriptor_t {
        memShape: Qnn_MemShape_t { numDim: tensor.rank, dimSize: tensor.dimensions, shapeConfig: core::ptr::null() },
        dataType: tensor.dataType,
        memType: mem_type,
        anon0: of_type,
    };
    let mut handle = core::ptr::null_mut();
    let _calls = context.backend.lock();
    // SAFETY: a live context, one descriptor that lives with what it points at until the call returns, an out pointer.
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
