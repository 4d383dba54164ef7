//! Where Qualcomm's libraries are on this machine, if anywhere.
//!
//! `cargo xtask qnn-runtime` unpacks them to `target/qnn-runtime/{x86_64,aarch64}/onnxruntime_qnn/`; `QNN_RUNTIME_DIR`
//! names any other folder. Without either the name is left to the system's loader, as on a device.

use std::path::{Path, PathBuf};

/// Environment variable with the folder of `libQnnHtp.so` and its kin.
pub const DIR_VARIABLE: &str = "QNN_RUNTIME_DIR";
/// The HTP backend's library.
pub const HTP: &str = "libQnnHtp.so";
/// Folders below the named one that are looked into as well.
const WHEEL: &str = "onnxruntime_qnn";

/// The file of that name in `QNN_RUNTIME_DIR`, else in `target/qnn-runtime` above the program or the current folder.
pub fn find(name: &str) -> Option<PathBuf> {
    let named = std::env::var_os(DIR_VARIABLE).map(PathBuf::from);
    if let Some(folder) = named {
        return below(&folder, name);
    }
    let starts = [std::env::current_exe().ok(), std::env::current_dir().ok()];
    starts.iter().flatten().flat_map(|start| start.ancestors()).find_map(|folder| {
        let unpacked = |base: PathBuf| below(&base.join("qnn-runtime").join(std::env::consts::ARCH), name);
        unpacked(folder.to_owned()).or_else(|| unpacked(folder.join("target")))
    })
}

fn below(folder: &Path, name: &str) -> Option<PathBuf> {
    [folder.join(name), folder.join(WHEEL).join(name)].into_iter().find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wheel_is_found_in_its_own_folder() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(below(root.path(), HTP), None);
        let inside = root.path().join(WHEEL);
        std::fs::create_dir(&inside).unwrap();
        std::fs::write(inside.join(HTP), "").unwrap();
        assert_eq!(below(root.path(), HTP), Some(inside.join(HTP)));
        std::fs::write(root.path().join(HTP), "").unwrap();
        assert_eq!(below(root.path(), HTP), Some(root.path().join(HTP)), "the folder itself comes first");
    }
}
