//! Who watches a context being saved: it is given how far that is, and asked whether to go on.
//!
//! The embedded backend tells and asks within its calls, by a config of its own ([`HostWatchConfig`]). Any other library does
//! its part in one call; its beginning and its end are reported.

use core::ffi::c_void;
use core::ops::ControlFlow;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use qnn_sys::host::{HOST_BACKEND_ID, HOST_CONTEXT_OPTION_WATCH, HostWatchConfig, HostWatchFn};
use qnn_sys::{QNN_CONTEXT_CONFIG_OPTION_CUSTOM, QnnContext_Config_t, QnnContext_Config_t_anon0};

use crate::backend::log_failure;
use crate::context_handle::ContextInner;
use crate::convert::ConfigList;

/// A part of saving a context, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SavePart {
    /// The embedded backend reads all weights and decides where they go; other libraries tell nothing of it.
    LayOut,
    /// The library writes the binary into the mapped file.
    Write,
    /// The file is brought onto the disk.
    Flush,
}

/// How far a part of saving is, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SaveReport {
    /// The part.
    pub part: SavePart,
    /// Bytes that are done.
    pub done_bytes: u64,
    /// All bytes of the part, the same in all of its reports.
    pub total_bytes: u64,
}

/// Who receives reports, and says whether to go on. It is called while the library is locked, so it must not use the library.
pub type SaveWatch<'w> = dyn FnMut(SaveReport) -> ControlFlow<()> + 'w;

/// A watch, and what came of telling it.
pub(crate) struct Watcher<'a, 'w> {
    watch: &'a mut SaveWatch<'w>,
    part: SavePart,
    stopped: bool,
    /// A panic of the watch within a call of the library, which must not pass through C.
    panic: Option<Box<dyn Any + Send>>,
}

impl<'a, 'w> Watcher<'a, 'w> {
    pub(crate) fn new(watch: &'a mut SaveWatch<'w>) -> Self {
        Self { watch, part: SavePart::LayOut, stopped: false, panic: None }
    }

    /// Whether the watch wanted an end.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// Tells how far a part is; false once the watch wants an end.
    pub(crate) fn tell(&mut self, part: SavePart, done_bytes: u64, total_bytes: u64) -> bool {
        let report = SaveReport { part, done_bytes, total_bytes };
        self.stopped |= (self.watch)(report).is_break();
        !self.stopped
    }

    /// Runs one call of the library, which the caller has locked, that the embedded backend tells of.
    pub(crate) fn during<T>(&mut self, context: &ContextInner, part: SavePart, call: impl FnOnce() -> T) -> T {
        self.part = part;
        let given = Given::new(context, (&raw mut *self).cast());
        let outcome = call();
        drop(given);
        if let Some(panic) = self.panic.take() {
            resume_unwind(panic);
        }
        outcome
    }
}

/// What the embedded backend calls.
unsafe extern "C" fn tell(data: *mut c_void, done_bytes: u64, total_bytes: u64) -> u32 {
    // SAFETY: `Watcher::during` gave itself, waits for the call that this is made from, and does not touch itself meanwhile.
    let watcher = unsafe { &mut *data.cast::<Watcher<'_, '_>>() };
    let reported = catch_unwind(AssertUnwindSafe(|| watcher.tell(watcher.part, done_bytes, total_bytes)));
    match reported {
        Ok(goes_on) => u32::from(!goes_on),
        Err(panic) => {
            watcher.panic = Some(panic);
            1
        }
    }
}

/// A watch that the embedded backend has, until this is dropped.
struct Given<'c>(&'c ContextInner);

impl<'c> Given<'c> {
    fn new(context: &'c ContextInner, data: *mut c_void) -> Self {
        set(context, Some(tell), data);
        Self(context)
    }
}

impl Drop for Given<'_> {
    fn drop(&mut self) {
        set(self.0, None, core::ptr::null_mut());
    }
}

/// Gives the embedded backend a watch, or takes it away. One that does not know of it tells nothing.
fn set(context: &ContextInner, watch: Option<HostWatchFn>, data: *mut c_void) {
    if context.backend.library().backend_id() != HOST_BACKEND_ID {
        return;
    }
    let mut config = HostWatchConfig { option: HOST_CONTEXT_OPTION_WATCH, watch, data };
    let mut configs = ConfigList::new(vec![QnnContext_Config_t {
        option: QNN_CONTEXT_CONFIG_OPTION_CUSTOM,
        anon0: QnnContext_Config_t_anon0 { customConfig: (&raw mut config).cast() },
    }]);
    // SAFETY: a live context, and a list whose only entry lives until the call returns; the backend copies it.
    log_failure("contextSetConfig", unsafe { context.table().context_set_config(context.raw, configs.as_ptr()) });
}
