//! Keeps loaded libraries off this program's standard output, and a line without news off its standard error.
//!
//! The HTP emulator prints a line about its thread-local storage through C's `stdout` for each of its parts. Programs
//! here write data to standard output, so C's stream is replaced by one whose lines come here; Rust's own standard output
//! does not go through it.
//!
//! *Source*: `fopencookie(3)` of glibc.

/// From now on, what C code prints to `stdout` goes to standard error, line by line, without [`NOISE`]. Done once, however
/// often it is called.
pub(super) fn to_stderr() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    stream::replace();
}

/// What the emulator prints at every start; its other lines of that prefix are news.
#[cfg(any(all(target_os = "linux", target_env = "gnu"), test))]
const NOISE: &str = "# LIBNATIVE: No alternate configuration present";

/// The whole lines of a text that are worth printing, and what follows the last line end.
#[cfg(any(all(target_os = "linux", target_env = "gnu"), test))]
fn worth_printing(text: &[u8]) -> (Vec<u8>, &[u8]) {
    let mut kept = Vec::new();
    let mut rest = text;
    while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
        let (line, after) = rest.split_at(end + 1);
        if !String::from_utf8_lossy(line).contains(NOISE) {
            kept.extend_from_slice(line);
        }
        rest = after;
    }
    (kept, rest)
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod stream {
    use core::ffi::{c_char, c_int, c_void};
    use std::io::Write;
    use std::sync::{Mutex, Once, PoisonError};

    type WriteFn = unsafe extern "C" fn(cookie: *mut c_void, bytes: *const c_char, n: usize) -> isize;

    /// glibc's `cookie_io_functions_t`.
    #[repr(C)]
    struct Functions {
        read: *const c_void,
        write: Option<WriteFn>,
        seek: *const c_void,
        close: *const c_void,
    }

    unsafe extern "C" {
        static mut stdout: *mut c_void;
        fn fopencookie(cookie: *mut c_void, mode: *const c_char, functions: Functions) -> *mut c_void;
        fn setvbuf(stream: *mut c_void, buffer: *mut c_char, mode: c_int, n: usize) -> c_int;
    }

    /// Line buffering, by glibc's number.
    const LINES: c_int = 1;

    /// Replaces C's `stdout`; leaves it where no stream can be made.
    pub(super) fn replace() {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            let none = core::ptr::null();
            let functions = Functions { read: none, write: Some(write), seek: none, close: none };
            // SAFETY: a mode that C knows; the functions need no cookie, and those left out may be NULL.
            let stream = unsafe { fopencookie(core::ptr::null_mut(), c"w".as_ptr(), functions) };
            if stream.is_null() {
                return;
            }
            // SAFETY: a stream that was just opened; it allocates its own buffer.
            unsafe { setvbuf(stream, core::ptr::null_mut(), LINES, 0) };
            // SAFETY: glibc documents it as an ordinary variable that a program may assign; `Once` prevents a race with
            // itself, and printing code reads the pointer once per call.
            unsafe { stdout = stream };
        });
    }

    /// The start of a line whose end has not come yet.
    static PART: Mutex<Vec<u8>> = Mutex::new(Vec::new());

    unsafe extern "C" fn write(_cookie: *mut c_void, bytes: *const c_char, n: usize) -> isize {
        if n > 0 && !bytes.is_null() {
            // SAFETY: the C library hands out `n` readable bytes for the time of the call.
            let bytes = unsafe { core::slice::from_raw_parts(bytes.cast::<u8>(), n) };
            // A panic must not unwind into C.
            let _ = std::panic::catch_unwind(|| print(bytes));
        }
        n.cast_signed()
    }

    fn print(bytes: &[u8]) {
        let mut part = PART.lock().unwrap_or_else(PoisonError::into_inner);
        part.extend_from_slice(bytes);
        let (kept, rest) = super::worth_printing(&part);
        let rest = rest.to_vec();
        *part = rest;
        // A closed stderr is no failure.
        let _ = std::io::stderr().lock().write_all(&kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// D13: the emulator's line about its thread-local storage was printed by every command that loads it.
    #[test]
    fn the_emulators_line_is_dropped_and_others_stay() {
        let noise = " # LIBNATIVE: No alternate configuration present in libnative_tls.conf or from LIBNATIVE_CONFIG\n";
        let news = " # LIBNATIVE: config file detected - enabling thread local storage\n";
        let text = format!("{noise}{news}{noise}half");
        assert_eq!(worth_printing(text.as_bytes()), (news.as_bytes().to_vec(), &b"half"[..]));
        assert_eq!(worth_printing(b""), (vec![], &b""[..]));
    }
}
