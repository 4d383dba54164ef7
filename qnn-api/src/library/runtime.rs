//! Where Qualcomm's libraries are on this machine, if anywhere.
//!
//! Looked at in this order: the folder that `QNN_RUNTIME_DIR` names, and nothing else if it is set; the program's own
//! folder and the `lib` beside it, as on a device; `target/qnn-runtime/{x86_64,aarch64}/onnxruntime_qnn`, where
//! `cargo xtask qnn-runtime` unpacks them, above the program and above the current folder; the installed SDK that
//! `QNN_SDK_ROOT` or `QAIRT_HOME` names, in the folder of `lib` that is for this machine; `qnn-runtime` in the cache folder,
//! where `genie runtime fetch` unpacks them. After that a bare name is left to the system's loader.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Environment variable with the folder of `libQnnHtp.so` and the libraries that come with it.
pub const DIR_VARIABLE: &str = "QNN_RUNTIME_DIR";
/// Environment variables with the folder of an installed SDK, QNN's or QAIRT's; the first that has the library counts.
pub const SDK_VARIABLES: [&str; 2] = ["QNN_SDK_ROOT", "QAIRT_HOME"];
/// The HTP backend's library.
pub const HTP: &str = "libQnnHtp.so";
/// The system interface's library.
pub const SYSTEM: &str = "libQnnSystem.so";
/// Folders below the named one that are looked into as well.
const WHEEL: &str = "onnxruntime_qnn";
/// Folders of fetched runtimes have this name.
const FETCHED: &str = "qnn-runtime";
/// Folders of an SDK's `lib` that are for this machine, in the order in which they are looked into: SDKs name the compiler.
const SDK_FOLDERS: &[&str] = if cfg!(target_os = "android") {
    &["aarch64-android"]
} else if cfg!(target_os = "windows") {
    &["x86_64-windows-msvc"]
} else if cfg!(target_arch = "aarch64") {
    &["aarch64-oe-linux-gcc11.2", "aarch64-ubuntu-gcc9.4", "aarch64-oe-linux-gcc9.3", "aarch64-oe-linux-gcc8.2"]
} else {
    &["x86_64-linux-clang"]
};

/// Every file that could be the library of that name, in the order in which they are looked at.
pub fn places(name: &str) -> Vec<PathBuf> {
    let mut places =
        places_from(name, std::env::var_os(DIR_VARIABLE), std::env::current_exe().ok(), std::env::current_dir().ok());
    if std::env::var_os(DIR_VARIABLE).is_none_or(|folder| folder.is_empty()) {
        let roots = SDK_VARIABLES.iter().filter_map(std::env::var_os);
        places.extend(installed(name, roots, fetched_folder()));
    }
    places
}

/// Where `genie runtime fetch` keeps runtimes, one folder for each machine; `None` where no variable names a cache folder.
pub fn fetched_folder() -> Option<PathBuf> {
    Some(file_io::cache_folder()?.join(FETCHED))
}

/// Places in SDKs, then in the folder of fetched runtimes.
fn installed(name: &str, roots: impl Iterator<Item = OsString>, fetched: Option<PathBuf>) -> Vec<PathBuf> {
    let roots = roots.filter(|root| !root.is_empty()).map(PathBuf::from);
    let of_root = |root: PathBuf| SDK_FOLDERS.iter().map(move |folder| root.join("lib").join(folder));
    let mut places: Vec<PathBuf> = roots.flat_map(of_root).map(|folder| folder.join(name)).collect();
    places.extend(fetched.into_iter().flat_map(|folder| below(&folder.join(std::env::consts::ARCH), name)));
    places
}

/// The first of [`places`] that is there.
pub fn find(name: &str) -> Option<PathBuf> {
    places(name).into_iter().find(|path| path.is_file())
}

/// The C++ runtime that lies near one of Qualcomm's libraries, in the order in which its pieces need one another.
pub fn cpp_runtime(library: &Path) -> Vec<PathBuf> {
    super::preload::cpp_runtime(library)
}

