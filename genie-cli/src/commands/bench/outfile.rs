//! Output files of a run: checked at its start, written at its end.

use std::path::Path;

use anyhow::Result;

use crate::failure::UserError;

/// Checks that the file of a flag can be written.
pub fn must_be_writable(flag: &str, path: &Path) -> Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let tried = if path.is_dir() {
        Err("it is a folder".to_owned())
    } else {
        tempfile::tempfile_in(folder).map(drop).map_err(|error| error.to_string())
    };
    tried.map_err(|why| refused(flag, path, &why))
}

/// Writes the file atomically.
pub fn write(flag: &str, path: &Path, text: &str) -> Result<()> {
    let written = session_store::write_atomically(path, |out| out.write_all(text.as_bytes()));
    written.map_err(|error| refused(flag, path, &error.to_string()))
}

fn refused(flag: &str, path: &Path, why: &str) -> anyhow::Error {
    let what = format!("cannot write `{}` for `{flag}`: {why}", path.display());
    UserError::error(what, "choose a file in an existing, writable folder")
}
