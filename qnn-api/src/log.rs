//! The library's log, line by line, into `tracing` (target `qnn`); a call's error lines are kept for this crate's errors.
//!
//! *Trap*: lines come with a C format and a `va_list`. On both LP64 targets a `va_list` argument is the address of its
//! state (an array that decays on x86-64, a large struct passed by reference on aarch64), which is how it is typed here.

use core::cell::RefCell;
use core::ffi::{CStr, c_char, c_int, c_void};

use qnn_sys::QnnLog_Level_t;

/// How much the library logs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// Failures only.
    Error,
    /// Failures and warnings.
    #[default]
    Warn,
    /// What it does.
    Info,
    /// How it does it; slows Qualcomm's libraries down severalfold.
    Verbose,
    /// Everything.
    Debug,
}

impl LogLevel {
    /// QNN's number.
    pub(crate) const fn raw(self) -> QnnLog_Level_t {
        match self {
            Self::Error => qnn_sys::QNN_LOG_LEVEL_ERROR,
            Self::Warn => qnn_sys::QNN_LOG_LEVEL_WARN,
            Self::Info => qnn_sys::QNN_LOG_LEVEL_INFO,
            Self::Verbose => qnn_sys::QNN_LOG_LEVEL_VERBOSE,
            Self::Debug => qnn_sys::QNN_LOG_LEVEL_DEBUG,
        }
    }
}

/// Longest line that is kept, in bytes.
const MAX_LINE: usize = 2048;

thread_local! {
    /// The first error lines that the library wrote on this thread since a call began: the cause comes first.
    static ERROR_LINES: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// A new call begins: earlier lines do not belong to it.
pub(crate) fn forget_error_lines() {
    ERROR_LINES.with(|lines| drop(lines.borrow_mut().take()));
}

/// The error lines of the call that just failed.
pub(crate) fn take_error_lines() -> Option<String> {
    ERROR_LINES.with(|lines| lines.borrow_mut().take())
}

unsafe extern "C" {
    /// C's own formatting, with the `va_list` by address.
    fn vsnprintf(out: *mut c_char, n: usize, format: *const c_char, args: *mut c_void) -> c_int;
}

/// What the library calls for each line.
///
/// # Safety
/// `format` is a C string and `args` the `va_list` that belongs to it.
pub(crate) unsafe extern "C" fn callback(format: *const c_char, level: QnnLog_Level_t, _time: u64, args: *mut c_void) {
    if format.is_null() {
        return;
    }
    let mut line = [0 as c_char; MAX_LINE];
    // SAFETY: the buffer's true size is given, so the result is cut and ends in a zero; format and arguments belong together.
    if unsafe { vsnprintf(line.as_mut_ptr(), MAX_LINE, format, args) } < 0 {
        return;
    }
    // SAFETY: `vsnprintf` ended the line with a zero within the buffer.
    let text = unsafe { CStr::from_ptr(line.as_ptr()) }.to_string_lossy();
    // A panicking subscriber must not unwind into C.
    let _ = std::panic::catch_unwind(|| report(text.trim_end(), level));
}

/// Lines that libQnnHtp 2.51 marks as errors or warnings though nothing is wrong; they come at every start or graph.
const HARMLESS: [&str; 4] = [
    "unexpected GraphHtpSettings option 66",
    "Initializing HtpProvider",
    "Performance Estimates unsupported",
    // The device config has the SoC's number where some versions look for the architecture: they take the SoC's own.
    "set by custom config is different from arch associated with SoC",
];

fn report(line: &str, level: QnnLog_Level_t) {
    // Libraries log from their exit handlers too, when this thread's storage, the subscriber's among it, is gone.
    if ERROR_LINES.try_with(|_| ()).is_err() {
        return;
    }
    if HARMLESS.iter().any(|known| line.contains(known)) {
        tracing::debug!(target: "qnn", "{line}");
        return;
    }
    match level {
        qnn_sys::QNN_LOG_LEVEL_ERROR => {
            ERROR_LINES.with(|lines| remember(&mut lines.borrow_mut(), line));
            tracing::error!(target: "qnn", "{line}");
        }
        qnn_sys::QNN_LOG_LEVEL_WARN => tracing::warn!(target: "qnn", "{line}"),
        qnn_sys::QNN_LOG_LEVEL_INFO => tracing::info!(target: "qnn", "{line}"),
        qnn_sys::QNN_LOG_LEVEL_VERBOSE => tracing::debug!(target: "qnn", "{line}"),
        _ => tracing::trace!(target: "qnn", "{line}"),
    }
}

/// Most bytes of error lines that go into one error.
const MAX_ERROR_BYTES: usize = 400;

fn remember(lines: &mut Option<String>, line: &str) {
    // The library marks its lines with the level, which the error implies.
    let line = line.trim().trim_start_matches("<E>").trim_start();
    match lines {
        None => *lines = Some(line.to_owned()),
        Some(lines) if lines.len() + line.len() <= MAX_ERROR_BYTES => {
            lines.push_str(" / ");
            lines.push_str(line);
        }
        Some(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Logs while the thread ends.
    struct Late;

    impl Drop for Late {
        fn drop(&mut self) {
            assert!(ERROR_LINES.try_with(|_| ()).is_err(), "storage is freed last in, first out");
            report("exiting", qnn_sys::QNN_LOG_LEVEL_ERROR);
        }
    }

    thread_local! {
        static LATE: Late = const { Late };
    }

    #[test]
    fn a_line_after_the_threads_storage_is_gone_is_dropped() {
        // A panic in there would end the whole process.
        let thread = std::thread::spawn(|| {
            LATE.with(|_| ());
            report("storage that is freed before `LATE`", qnn_sys::QNN_LOG_LEVEL_ERROR);
        });
        thread.join().unwrap();
    }

    #[test]
    fn error_lines_belong_to_the_call_that_failed() {
        report("an earlier failure", qnn_sys::QNN_LOG_LEVEL_ERROR);
        forget_error_lines();
        report("a warning", qnn_sys::QNN_LOG_LEVEL_WARN);
        assert_eq!(take_error_lines(), None);
        report(" <E> no such graph", qnn_sys::QNN_LOG_LEVEL_ERROR);
        report("giving up", qnn_sys::QNN_LOG_LEVEL_ERROR);
        report(" <E> unexpected GraphHtpSettings option 66", qnn_sys::QNN_LOG_LEVEL_ERROR);
        report(&"x".repeat(MAX_LINE), qnn_sys::QNN_LOG_LEVEL_ERROR);
        assert_eq!(take_error_lines().as_deref(), Some("no such graph / giving up"));
        assert_eq!(take_error_lines(), None);
    }

    #[test]
    fn levels_have_the_librarys_numbers() {
        assert_eq!([LogLevel::Error, LogLevel::Warn, LogLevel::Info].map(LogLevel::raw), [1, 2, 3]);
    }
}