fn places_from(name: &str, named: Option<OsString>, program: Option<PathBuf>, here: Option<PathBuf>) -> Vec<PathBuf> {
    if let Some(folder) = named.filter(|folder| !folder.is_empty()) {
        return below(Path::new(&folder), name).into();
    }
    let mut places = Vec::new();
    if let Some(folder) = program.as_deref().and_then(Path::parent) {
        places.push(folder.join(name));
        places.extend(folder.parent().map(|above| above.join("lib").join(name)));
    }
    let unpacked = |base: PathBuf| below(&base.join(FETCHED).join(std::env::consts::ARCH), name);
    for start in [program, here].iter().flatten() {
        for folder in start.ancestors().filter(|folder| !folder.as_os_str().is_empty()) {
            // A program that cargo built lies below `target` itself.
            if folder.file_name().is_some_and(|name| name == "target") {
                places.extend(unpacked(folder.to_owned()));
            }
            places.extend(unpacked(folder.join("target")));
        }
    }
    let mut seen = std::collections::HashSet::new();
    places.retain(|place| seen.insert(place.clone()));
    places
}

fn below(folder: &Path, name: &str) -> [PathBuf; 2] {
    [folder.join(name), folder.join(WHEEL).join(name)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(named: Option<&Path>, program: &Path, here: &Path) -> Option<PathBuf> {
        let places =
            places_from(HTP, named.map(Into::into), Some(program.join("target/debug/genie")), Some(here.to_owned()));
        places.into_iter().find(|path| path.is_file())
    }

    #[test]
    fn sdks_come_before_what_was_fetched() {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join(path);
        let roots = || ["", "sdk", "qairt"].map(|name| if name.is_empty() { OsString::new() } else { at(name).into() });
        let first = || installed(HTP, roots().into_iter(), Some(at("cache"))).into_iter().find(|path| path.is_file());
        let put = |folder: String| {
            std::fs::create_dir_all(at(&folder)).unwrap();
            std::fs::write(at(&folder).join(HTP), "").unwrap();
            at(&folder).join(HTP)
        };
        assert_eq!(first(), None);
        let fetched = put(format!("cache/{}/onnxruntime_qnn", std::env::consts::ARCH));
        assert_eq!(first(), Some(fetched));
        let qairt = put(format!("qairt/lib/{}", SDK_FOLDERS[0]));
        assert_eq!(first(), Some(qairt));
        let sdk = put(format!("sdk/lib/{}", SDK_FOLDERS[0]));
        assert_eq!(first(), Some(sdk));
    }

    #[test]
    fn a_runtime_is_found_in_order() {
        let root = tempfile::tempdir().unwrap();
        let put = |folder: &str| {
            let folder = root.path().join(folder);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join(HTP), "").unwrap();
            folder.join(HTP)
        };
        let (program, here, named) = (root.path().join("p"), root.path().join("h/deep"), root.path().join("named"));
        let arch = std::env::consts::ARCH;
        assert_eq!(first(None, &program, &here), None);
        let above_here = put(&format!("h/target/qnn-runtime/{arch}/onnxruntime_qnn"));
        assert_eq!(first(None, &program, &here), Some(above_here));
        let above_program = put(&format!("p/target/qnn-runtime/{arch}/onnxruntime_qnn"));
        assert_eq!(first(None, &program, &here), Some(above_program));
        let lib = put("p/target/lib");
        assert_eq!(first(None, &program, &here), Some(lib));
        let beside = put("p/target/debug");
        assert_eq!(first(None, &program, &here), Some(beside));
        // A folder that was named is the only one.
        assert_eq!(first(Some(&named), &program, &here), None);
        let wheel = put("named/onnxruntime_qnn");
        assert_eq!(first(Some(&named), &program, &here), Some(wheel));
        let itself = put("named");
        assert_eq!(first(Some(&named), &program, &here), Some(itself));
    }
}
