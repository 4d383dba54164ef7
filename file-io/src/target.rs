//! What a path that is to be written names: a place for a regular file, or something that is written as it stands.

use std::fs::{self, Metadata};
use std::io;
use std::path::{Path, PathBuf};

use crate::temporary::folder_of;
use crate::{FileError, Result};

/// Links that are followed before the path counts as a circle, as in Linux.
const MAX_LINKS: usize = 40;

/// What a path names.
#[derive(Debug)]
pub(crate) enum Target {
    /// A regular file is there, or nothing: it may be replaced. Links are resolved.
    Regular {
        path: PathBuf,
        /// What the old file has, to be kept.
        old: Option<Metadata>,
    },
    /// A device, a pipe, a socket, or where this process's own output goes.
    InPlace(Metadata),
}

impl Target {
    pub(crate) fn of(path: &Path) -> Result<Self> {
        if path.file_name().is_none() {
            let found = if path.as_os_str().is_empty() { "an empty path" } else { "a folder" };
            return Err(FileError::Unfit { path: path.to_owned(), expected: "a file", found });
        }
        match fs::metadata(path) {
            Ok(meta) if meta.is_dir() => {
                Err(FileError::Unfit { path: path.to_owned(), expected: "a file", found: "a folder" })
            }
            Ok(meta) if !meta.is_file() || is_output(&meta) => Ok(Self::InPlace(meta)),
            Ok(meta) => Ok(match resolved(path)? {
                Some(path) => Self::Regular { path, old: Some(meta) },
                None => Self::InPlace(meta),
            }),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Self::Regular { path: end_of_links(path)?, old: None }),
            Err(e) => Err(FileError::io("open", path)(e)),
        }
    }
}

/// The name of a file that is there, without links; `None` for a link of `/proc/PID/fd` to a file whose name is gone.
fn resolved(path: &Path) -> Result<Option<PathBuf>> {
    match fs::canonicalize(path) {
        Ok(path) => Ok(Some(path)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(FileError::io("resolve", path)(e)),
    }
}

/// Whether writing to this path would not replace a regular file: it names a device, a pipe, or this process's output.
///
/// # Errors
/// The path names a folder, or cannot be looked up.
pub fn is_written_in_place(path: &Path) -> Result<bool> {
    Ok(matches!(Target::of(path)?, Target::InPlace(_)))
}

/// Where a chain of links ends whose last one names nothing yet.
fn end_of_links(path: &Path) -> Result<PathBuf> {
    let mut end = path.to_owned();
    for _ in 0..MAX_LINKS {
        match fs::read_link(&end) {
            Ok(next) => end = folder_of(&end).join(next),
            Err(_) => return Ok(end),
        }
    }
    Err(FileError::Unfit { path: path.to_owned(), expected: "a file", found: "links in a circle" })
}

/// Whether this is the file that stdout or stderr goes to (`/dev/stdout`, or the file after `>`).
fn is_output(meta: &Metadata) -> bool {
    output_of(meta).is_some()
}

/// This process's stdout or stderr, if that is the file.
pub(crate) fn output_of(meta: &Metadata) -> Option<fs::File> {
    #[cfg(unix)]
    {
        use std::os::fd::AsFd;
        use std::os::unix::fs::MetadataExt;
        let (out, err) = (io::stdout(), io::stderr());
        [out.as_fd(), err.as_fd()].into_iter().find_map(|output| {
            let stat = rustix::fs::fstat(output).ok()?;
            if (stat.st_dev as u64, stat.st_ino as u64) != (meta.dev(), meta.ino()) {
                return None;
            }
            output.try_clone_to_owned().ok().map(fs::File::from)
        })
    }
    #[cfg(not(unix))]
    {
        let _ = meta;
        None
    }
}
