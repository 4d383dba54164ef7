//! A folder in which Qualcomm's `libGenie.so` finds another library where it looks for `libQnnHtp.so`.
//!
//! *Trap*: Qualcomm's build has an `RPATH` of its own folder, which wins over `LD_LIBRARY_PATH`. The folder is that of
//! the name it was opened by, so a link to the library in our folder moves it there.

use std::path::{Path, PathBuf};

use qnn_api::library::runtime;
use tempfile::TempDir;

use super::error::GenieError;

/// The folder; gone with the value.
#[derive(Debug)]
pub struct Stage {
    folder: TempDir,
}

impl Stage {
    /// Links `genie` and the C++ runtime near it, and `backend` under the names of Qualcomm's backend and system library.
    ///
    /// # Errors
    /// The folder cannot be made or written.
    pub fn new(genie: &Path, backend: &Path) -> Result<Self, GenieError> {
        let failed = |source| GenieError::File { path: std::env::temp_dir(), source };
        let stage = Self { folder: tempfile::tempdir().map_err(failed)? };
        stage.link(genie, super::LIBRARY)?;
        stage.link(backend, runtime::HTP)?;
        stage.link(backend, runtime::SYSTEM)?;
        for helper in runtime::cpp_runtime(genie) {
            let name = helper.file_name().unwrap_or_default().to_owned();
            stage.link(&helper, &name)?;
        }
        Ok(stage)
    }

    /// The library to open.
    pub fn library(&self) -> PathBuf {
        self.folder.path().join(super::LIBRARY)
    }

    /// What it finds as its backend.
    pub fn backend(&self) -> PathBuf {
        self.folder.path().join(runtime::HTP)
    }

    /// Makes `name` in the folder mean `file`, whatever it meant before.
    ///
    /// # Errors
    /// The link cannot be made.
    pub fn link(&self, file: &Path, name: impl AsRef<Path>) -> Result<(), GenieError> {
        let at = self.folder.path().join(name);
        let failed = |source| GenieError::File { path: at.clone(), source };
        match std::fs::remove_file(&at) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(failed(e)),
            _ => {}
        }
        let file = std::path::absolute(file).map_err(failed)?;
        std::os::unix::fs::symlink(&file, &at).map_err(failed)
    }
}
