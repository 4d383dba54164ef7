//! Which files came into the process with the QNN libraries.
//!
//! *Source*: `dl_iterate_phdr` of the dynamic loader (glibc and bionic), which lists every loaded object;
//! no other system's is asked.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::OnceLock;

/// What the process had before its first QNN library.
static BEFORE: OnceLock<HashSet<PathBuf>> = OnceLock::new();

/// Notes what is loaded now as none of QNN's operation. Only the first call counts.
pub(super) fn note_before() {
    BEFORE.get_or_init(|| loaded().into_iter().collect());
}

/// The files that were loaded since, in the loader's order; none if no QNN library was loaded.
pub(super) fn since() -> Vec<PathBuf> {
    let Some(before) = BEFORE.get() else { return Vec::new() };
    loaded().into_iter().filter(|file| !before.contains(file)).collect()
}

#[cfg(unix)]
use unix::loaded;

#[cfg(not(unix))]
fn loaded() -> Vec<PathBuf> {
    Vec::new()
}

#[cfg(unix)]
mod unix {
    use core::ffi::{CStr, c_char, c_int, c_void};
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::path::PathBuf;

    /// The head of the loader's `struct dl_phdr_info`; what follows is not looked at.
    #[repr(C)]
    struct ObjectInfo {
        base: usize,
        name: *const c_char,
    }

    type Visit = unsafe extern "C" fn(info: *const ObjectInfo, n_bytes: usize, data: *mut c_void) -> c_int;

    unsafe extern "C" {
        fn dl_iterate_phdr(visit: Visit, data: *mut c_void) -> c_int;
    }

    /// Every file that is loaded now.
    pub(super) fn loaded() -> Vec<PathBuf> {
        unsafe extern "C" fn visit(info: *const ObjectInfo, _n_bytes: usize, data: *mut c_void) -> c_int {
            // SAFETY: the loader hands out a struct that begins as `ObjectInfo` does and lives during the visit.
            let name = unsafe { (*info).name };
            if !name.is_null() {
                // SAFETY: a C string that the loader owns; the program itself has an empty one.
                let name = unsafe { CStr::from_ptr(name) }.to_bytes();
                if !name.is_empty() {
                    // SAFETY: `data` is the list that `loaded` lends to this walk alone.
                    let list = unsafe { &mut *data.cast::<Vec<PathBuf>>() };
                    list.push(PathBuf::from(OsStr::from_bytes(name)));
                }
            }
            0
        }
        let mut list: Vec<PathBuf> = Vec::new();
        // SAFETY: a visitor of the signature that the loader calls, and a list that outlives the walk.
        unsafe { dl_iterate_phdr(visit, (&raw mut list).cast()) };
        list
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn the_c_library_is_loaded_and_nothing_came_since() {
        let has_libc = loaded()
            .iter()
            .any(|file| file.file_name().is_some_and(|name| name.to_string_lossy().starts_with("libc.")));
        assert!(has_libc, "{:?}", loaded());
        note_before();
        assert!(since().iter().all(|file| !file.ends_with("libQnnHtp.so")));
    }
}
