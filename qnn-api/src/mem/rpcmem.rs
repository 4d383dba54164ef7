//! Memory shared with the DSP, from the chip's own library `libcdsprpc.so`. Devices only.

use core::ffi::{c_int, c_void};
use core::ptr::NonNull;
use std::sync::Arc;

use super::{Allocator, Block};
use crate::error::{Error, Result};

/// The library that comes with the phone.
const LIBRARY: &str = "libcdsprpc.so";
/// The system heap, and the default flags: cached on our side.
const SYSTEM_HEAP: c_int = 25;
const DEFAULT_FLAGS: u32 = 1;

type Alloc = unsafe extern "C" fn(heap: c_int, flags: u32, n_bytes: c_int) -> *mut c_void;
type Free = unsafe extern "C" fn(start: *mut c_void);
type ToFd = unsafe extern "C" fn(start: *mut c_void) -> c_int;

/// Memory that the DSP sees as well.
#[derive(Clone, Debug)]
pub struct Rpcmem {
    calls: Arc<Calls>,
}

#[derive(Debug)]
struct Calls {
    alloc: Alloc,
    free: Free,
    to_fd: ToFd,
    _library: libloading::Library,
}

impl Rpcmem {
    /// Loads the chip's library.
    ///
    /// # Errors
    /// There is none: this is not a Qualcomm device.
    pub fn open() -> Result<Self> {
        let failed = |source| Error::Open { path: LIBRARY.into(), source };
        // SAFETY: a system library of the device; its initialisers are meant to be run.
        let library = unsafe { libloading::Library::new(LIBRARY) }.map_err(failed)?;
        // SAFETY: these three have had these signatures since the library exists.
        let (alloc, free, to_fd) = unsafe {
            (
                *library.get::<Alloc>("rpcmem_alloc").map_err(failed)?,
                *library.get::<Free>("rpcmem_free").map_err(failed)?,
                *library.get::<ToFd>("rpcmem_to_fd").map_err(failed)?,
            )
        };
        Ok(Self { calls: Arc::new(Calls { alloc, free, to_fd, _library: library }) })
    }
}

impl Allocator for Rpcmem {
    fn allocate(&self, n_bytes: usize) -> Result<Box<dyn Block>> {
        let refused = |what: &str| Error::Invalid {
            what: format!("shared memory of {n_bytes} bytes"),
            expected: "a block the DSP can map".into(),
            found: what.to_owned(),
        };
        let size = c_int::try_from(n_bytes.max(1)).map_err(|_| refused("more than 2 GB"))?;
        // SAFETY: numbers in, an address out.
        let start = unsafe { (self.calls.alloc)(SYSTEM_HEAP, DEFAULT_FLAGS, size) };
        let start = NonNull::new(start.cast::<u8>()).ok_or_else(|| refused("no memory"))?;
        // SAFETY: `size` bytes were just allocated there; zeroing initialises them.
        unsafe { start.as_ptr().write_bytes(0, size as usize) };
        // SAFETY: an address that `alloc` gave.
        let fd = unsafe { (self.calls.to_fd)(start.as_ptr().cast()) };
        Ok(Box::new(Shared { start, n_bytes, fd: (fd >= 0).then_some(fd), calls: self.calls.clone() }))
    }
}

/// Invariant: `start` came from `calls.alloc`; freed exactly once, in `drop`.
struct Shared {
    start: NonNull<u8>,
    n_bytes: usize,
    fd: Option<i32>,
    calls: Arc<Calls>,
}

// SAFETY: the block is owned by the value alone, and its functions may be called from any thread.
unsafe impl Send for Shared {}

// SAFETY: zeroed above, ours alone, at a fixed place until freed; the descriptor was asked for this address.
unsafe impl Block for Shared {
    fn start(&self) -> NonNull<u8> {
        self.start
    }

    fn len(&self) -> usize {
        self.n_bytes
    }

    fn fd(&self) -> Option<i32> {
        self.fd
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: live until here; a registration of it was taken back before (`Registered::drop`).
        unsafe { (self.calls.free)(self.start.as_ptr().cast()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn a_host_has_none_and_says_so() {
        let error = Rpcmem::open().unwrap_err();
        assert_eq!(error.to_string(), "cannot load library `libcdsprpc.so`");
    }
}
