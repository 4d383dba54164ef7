//! Output files of flags: checked before the run, written at its end.

use std::path::Path;

use anyhow::{Context, Result};
use file_io::FileError;

/// Checks that the file of a flag can be written.
pub fn must_be_writable(flag: &str, path: &Path) -> Result<()> {
    named(flag, file_io::check_writable(path))
}

/// Checks that the folder of a flag can be written, or made.
pub fn must_take_files(flag: &str, folder: &Path) -> Result<()> {
    named(flag, file_io::check_folder(folder))
}

/// Writes the file: whole or not at all; a device or pipe in place.
pub fn write(flag: &str, path: &Path, text: &str) -> Result<()> {
    named(flag, file_io::write_bytes(path, text.as_bytes()))
}

/// Names the flag before the error; the error stays below for its hint.
fn named(flag: &str, done: Result<(), FileError>) -> Result<()> {
    let text = done.as_ref().err().map(|error| format!("`{flag}`: {error}"));
    done.with_context(|| text.unwrap_or_default())
}
