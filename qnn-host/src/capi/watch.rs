//! Who watches a context that is being written: a function of the client's, given how far the call is and asked whether to go on.
//!
//! *Units*: bytes of weights that are read while the binary is laid out, bytes of the binary while it is written.
//! *Trap*: it is called under the context's locks, on the thread of the call; [`HostWatchConfig`] says what it must not do.

use std::ffi::c_void;

use qnn_sys::host::{HostWatchConfig, HostWatchFn};

use crate::error::{Component, Error};

/// A client's function, and what is passed on to it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Watch {
    function: HostWatchFn,
    /// An address of the client's, never looked at here.
    data: usize,
}

impl Watch {
    /// Of a [`HostWatchConfig`]; `None` for one without a function.
    ///
    /// # Safety
    /// `custom` must lead to one, if it is aligned as one.
    pub(super) unsafe fn read(custom: *const c_void) -> Result<Option<Self>, Error> {
        let config = custom.cast::<HostWatchConfig>();
        if !config.is_aligned() {
            let what = "expected an aligned config, found another".to_owned();
            return Err(Error::Argument { component: Component::Context, what });
        }
        // SAFETY: aligned; the rest is the caller's promise.
        let HostWatchConfig { watch, data, .. } = unsafe { *config };
        Ok(watch.map(|function| Self { function, data: data.expose_provenance() }))
    }

    /// Tells how far it is; returns whether to go on.
    pub(super) fn tell(self, done_bytes: u64, total_bytes: u64) -> bool {
        let data = std::ptr::with_exposed_provenance_mut(self.data);
        // SAFETY: the client's promise when it gave the config, which holds still: a function, and the data that it takes.
        unsafe { (self.function)(data, done_bytes, total_bytes) == 0 }
    }
}

#[cfg(test)]
mod tests {
    use qnn_sys::host::HOST_CONTEXT_OPTION_WATCH;

    use super::*;

    unsafe extern "C" fn note(data: *mut c_void, done: u64, total: u64) -> u32 {
        // SAFETY: the tests pass a vector that outlives the watch.
        let reported = unsafe { &mut *data.cast::<Vec<(u64, u64)>>() };
        reported.push((done, total));
        u32::from(done >= total)
    }

    #[test]
    fn a_watch_is_informed_and_asked() {
        let mut reported: Vec<(u64, u64)> = Vec::new();
        let mut config =
            HostWatchConfig { option: HOST_CONTEXT_OPTION_WATCH, watch: Some(note), data: (&raw mut reported).cast() };
        // SAFETY: a config.
        let watch = unsafe { Watch::read((&raw const config).cast()) }.unwrap().unwrap();
        assert!(watch.tell(1, 2));
        assert!(!watch.tell(2, 2));
        assert_eq!(reported, [(1, 2), (2, 2)]);
        config.watch = None;
        // SAFETY: a config.
        assert!(unsafe { Watch::read((&raw const config).cast()) }.unwrap().is_none());
    }
}
