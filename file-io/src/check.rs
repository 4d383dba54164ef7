//! Whether an output path will do, asked before a long run.

use std::path::Path;

use crate::target::Target;
use crate::temporary::{Temporary, folder_of};
use crate::{FileError, Result};

/// Checks that a file could be written at `path`; leaves nothing there. A pipe or device is not opened.
///
/// # Errors
/// What [`write`](fn@crate::write) would say.
pub fn check_writable(path: &Path) -> Result<()> {
    match Target::of(path)? {
        Target::Regular { path: target, .. } => Temporary::create(&target).map(drop),
        Target::InPlace(_) => access(path),
    }
}

/// Checks that files could be made in the folder `path`, or in the nearest one above it if it is yet to be made.
///
/// # Errors
/// [`FileError`]: something else is in its place, or it cannot be written.
pub fn check_folder(path: &Path) -> Result<()> {
    let mut nearest = path;
    loop {
        match nearest.metadata() {
            Ok(meta) if meta.is_dir() => return Temporary::create(&nearest.join("check")).map(drop),
            Ok(_) => {
                return Err(FileError::Unfit { path: nearest.to_owned(), expected: "a folder", found: "a file" });
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound && nearest.symlink_metadata().is_err() => {
                nearest = folder_of(nearest);
            }
            Err(e) => return Err(FileError::io("open", nearest)(e)),
        }
    }
}

fn access(path: &Path) -> Result<()> {
    #[cfg(unix)]
    rustix::fs::access(path, rustix::fs::Access::WRITE_OK).map_err(|e| FileError::io("write", path)(e.into()))?;
    #[cfg(not(unix))]
    let _ = path;
    Ok(())
}
