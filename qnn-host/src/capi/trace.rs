//! What a client calls, line by line: to learn which calls and options a client uses.
//!
//! `QNN_HOST_TRACE=FILE` (`-` for standard error) turns it on. A line has the call, what is worth knowing of its
//! arguments, the result, and how long it took. Off, it costs a load and a branch for each call.

use std::cell::RefCell;
use std::ffi::c_void;
use std::fs::File;
use std::io::Write;
use std::sync::LazyLock;
use std::time::Instant;

use parking_lot::Mutex;
use qnn_sys::{QNN_SUCCESS, Qnn_ErrorHandle_t};

/// The environment variable with the file's name.
const VARIABLE: &str = "QNN_HOST_TRACE";

type Sink = Mutex<Box<dyn Write + Send>>;

static SINK: LazyLock<Option<Sink>> = LazyLock::new(|| {
    let name = std::env::var_os(VARIABLE)?;
    if name == "-" {
        return Some(Mutex::new(Box::new(std::io::stderr())));
    }
    match File::options().create(true).append(true).open(&name) {
        Ok(file) => Some(Mutex::new(Box::new(file))),
        Err(error) => {
            eprintln!("qnn-host: cannot write `{}`: {error}", name.display());
            None
        }
    }
});

thread_local! {
    /// What was noted about the running call.
    static NOTES: RefCell<String> = const { RefCell::new(String::new()) };
}

/// A call that began. Invariant: a time is kept only where a line will be written.
pub(super) struct Call(Option<Instant>);

/// A call begins.
pub(super) fn begin() -> Call {
    Call(SINK.as_ref().map(|_| Instant::now()))
}

impl Call {
    /// It ends with this result.
    pub(super) fn end(self, name: &str, result: Qnn_ErrorHandle_t) {
        let (Some(began), Some(sink)) = (self.0, SINK.as_ref()) else { return };
        let micros = began.elapsed().as_secs_f64() * 1e6;
        let notes = NOTES.try_with(|notes| std::mem::take(&mut *notes.borrow_mut())).unwrap_or_default();
        let result =
            if result == QNN_SUCCESS { "ok".into() } else { format!("{result} {}", qnn_sys::error::name(result)) };
        // A full disk must not trouble the client.
        let _ = writeln!(sink.lock(), "{name}{notes} -> {result} {micros:.1} us");
    }
}

/// Notes something about the running call.
pub(super) fn note(text: impl FnOnce() -> String) {
    if SINK.is_some() {
        let _ = NOTES.try_with(|notes| {
            let mut notes = notes.borrow_mut();
            notes.push(' ');
            notes.push_str(&text());
        });
    }
}

/// Notes an entry of a config list. Custom ones begin with their own number in all headers of Qualcomm's.
///
/// # Safety
/// `custom` must be null, misaligned or lead to four readable bytes.
pub(super) unsafe fn note_config(option: u32, custom: Option<*const c_void>) {
    note(|| match custom.map(<*const c_void>::cast::<u32>).filter(|p| !p.is_null() && p.is_aligned()) {
        // SAFETY: not null, aligned; the rest is the caller's promise.
        Some(custom) => format!("[config {option}: custom {}]", unsafe { *custom }),
        None => format!("[config {option}]"),
    });
}
