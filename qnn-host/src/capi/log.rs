//! The client's log.
//!
//! QNN's callback takes a format and a C argument list. We send a finished text with its `%` doubled, and a list with
//! nothing in it, so that a client may format it or print it as it is.

use std::ffi::{CString, c_void};
use std::sync::Arc;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use parking_lot::{Condvar, Mutex};
use qnn_sys::{Qnn_ErrorHandle_t, Qnn_LogHandle_t, QnnLog_Callback_t, QnnLog_Level_t};

use crate::error::{Component, Error};

use super::guard::{guard, set_error_log};
use super::objects::{LOGS, find, take};
use super::{raw, trace};

/// The levels of QNN that are used here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub(super) enum Level {
    Error = 1,
    Info = 3,
}

/// A client's callback and the finest level that it wants.
pub(super) struct Log {
    callback: QnnLog_Callback_t,
    level: AtomicU32,
    /// Calls of the callback that are under way, and whether the log was freed.
    calls: Mutex<(usize, bool)>,
    idle: Condvar,
}

static START: LazyLock<Instant> = LazyLock::new(Instant::now);

impl Log {
    /// True when a message of that level is passed on; check before formatting a costly one.
    pub(super) fn enabled(&self, level: Level) -> bool {
        level as u32 <= self.level.load(Ordering::Relaxed)
    }

    /// Passes a message on, if its level is wanted.
    pub(super) fn write(&self, level: Level, message: &str) {
        if !self.enabled(level) {
            return;
        }
        let Some(callback) = self.callback else {
            eprintln!("qnn-host {level:?}: {message}");
            return;
        };
        let Ok(text) = CString::new(message.replace('%', "%%").replace('\0', "?")) else { return };
        let nothing = [0u64; 8];
        let mut list = empty_list(&nothing);
        let nanoseconds = START.elapsed().as_nanos() as u64;
        // Not a lock held during the call: a callback may call the backend, and fail there.
        let mut calls = self.calls.lock();
        if calls.1 {
            return;
        }
        calls.0 += 1;
        drop(calls);
        // SAFETY: the client promised a callback that may be called until `logFree` returns, which waits for this call;
        // text and list outlive it.
        unsafe { callback(text.as_ptr(), level as u32, nanoseconds, list.as_mut_ptr().cast::<c_void>()) };
        self.calls.lock().0 -= 1;
        self.idle.notify_all();
    }
}

/// A `va_list` whose registers are used up and whose stack is zeros (`nothing`), in the form that the platform passes by
/// address: System V x86-64 and AAPCS64. Elsewhere a `va_list` is a plain address, which the zeros serve as well.
fn empty_list(nothing: &[u64; 8]) -> [u64; 4] {
    let zeros = nothing.as_ptr().expose_provenance() as u64;
    if cfg!(target_arch = "x86_64") {
        // gp_offset 48 and fp_offset 304: all of the save area is used; then the overflow area, then the save area.
        [304 << 32 | 48, zeros, zeros, 0]
    } else {
        // Stack, tops of the general and vector save areas, and offsets of 0: all of them are used.
        [zeros, zeros, zeros, 0]
    }
}

pub(super) unsafe extern "C" fn create(
    callback: QnnLog_Callback_t,
    level: QnnLog_Level_t,
    out: *mut Qnn_LogHandle_t,
) -> Qnn_ErrorHandle_t {
    guard("QnnLog_create", || {
        trace::note(|| format!("level {level}, callback {}", callback.is_some()));
        if level == 0 {
            return Err(Error::Argument {
                component: Component::Log,
                what: "expected a level of 1 to 5, found 0".into(),
            });
        }
        let handle = LOGS.add(Arc::new(Log {
            callback,
            level: AtomicU32::new(level),
            calls: Mutex::default(),
            idle: Condvar::new(),
        }));
        // SAFETY: QNN's contract: `out` is null or valid for writing.
        unsafe { raw::write(out, handle, Component::Log, "logger") }.inspect_err(|_| {
            LOGS.remove(handle);
        })
    })
}

pub(super) unsafe extern "C" fn set_level(log: Qnn_LogHandle_t, level: QnnLog_Level_t) -> Qnn_ErrorHandle_t {
    guard("QnnLog_setLogLevel", || {
        trace::note(|| format!("level {level}"));
        let log = find(&LOGS, log)?;
        set_error_log(Some(&log));
        if level == 0 {
            return Err(Error::Argument {
                component: Component::Log,
                what: "expected a level of 1 to 5, found 0".into(),
            });
        }
        log.level.store(level, Ordering::Relaxed);
        Ok(())
    })
}

pub(super) unsafe extern "C" fn free(log: Qnn_LogHandle_t) -> Qnn_ErrorHandle_t {
    guard("QnnLog_free", || {
        let log = take(&LOGS, log)?;
        // Objects that still hold it must not call a client that freed the log.
        let mut calls = log.calls.lock();
        calls.1 = true;
        while calls.0 > 0 {
            log.idle.wait(&mut calls);
        }
        Ok(())
    })
}
