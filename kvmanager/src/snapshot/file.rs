//! Files that are there whole or not at all.

use super::SnapshotError;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// The end of a temporary file's name.
pub(super) const TEMPORARY: &str = ".tmp";

static NUMBER: AtomicU64 = AtomicU64::new(0);

/// Writes a file beside its place, syncs it, and renames it into place; then syncs the folder.
///
/// # Errors
/// [`SnapshotError::Io`]; the temporary file is removed, and what was there before stays.
pub fn write_atomically(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> std::io::Result<()>,
) -> Result<(), SnapshotError> {
    let io = |action, path: &Path, source| SnapshotError::Io { action, path: path.to_owned(), source };
    let (temporary, file) = create_temporary(path).map_err(|(temporary, e)| io("create", &temporary, e))?;
    let mut out = BufWriter::with_capacity(1 << 20, file);
    let written = write(&mut out).and_then(|()| out.flush()).and_then(|()| out.get_ref().sync_all());
    drop(out);
    let renamed = match written {
        Ok(()) => fs::rename(&temporary, path).map_err(|e| io("replace", path, e)),
        Err(e) => Err(io("write", &temporary, e)),
    };
    if renamed.is_err() {
        // The first error is the one to tell; a file left behind is only untidy.
        let _ = fs::remove_file(&temporary);
        return renamed;
    }
    // The rename itself must survive a power cut. Not every system lets a folder be synced; the file itself is.
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let _ = File::open(folder).and_then(|f| f.sync_all());
    Ok(())
}

/// A file of its own for each process and each call. A killed process leaves its file behind, and its number may come
/// again; then the next name is tried.
fn create_temporary(path: &Path) -> Result<(PathBuf, File), (PathBuf, std::io::Error)> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    loop {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let temporary = path.with_file_name(format!(".{name}.{}.{number}{TEMPORARY}", std::process::id()));
        match File::create_new(&temporary) {
            Ok(file) => return Ok((temporary, file)),
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err((temporary, e)),
        }
    }
}
