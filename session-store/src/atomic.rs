//! Files that appear whole or not at all.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::StoreError;

/// The end of a temporary file's name.
pub(crate) const TEMPORARY: &str = ".tmp";

static NUMBER: AtomicU64 = AtomicU64::new(0);

/// Writes a file beside its place, syncs it, renames it into place, and syncs the folder.
///
/// # Errors
/// [`StoreError::Io`]; the temporary file is removed, and a file of that name stays as it was.
pub fn write_atomically(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> std::io::Result<()>,
) -> Result<(), StoreError> {
    let (temporary, file) = create_temporary(path)?;
    let mut out = BufWriter::with_capacity(1 << 20, file);
    let written = write(&mut out).and_then(|()| out.flush()).and_then(|()| out.get_ref().sync_all());
    drop(out);
    let renamed = written
        .map_err(StoreError::io("write", &temporary))
        .and_then(|()| fs::rename(&temporary, path).map_err(StoreError::io("replace", path)));
    if renamed.is_err() {
        // The first error counts; a file left behind is only untidy.
        let _ = fs::remove_file(&temporary);
        return renamed;
    }
    // The rename itself must survive a power cut. Not every system lets a folder be synced; the file itself is.
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let _ = File::open(folder).and_then(|f| f.sync_all());
    Ok(())
}

/// Creates a file of its own for each process and each call. A killed process leaves its file behind, and its number may
/// be used again; then the next name is tried.
fn create_temporary(path: &Path) -> Result<(PathBuf, File), StoreError> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    loop {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let temporary = path.with_file_name(format!(".{name}.{}.{number}{TEMPORARY}", std::process::id()));
        match File::create_new(&temporary) {
            Ok(file) => return Ok((temporary, file)),
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(StoreError::io("create", &temporary)(e)),
        }
    }
}

/// Reads a whole file.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, StoreError> {
    fs::read(path).map_err(StoreError::io("read", path))
}

/// Removes a file; one that does not exist is fine.
pub(crate) fn remove(path: &Path) -> Result<(), StoreError> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(StoreError::io("remove", path)(e)),
        _ => Ok(()),
    }
}
