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

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn a_link_to_nothing_is_no_folder_to_be_made() {
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("nothing", dir.path().join("link")).unwrap();
        let link = dir.path().join("link");
        assert!(matches!(check_folder(&link), Err(FileError::Io { operation: "open", .. })));
        assert!(matches!(check_folder(&link.join("sub")), Err(FileError::Io { operation: "open", .. })));
        std::fs::write(dir.path().join("file"), "x").unwrap();
        let file = dir.path().join("file");
        assert!(matches!(check_folder(&file), Err(FileError::Unfit { found: "a file", .. })));
        assert!(matches!(check_folder(&file.join("sub")), Err(FileError::Io { operation: "open", .. })));
    }

    #[test]
    fn access_is_asked_of_the_system() {
        let dir = tempfile::tempdir().unwrap();
        access(dir.path()).unwrap();
        assert!(matches!(access(&dir.path().join("none")), Err(FileError::Io { operation: "write", .. })));
    }
}
