//! The frame of every `extern "C"` body: panics end here, errors become numbers, messages are kept until a client asks for them.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use parking_lot::Mutex;
use qnn_sys::{QNN_SUCCESS, Qnn_ErrorHandle_t};

use crate::error::{Component, Error, code};

use super::log::{Level, Log};
use super::{raw, trace};

thread_local! {
    /// The last failure of this thread: its QNN number and its message.
    static LAST: RefCell<Option<(u64, CString)>> = const { RefCell::new(None) };
    /// QNN's names, for numbers that a client asks about although no call of this thread failed with them.
    static NAMES: RefCell<BTreeMap<u64, CString>> = const { RefCell::new(BTreeMap::new()) };
    /// Who is to set_error_log of failures: the log of the object that the running call is about.
    static ERROR_LOG: RefCell<Option<Arc<Log>>> = const { RefCell::new(None) };
}

/// Runs a body, converts the result to a QNN number, and keeps the message.
pub(super) fn guard(call: &'static str, body: impl FnOnce() -> Result<(), Error>) -> Qnn_ErrorHandle_t {
    let began = trace::begin();
    let error = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => {
            set_error_log(None);
            began.end(call, QNN_SUCCESS);
            return QNN_SUCCESS;
        }
        Ok(Err(error)) => error,
        Err(payload) => {
            let text = payload.downcast_ref::<&str>().map(|s| (*s).to_owned());
            let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
            // Dropping a payload may panic again; it is leaked, as this is a bug already.
            std::mem::forget(payload);
            Error::Panic { message: text.unwrap_or_else(|| "(no message)".to_owned()) }
        }
    };
    let number = error.code();
    began.end(call, number);
    let message = format!("{call}: {error}");
    let error_log = ERROR_LOG.try_with(|h| h.take()).ok().flatten();
    if let Some(log) = error_log {
        log.write(Level::Error, &message);
    }
    let message = CString::new(message.replace('\0', "?")).unwrap_or_default();
    // The thread may be ending, its storage gone already.
    let _ = LAST.try_with(|last| *last.borrow_mut() = Some((number, message)));
    number
}

/// Sets the log that receives the error message of the running call.
pub(super) fn set_error_log(log: Option<&Arc<Log>>) {
    let _ = ERROR_LOG.try_with(|h| {
        let mut h = h.borrow_mut();
        if h.is_some() || log.is_some() {
            *h = log.cloned();
        }
    });
}

/// The message for a number: that of this thread's last failure if it had that number, else QNN's name for it. The
/// pointer is good until the thread's next failure.
fn message_for(number: u64) -> Option<*const c_char> {
    let text =
        LAST.try_with(|last| last.borrow().as_ref().filter(|(n, _)| *n == number).map(|(_, message)| message.as_ptr()));
    text.ok().flatten().or_else(|| {
        let name = qnn_sys::error::name(number);
        if name == "unknown error" {
            return None;
        }
        let named = NAMES.try_with(|names| {
            let mut names = names.borrow_mut();
            names.entry(number).or_insert_with(|| CString::new(name).unwrap_or_default()).as_ptr()
        });
        named.ok()
    })
}

/// `errorGetMessage`: valid until this thread's next failing call, as QNN leaves ownership with the backend.
pub(super) unsafe extern "C" fn get_message(error: Qnn_ErrorHandle_t, out: *mut *const c_char) -> Qnn_ErrorHandle_t {
    let Some(message) = message_for(error) else { return code::ERROR_INVALID_ERROR_HANDLE };
    // SAFETY: QNN's contract: `out` is null or valid for writing.
    match unsafe { raw::write(out, message, Component::Message, "errorMessage") } {
        Ok(()) => QNN_SUCCESS,
        Err(e) => e.code(),
    }
}

/// `errorGetVerboseMessage`: the client's until `errorFreeVerboseMessage`.
pub(super) unsafe extern "C" fn get_verbose(error: Qnn_ErrorHandle_t, out: *mut *const c_char) -> Qnn_ErrorHandle_t {
    let Some(message) = message_for(error) else { return code::ERROR_INVALID_ERROR_HANDLE };
    // SAFETY: a string of this thread, which cannot fail meanwhile.
    let message = unsafe { CStr::from_ptr(message) }.to_owned().into_raw();
    // SAFETY: QNN's contract: `out` is null or valid for writing.
    match unsafe { raw::write(out, message.cast_const(), Component::Message, "errorMessage") } {
        Ok(()) => {
            VERBOSE.lock().insert(message.addr());
            QNN_SUCCESS
        }
        Err(e) => {
            // SAFETY: from `into_raw` above, and given to no client.
            drop(unsafe { CString::from_raw(message) });
            e.code()
        }
    }
}

/// Messages that a client holds, by address, so that only those are freed.
static VERBOSE: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());

/// `errorFreeVerboseMessage`.
pub(super) unsafe extern "C" fn free_verbose(message: *const c_char) -> Qnn_ErrorHandle_t {
    if !VERBOSE.lock().remove(&message.addr()) {
        return code::ERROR_INVALID_ARGUMENT;
    }
    // SAFETY: it was in the set, so it came from `into_raw` in `get_verbose` and was not freed since.
    drop(unsafe { CString::from_raw(message.cast_mut()) });
    QNN_SUCCESS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_keeps_its_message_until_it_is_asked_for() {
        let number = guard("QnnGraph_execute", || panic!("row {} of {}", 7, 3));
        assert_eq!(number, code::COMMON_GENERAL);
        let mut message = std::ptr::null();
        // SAFETY: an out pointer; the message is this thread's, which fails no other call meanwhile.
        let text = unsafe {
            assert_eq!(get_message(number, &raw mut message), QNN_SUCCESS);
            CStr::from_ptr(message)
        };
        let wanted = "QnnGraph_execute: the host backend panicked, which is a bug of it: row 7 of 3";
        assert_eq!(text.to_str(), Ok(wanted));
    }
}
