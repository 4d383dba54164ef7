//! One thin function per slot: look it up, call it, turn the status into a `Result`. No policy.
//!
//! A slot may be empty (`NULL`), or beyond what the provider's version has; both are [`CallError::Missing`].

mod core_slots;
mod system_slots;

pub(crate) use core_slots::Table;
pub(crate) use system_slots::SystemTable;

use crate::error::{Error, QnnError, Result};
use crate::log;

/// How a slot can fail, before the attempt is named.
#[derive(Debug)]
pub(crate) enum CallError {
    /// The slot is empty or the version does not have it.
    Missing(&'static str),
    /// The call returned an error number.
    Status(QnnError),
}

impl CallError {
    /// True when the library just does not offer the call.
    pub(crate) fn is_unsupported(&self) -> bool {
        match self {
            Self::Missing(_) => true,
            Self::Status(error) => error.is_unsupported(),
        }
    }
}

impl core::fmt::Display for CallError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Missing(call) => write!(f, "the library does not offer `{call}`"),
            Self::Status(error) => error.fmt(f),
        }
    }
}

/// Adds the library and the attempt to a failed call.
pub(crate) trait CallContext<T> {
    /// `attempt` completes "cannot ...", with the names of the things.
    fn context(self, library: &str, attempt: impl FnOnce() -> String) -> Result<T>;
}

impl<T> CallContext<T> for core::result::Result<T, CallError> {
    fn context(self, library: &str, attempt: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|error| match error {
            CallError::Missing(call) => Error::Missing { library: library.to_owned(), call },
            CallError::Status(source) => Error::Qnn { operation: attempt(), source },
        })
    }
}

/// The status of a call as a `Result`; on failure with the library's own message: its error lines on this thread,
/// else its text for the number.
pub(crate) fn check(
    call: &'static str,
    code: u64,
    ask: impl FnOnce(u64) -> Option<String>,
) -> core::result::Result<(), CallError> {
    if code == qnn_sys::QNN_SUCCESS {
        return Ok(());
    }
    let library_message = log::take_error_lines().or_else(|| ask(code)).filter(|message| !message.is_empty());
    Err(CallError::Status(QnnError { call, code, library_message }))
}

/// Writes the thin functions of one table.
macro_rules! slots {
    ($($(#[$doc:meta])* $name:ident = $slot:ident($($arg:ident: $ty:ty),* $(,)?);)*) => {
        $(
            $(#[$doc])*
            ///
            /// # Safety
            /// The handles are live ones of this library and the pointers valid for the call, as QNN asks of this slot.
            #[allow(clippy::too_many_arguments)] // as many as the slot has
            pub(crate) unsafe fn $name(&self, $($arg: $ty),*) -> core::result::Result<(), $crate::table::CallError> {
                let call = self.raw.$slot.ok_or($crate::table::CallError::Missing(stringify!($slot)))?;
                $crate::log::forget_error_lines();
                // SAFETY: the slot was filled by the provider for this very signature; the caller vouches for the arguments.
                let code = unsafe { call($($arg),*) };
                $crate::table::check(stringify!($slot), code, |code| self.message(code))
            }
        )*
    };
}
pub(crate) use slots;

/// A copy of a provider's table, cut to the slots its version has; the rest is empty.
///
/// # Safety
/// `from` points at a table of at least `n_slots` slots; `T` is a struct of nullable functions and nothing else.
pub(crate) unsafe fn copy_slots<T: Copy>(from: *const T, n_slots: usize) -> T {
    let n_slots = n_slots.min(size_of::<T>() / size_of::<usize>());
    // SAFETY: all of `T`'s fields are `Option<fn>`, for which zero is `None`.
    let mut table: T = unsafe { core::mem::zeroed() };
    // SAFETY: the source has that many slots (the caller says so), the target has room for them (cut above).
    unsafe { core::ptr::copy_nonoverlapping(from.cast::<usize>(), (&raw mut table).cast::<usize>(), n_slots) };
    table
}
