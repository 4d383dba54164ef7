//! Loading a backend's helpers first, so that no `LD_LIBRARY_PATH` is needed.
//!
//! The loader takes a library that is already there under the wanted name, whatever folder it came from. Helpers are
//! looked for beside the backend and in the wheel's `*.libs` folder next to that; the C++ runtime is loaded for all to
//! see, in the order in which its pieces need one another.
//!
//! *Traps*: parts of the HTP backend must not be seen by all: `libHtpPrepare.so` and `libQnnHtp.so` define the same
//! symbols, and the second one's initialisers would then register into the first one's tables, throw, and end the process.

use std::path::{Path, PathBuf};

use super::runtime::SYSTEM;
use loader::Scope;

/// C++ runtime pieces in dependency order, by how their file names begin.
const RUNTIME: [&str; 3] = ["libunwind", "libc++abi", "libc++"];
/// Parts of the HTP backend that it opens by bare name.
const HTP_PARTS: [&str; 1] = ["libHtpPrepare.so"];

/// Loads a library with its own scope.
///
/// # Safety
/// Its initialisers may run in this process.
pub(super) unsafe fn open(path: &Path) -> Result<libloading::Library, libloading::Error> {
    // SAFETY: the caller's promise.
    unsafe { loader::open(path, Scope::Local) }
}

/// Loads what lies beside `backend` and is needed by it. What is missing or refused is left to the system's loader.
///
/// # Safety
/// The initialisers of the helpers in that folder may run in this process.
pub(super) unsafe fn helpers_of(backend: &Path) {
    let Some(folder) = folder_of(backend) else { return };
    for path in cpp_runtime(backend) {
        // SAFETY: the caller's promise.
        unsafe { keep(&path, Scope::Global) };
    }
    if backend.file_name().is_some_and(|name| name == "libQnnHtp.so") {
        for part in HTP_PARTS.map(|part| folder.join(part)).iter().filter(|part| part.is_file()) {
            // SAFETY: the caller's promise.
            unsafe { keep(part, Scope::Local) };
        }
    }
}

/// The C++ runtime near a library, in the order in which its pieces need one another.
pub(super) fn cpp_runtime(library: &Path) -> Vec<PathBuf> {
    folder_of(library).map_or_else(Vec::new, |folder| runtime_files(&folders_near(&folder)))
}

/// Where the system library may be, best guess first.
pub(super) fn system_candidates(backend: &Path) -> Vec<PathBuf> {
    let beside = folder_of(backend).map(|folder| folder.join(SYSTEM)).filter(|path| path.is_file());
    beside.into_iter().chain([PathBuf::from(SYSTEM)]).collect()
}

/// Loads for the rest of the process; in the global scope, libraries loaded later see its symbols.
///
/// # Safety
/// Its initialisers may run in this process.
unsafe fn keep(path: &Path, scope: Scope) {
    // SAFETY: the caller's promise.
    match unsafe { loader::open(path, scope) } {
        Ok(library) => {
            tracing::debug!(file = %path.display(), "helper loaded");
            std::mem::forget(library);
        }
        Err(error) => tracing::debug!(file = %path.display(), %error, "helper left to the system's loader"),
    }
}

/// Opening in a scope; the loader of Windows knows one only.
mod loader {
    use std::path::Path;

    use libloading::{Error, Library};

    /// Who sees a library's symbols.
    #[derive(Clone, Copy, Debug)]
    pub(super) enum Scope {
        /// Who asks for them by its handle.
        Local,
        /// Libraries that are loaded later, too.
        Global,
    }

    /// # Safety
    /// The library's initialisers may run in this process.
    #[cfg(unix)]
    pub(super) unsafe fn open(path: &Path, scope: Scope) -> Result<Library, Error> {
        use libloading::os::unix::{Library as UnixLibrary, RTLD_GLOBAL, RTLD_LOCAL, RTLD_NOW};
        let scope = match scope {
            Scope::Local => RTLD_LOCAL,
            Scope::Global => RTLD_GLOBAL,
        };
        // SAFETY: the caller's promise.
        unsafe { UnixLibrary::open(Some(path), RTLD_NOW | scope) }.map(Into::into)
    }

    /// # Safety
    /// The library's initialisers may run in this process.
    #[cfg(not(unix))]
    pub(super) unsafe fn open(path: &Path, _scope: Scope) -> Result<Library, Error> {
        // SAFETY: the caller's promise.
        unsafe { Library::new(path) }
    }
}

/// The folder of a path that has one; a bare name is for the loader to find.
fn folder_of(path: &Path) -> Option<PathBuf> {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).map(Path::to_owned)
}

/// The folder itself and the `*.libs` folders beside it, which is where wheels keep what their libraries need.
fn folders_near(folder: &Path) -> Vec<PathBuf> {
    let mut folders = vec![folder.to_owned()];
    let parent = folder.canonicalize().ok().and_then(|folder| folder.parent().map(Path::to_owned));
    let beside = parent.and_then(|parent| std::fs::read_dir(parent).ok()).into_iter().flatten().flatten();
    let mut wheels: Vec<_> =
        beside.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|e| e == "libs")).collect();
    wheels.sort();
    folders.extend(wheels);
    folders
}

/// The C++ runtime's files in the order in which they need one another.
fn runtime_files(folders: &[PathBuf]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let entries = folders.iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten().flatten();
    let files: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(|path| path.is_file()).collect();
    for name in RUNTIME {
        let is_it = |path: &&PathBuf| {
            let file = path.file_name().unwrap_or_default().to_string_lossy();
            // `libc++` must not match `libc++abi`.
            file.strip_prefix(name).is_some_and(|rest| rest.contains(".so") && rest.starts_with(['-', '.']))
        };
        let mut matching: Vec<PathBuf> = files.iter().filter(is_it).cloned().collect();
        matching.sort();
        found.extend(matching);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_runtime_is_found_in_a_wheels_folders_and_ordered() {
        let root = tempfile::tempdir().unwrap();
        let (backend, libs) = (root.path().join("pkg"), root.path().join("pkg.libs"));
        for folder in [&backend, &libs] {
            std::fs::create_dir(folder).unwrap();
        }
        for name in ["libc++-71bc.so.1.0", "libc++abi-0539.so.1.0", "libunwind-6b.so.1.0", "libc++notes.txt", "libm.so"]
        {
            std::fs::write(libs.join(name), "").unwrap();
        }
        let found = runtime_files(&folders_near(&backend));
        let names: Vec<_> = found.iter().map(|path| path.file_name().unwrap().to_str().unwrap()).collect();
        assert_eq!(names, ["libunwind-6b.so.1.0", "libc++abi-0539.so.1.0", "libc++-71bc.so.1.0"]);
    }

    #[test]
    fn a_bare_name_is_left_to_the_loader() {
        assert_eq!(folder_of(Path::new("libQnnHtp.so")), None);
        assert_eq!(system_candidates(Path::new("libQnnHtp.so")), [PathBuf::from("libQnnSystem.so")]);
    }
}
