//! Keeps loaded libraries off this program's standard output.
//!
//! The HTP emulator prints a line about its thread-local storage through C's `stdout` for each of its parts. Programs
//! here write data to standard output, so C's stream is pointed at standard error; Rust's own does not go through it.

/// From now on, what C code prints to `stdout` goes to standard error. Done once, however often it is called.
pub(super) fn to_stderr() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        use core::ffi::c_void;
        use std::sync::Once;

        unsafe extern "C" {
            static mut stdout: *mut c_void;
            static stderr: *mut c_void;
        }
        static ONCE: Once = Once::new();
        // SAFETY: glibc documents both as ordinary variables that a program may assign; `Once` prevents a race
        // with itself, and printing code reads the pointer once per call.
        ONCE.call_once(|| unsafe { stdout = stderr });
    }
}
