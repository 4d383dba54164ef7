//! Memory that a client registers once and names by handle afterwards.
//!
//! Two kinds make sense on a host: a DMA buffer whose address the client gives (used as it is), and an ION buffer,
//! which stands for any file descriptor that can be mapped (a memfd, say). HTP's shared buffer, a file with an offset, is
//! taken as well. None is copied.

use std::sync::Arc;

#[cfg(unix)]
use memmap2::MmapOptions;
use memmap2::MmapRaw;
use qnn_sys as q;
use qnn_sys::{Qnn_ContextHandle_t, Qnn_ErrorHandle_t, Qnn_MemDescriptor_t, Qnn_MemHandle_t};

use crate::error::{Component, Error};
use crate::ir::Dtype;

use super::execute::Buffer;
use super::guard::{guard, set_error_log};
use super::objects::{CONTEXTS, ContextShared, MEMS, find, take};
use super::{raw, trace};

/// Registered memory. Invariant: `len` bytes at `start` are usable as long as this lives, by the mapping it keeps or by
/// the client's promise.
pub(super) struct Mem {
    start: *mut u8,
    len: usize,
    _map: Option<MmapRaw>,
    /// Whose context it was registered with; freed with it.
    pub(super) core: Arc<ContextShared>,
}

// SAFETY: an address with a promise about what is there; the mapping may be used from any thread.
unsafe impl Send for Mem {}
// SAFETY: as above; this type itself never reads or writes the memory.
unsafe impl Sync for Mem {}

impl Mem {
    /// All of it.
    pub(super) fn buffer(&self) -> Buffer {
        Buffer { start: self.start, len: self.len }
    }
}

pub(super) unsafe extern "C" fn register(
    context: Qnn_ContextHandle_t,
    descriptors: *const Qnn_MemDescriptor_t,
    n: u32,
    handles: *mut Qnn_MemHandle_t,
) -> Qnn_ErrorHandle_t {
    guard("QnnMem_register", || {
        let context = find(&CONTEXTS, context)?;
        set_error_log(context.core.backend.log.as_ref());
        // SAFETY: QNN's contract: `n` descriptors.
        let list = unsafe { raw::slice(descriptors, n as usize, Component::Mem, "memDescriptors") }?;
        if list.is_empty() {
            return Err(Error::Argument {
                component: Component::Mem,
                what: "expected a descriptor, found none".into(),
            });
        }
        trace::note(|| format!("{n} of type {:?}", list.iter().map(|d| d.memType).collect::<Vec<_>>()));
        // All or nothing: handles are given out when every descriptor was good.
        // SAFETY: QNN's contract for the pointers inside of a descriptor.
        let made = list.iter().map(|d| unsafe { map(d, &context.core) }).collect::<Result<Vec<_>, _>>()?;
        raw::place(handles, Component::Mem, "memHandles")?;
        for (i, mem) in made.into_iter().enumerate() {
            let handle = MEMS.add(Arc::new(mem));
            // SAFETY: QNN's contract: room for `n` handles, and it is not null.
            unsafe { raw::write(handles.add(i), handle, Component::Mem, "memHandles") }?;
        }
        Ok(())
    })
}

/// Makes a descriptor usable.
///
/// # Safety
/// Its pointers must be as QNN requires.
unsafe fn map(d: &Qnn_MemDescriptor_t, core: &Arc<ContextShared>) -> Result<Mem, Error> {
    let argument = |what: String| Error::Argument { component: Component::Mem, what };
    // SAFETY: the caller's promise.
    let dims =
        unsafe { raw::slice(d.memShape.dimSize.cast_const(), d.memShape.numDim as usize, Component::Mem, "dimSize") }?;
    let dtype = Dtype::from_qnn(d.dataType)
        .ok_or_else(|| argument(format!("expected a known element type, found {:#06x}", d.dataType)))?;
    let len = dims.iter().try_fold(dtype.size_bytes(), |n, &e| n.checked_mul(e as usize));
    let len = len.filter(|&n| n > 0 && n <= isize::MAX as usize && !dims.is_empty());
    let len = len.ok_or_else(|| argument(format!("expected a possible shape, found {dims:?}")))?;
    match d.memType {
        q::QNN_MEM_TYPE_DMA_BUF => {
            // SAFETY: plain data, and the type decides which member it is.
            let info = unsafe { d.anon0.dmaBufInfo };
            if info.data.is_null() {
                return Err(argument("expected the address of the DMA buffer in `data`, found null".to_owned()));
            }
            Ok(Mem { start: info.data.cast(), len, _map: None, core: core.clone() })
        }
        q::QNN_MEM_TYPE_ION => {
            // SAFETY: as above.
            let fd = unsafe { d.anon0.ionInfo }.fd;
            let failed = |source| Error::MemMap { fd, bytes: len, source };
            let map = map_file(fd, 0, len).map_err(failed)?;
            Ok(Mem { start: map.as_mut_ptr(), len, _map: Some(map), core: core.clone() })
        }
        q::QNN_MEM_TYPE_CUSTOM => {
            // SAFETY: as above; the pointer is the caller's promise.
            let shared = unsafe { d.anon0.customInfo.cast::<q::QnnMemHtp_Descriptor_t>().as_ref() };
            let shared =
                shared.ok_or_else(|| argument("expected a descriptor in `customInfo`, found null".to_owned()))?;
            if shared.r#type != q::QNN_HTP_MEM_SHARED_BUFFER {
                return Err(argument(format!("expected a shared buffer (1), found type {} of HTP", shared.r#type)));
            }
            // SAFETY: plain data, and the type decides which member it is.
            let q::QnnHtpMem_SharedBufferConfig_t { fd, offset } = unsafe { shared.anon0.sharedBufferConfig };
            if offset.checked_add(len as u64).is_none_or(|end| end > shared.size) {
                let (size, what) = (shared.size, "of a shared buffer");
                return Err(argument(format!("expected {len} bytes from {offset} on {what}, found a size of {size}")));
            }
            let failed = |source| Error::MemMap { fd, bytes: len, source };
            let map = map_file(fd, offset, len).map_err(failed)?;
            Ok(Mem { start: map.as_mut_ptr(), len, _map: Some(map), core: core.clone() })
        }
        found => Err(Error::MemType { found }),
    }
}

#[cfg(unix)]
fn map_file(fd: i32, offset: u64, len: usize) -> std::io::Result<MmapRaw> {
    use std::os::fd::BorrowedFd;
    if fd < 0 {
        return Err(std::io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: lent for this call; a number that is not an open file makes the calls below fail, and nothing is closed.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    let size = std::fs::File::from(fd.try_clone_to_owned()?).metadata()?.len();
    // Touching a page beyond the end of a file kills the process.
    if offset.checked_add(len as u64).is_none_or(|end| size < end) {
        return Err(std::io::Error::new(std::io::ErrorKind::UnexpectedEof, format!("the file has {size} bytes")));
    }
    MmapOptions::new().offset(offset).len(len).map_raw(&fd)
}

#[cfg(not(unix))]
fn map_file(_fd: i32, _offset: u64, _len: usize) -> std::io::Result<MmapRaw> {
    Err(std::io::ErrorKind::Unsupported.into())
}

pub(super) unsafe extern "C" fn deregister(handles: *const Qnn_MemHandle_t, n: u32) -> Qnn_ErrorHandle_t {
    guard("QnnMem_deRegister", || {
        // SAFETY: QNN's contract: `n` handles.
        let list = unsafe { raw::slice(handles, n as usize, Component::Mem, "memHandles") }?;
        list.iter().try_for_each(|&handle| take(&MEMS, handle).map(drop))
    })
}
