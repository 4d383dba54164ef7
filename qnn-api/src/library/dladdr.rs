//! Which file a piece of code was loaded from. Only the loaders of Unix tell.

#[cfg(unix)]
pub(super) use unix::file_of;

/// Unknown: the library counts as the file that was asked for.
#[cfg(not(unix))]
pub(super) fn file_of(_address: *const core::ffi::c_void) -> Option<std::path::PathBuf> {
    None
}

#[cfg(unix)]
mod unix {
    use core::ffi::{CStr, c_char, c_int, c_void};
    use std::os::unix::ffi::OsStrExt;

    /// What `dladdr` writes (POSIX).
    #[repr(C)]
    struct DlInfo {
        file: *const c_char,
        base: *mut c_void,
        symbol: *const c_char,
        address: *mut c_void,
    }

    unsafe extern "C" {
        fn dladdr(address: *const c_void, info: *mut DlInfo) -> c_int;
    }

    /// The file that holds the code at `address`, as the loader found it.
    pub(in super::super) fn file_of(address: *const c_void) -> Option<std::path::PathBuf> {
        let null = core::ptr::null_mut();
        let mut info = DlInfo { file: core::ptr::null(), base: null, symbol: core::ptr::null(), address: null };
        // SAFETY: `dladdr` takes any address and writes one struct.
        if unsafe { dladdr(address, &raw mut info) } == 0 || info.file.is_null() {
            return None;
        }
        // SAFETY: on success `file` is a C string owned by the loader, valid while the library is loaded.
        let name = unsafe { CStr::from_ptr(info.file) };
        Some(std::path::PathBuf::from(std::ffi::OsStr::from_bytes(name.to_bytes())))
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn our_own_code_lies_in_the_test_program() {
        let here = file_of(file_of as *const core::ffi::c_void).expect("code has a file");
        let exe = std::env::current_exe().unwrap();
        assert_eq!(here.file_name(), exe.file_name());
    }
}
