//! Whether this library stands where a client looks for the HTP's.
//!
//! A client that opens `libQnnHtp.so` and finds this library under that name means the HTP, and parts of Qualcomm's
//! (backend extensions) refuse any other backend id. So under that name, and under no other, it presents itself as an HTP backend:
//! id, versions, device infos and a performance infrastructure that has no effect, as on the emulator.
//!
//! *Trap*: a loader that has the file already, under another name, does not load it again; the first name counts. libGenie
//! opens `libQnnSystem.so` first, so a file that is linked under both names is the HTP's under that one, too.

use std::sync::LazyLock;

use qnn_sys::Qnn_Version_t;

/// The file names under which it is an HTP backend.
const HTP_FILES: [&str; 2] = ["libQnnHtp.so", "libQnnSystem.so"];
/// Qualcomm's number for the HTP.
pub(crate) const HTP_BACKEND_ID: u32 = 6;
/// Version of the HTP's additions whose clients were measured (QAIRT 2.51).
pub(crate) const HTP_VERSION: Qnn_Version_t = Qnn_Version_t { major: 5, minor: 51, patch: 0 };

/// True where the library was loaded as the HTP's.
pub(crate) fn as_htp() -> bool {
    static AS_HTP: LazyLock<bool> =
        LazyLock::new(|| file::name().is_some_and(|name| HTP_FILES.iter().any(|known| name == *known)));
    *AS_HTP
}

#[cfg(unix)]
mod file {
    use std::ffi::{CStr, OsString, c_char, c_int, c_void};
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;

    /// What `dladdr` returns (POSIX).
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

    /// The last part of the path by which the loader opened the file that holds this function.
    pub(super) fn name() -> Option<OsString> {
        let null = std::ptr::null_mut();
        let mut info = DlInfo { file: std::ptr::null(), base: null, symbol: std::ptr::null(), address: null };
        // SAFETY: `dladdr` takes any address and writes one struct.
        if unsafe { dladdr(name as *const c_void, &raw mut info) } == 0 || info.file.is_null() {
            return None;
        }
        // SAFETY: on success a C string owned by the loader, valid while this code is loaded.
        let file = unsafe { CStr::from_ptr(info.file) };
        Path::new(std::ffi::OsStr::from_bytes(file.to_bytes())).file_name().map(ToOwned::to_owned)
    }
}

#[cfg(not(unix))]
mod file {
    /// Elsewhere the HTP's library has another name, and no client was seen looking for it.
    pub(super) fn name() -> Option<std::ffi::OsString> {
        None
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_test_program_is_no_htp() {
        assert!(super::file::name().is_some());
        assert!(!super::as_htp());
    }
}
