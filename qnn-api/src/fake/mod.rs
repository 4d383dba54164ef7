//! A library for tests: it records every call, returns the codes it was given, and computes "input 0 plus one".
//!
//! State is per thread, so tests do not see each other. Handles are small numbers.

mod core_calls;
mod describe;

use core::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use qnn_sys::*;

use crate::{Backend, BackendOptions, Library};

/// What the fake remembers and how it should behave.
#[derive(Default)]
pub(crate) struct State {
    /// Every call, in order, with what matters of its arguments.
    pub(crate) calls: Vec<String>,
    /// Calls that should fail, with the code they return.
    pub(crate) fail: HashMap<&'static str, u64>,
    /// Properties it reports as supported.
    pub(crate) capabilities: Vec<u32>,
    /// No records (for counting allocations).
    pub(crate) quiet: bool,
    next_handle: usize,
    next_tensor: u32,
}

thread_local! {
    static STATE: RefCell<State> = RefCell::default();
}

/// The message that goes with a call that was set to fail.
pub(crate) const MESSAGE: &str = "the fake was set to fail";

/// Looks at or changes this thread's fake.
pub(crate) fn with<R>(f: impl FnOnce(&mut State) -> R) -> R {
    STATE.with(|state| f(&mut state.borrow_mut()))
}

/// The calls so far; forgets them.
pub(crate) fn take_calls() -> Vec<String> {
    with(|state| core::mem::take(&mut state.calls))
}

/// Makes a call fail from now on.
pub(crate) fn fail(call: &'static str, code: u64) {
    with(|state| state.fail.insert(call, code));
}

/// Records a call; what it returns.
fn record(call: &'static str, what: impl FnOnce() -> String) -> u64 {
    with(|state| {
        if !state.quiet {
            let what = what();
            state.calls.push(if what.is_empty() { call.to_owned() } else { format!("{call} {what}") });
        }
        state.fail.get(call).copied().unwrap_or(0)
    })
}

fn new_handle() -> *mut core::ffi::c_void {
    with(|state| {
        state.next_handle += 1;
        core::ptr::without_provenance_mut(state.next_handle)
    })
}

fn number(handle: *const core::ffi::c_void) -> usize {
    handle.addr()
}

struct Providers<P>(Vec<*const P>);
// SAFETY: pointers to leaked values that are never written.
unsafe impl<P> Send for Providers<P> {}
// SAFETY: as above.
unsafe impl<P> Sync for Providers<P> {}

/// The fake's entry point.
pub(crate) unsafe extern "C" fn get_providers(out: *mut *mut *const QnnInterface_t, n: *mut u32) -> u64 {
    static LIST: OnceLock<Providers<QnnInterface_t>> = OnceLock::new();
    let list = LIST.get_or_init(|| {
        let api = Qnn_ApiVersion_t {
            coreApiVersion: Qnn_Version_t { major: 2, minor: 40, patch: 0 },
            backendApiVersion: Qnn_Version_t { major: 5, minor: 51, patch: 0 },
        };
        let provider = QnnInterface_t {
            backendId: QNN_BACKEND_ID_HTP,
            providerName: c"FAKE".as_ptr(),
            apiVersion: api,
            table: core_calls::table(),
        };
        Providers(vec![Box::leak(Box::new(provider))])
    });
    // SAFETY: two out pointers; the list is never written through.
    unsafe { (*out, *n) = (list.0.as_ptr().cast_mut(), 1) };
    0
}

/// The fake's system entry point.
pub(crate) unsafe extern "C" fn get_system_providers(out: *mut *mut *const QnnSystemInterface_t, n: *mut u32) -> u64 {
    static LIST: OnceLock<Providers<QnnSystemInterface_t>> = OnceLock::new();
    let list = LIST.get_or_init(|| {
        let provider = QnnSystemInterface_t {
            backendId: 0,
            providerName: c"FAKE_SYSTEM".as_ptr(),
            systemApiVersion: Qnn_Version_t { major: 1, minor: 15, patch: 0 },
            table: describe::table(),
        };
        Providers(vec![Box::leak(Box::new(provider))])
    });
    // SAFETY: two out pointers; the list is never written through.
    unsafe { (*out, *n) = (list.0.as_ptr().cast_mut(), 1) };
    0
}

/// The fake's entry points.
pub(crate) fn providers() -> LinkedProviders {
    // SAFETY: the lists are leaked, and the tables are filled for the versions above.
    unsafe { LinkedProviders::new(get_providers, Some(get_system_providers)) }
}

/// The fake as a library.
pub(crate) fn library() -> Arc<Library> {
    Library::linked(providers()).expect("the fake has providers")
}

/// A backend on the fake; forgets the calls that made it.
pub(crate) fn backend() -> Arc<Backend> {
    let backend = Backend::new(&library(), &BackendOptions::default()).expect("the fake starts");
    take_calls();
    backend
}
