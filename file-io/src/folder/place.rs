//! Where a folder may be put: the path with its links resolved, and what is there.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::error::{FolderError, UnfitPlace};
use crate::temporary::folder_of;
use crate::{FileError, FileKind};

/// Links that are followed before the path counts as a circle, as in Linux.
const MAX_LINKS: usize = 40;

/// A place where a folder may be put: nothing is there, or a folder that can be renamed.
#[derive(Clone, Debug)]
pub struct FolderPlace {
    path: PathBuf,
    asked: PathBuf,
}

/// What is in a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Nothing is there.
    Missing,
    /// An empty folder.
    Empty,
    /// A folder with entries.
    Entries,
}

impl FolderPlace {
    /// Resolves the path; a symbolic link stays, the folder it leads to is the place.
    ///
    /// # Errors
    /// [`FolderError`]: something other than a folder is there, or one that cannot be replaced: the root, a mount point,
    /// the current folder or one above it.
    pub fn of(asked: &Path) -> Result<Self, FolderError> {
        let unfit = |why| FolderError::Unfit { path: asked.to_owned(), why };
        let path = match fs::metadata(asked) {
            Ok(meta) if meta.is_dir() => fs::canonicalize(asked).map_err(FileError::io("resolve", asked))?,
            Ok(_) => return Err(not_a_folder(asked)),
            Err(e) => not_there(asked, e)?,
        };
        // What is there has a name without links and `..`, except the root; what is not there was asked for by a name.
        if path.file_name().is_none() {
            return Err(unfit(UnfitPlace::Root));
        }
        if std::env::current_dir().is_ok_and(|here| here.starts_with(&path)) {
            return Err(unfit(UnfitPlace::Current));
        }
        if is_mount_point(&path) {
            return Err(unfit(UnfitPlace::MountPoint));
        }
        Ok(Self { path, asked: asked.to_owned() })
    }

    /// A place in a folder of this process's own.
    pub(super) fn unchecked(path: PathBuf) -> Self {
        Self { asked: path.clone(), path }
    }

    /// The path, without links at its end.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path as it was given.
    pub fn asked(&self) -> &Path {
        &self.asked
    }

    /// What is there now.
    ///
    /// # Errors
    /// The folder cannot be listed, or is no folder any more.
    pub fn content(&self) -> Result<Content, FolderError> {
        match fs::read_dir(&self.path) {
            Ok(mut entries) => Ok(if entries.next().is_none() { Content::Empty } else { Content::Entries }),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Content::Missing),
            Err(e) if e.kind() == io::ErrorKind::NotADirectory => Err(not_a_folder(&self.path)),
            Err(e) => Err(FileError::io("list", &self.asked)(e).into()),
        }
    }
}

/// The path of a folder that does not exist yet: links at its end are followed.
fn not_there(asked: &Path, error: io::Error) -> Result<PathBuf, FolderError> {
    let unfit = |why| FolderError::Unfit { path: asked.to_owned(), why };
    if is_circle(&error) {
        return Err(unfit(UnfitPlace::LinkCircle));
    }
    if !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) {
        return Err(FileError::io("open", asked)(error).into());
    }
    if asked.file_name().is_none() {
        return Err(unfit(UnfitPlace::NoName));
    }
    let mut end: PathBuf = asked.components().collect();
    for _ in 0..MAX_LINKS {
        let Ok(next) = fs::read_link(&end) else { break };
        end = folder_of(&end).join(next);
    }
    let is_link = end.components().ne(asked.components());
    let above = folder_of(&end);
    match fs::canonicalize(above) {
        Ok(above) if !above.is_dir() => Err(not_a_folder(&above)),
        Ok(above) => match end.file_name() {
            Some(name) => Ok(above.join(name)),
            None => Err(unfit(UnfitPlace::NoName)),
        },
        Err(_) if is_link => Err(unfit(UnfitPlace::LinkToNowhere { to: end })),
        Err(_) => {
            // Folders above are made as well, from the lowest that is there.
            let there = above.ancestors().find(|path| fs::symlink_metadata(path).is_ok());
            match there {
                Some(path) if !path.is_dir() => Err(not_a_folder(path)),
                _ => Ok(end),
            }
        }
    }
}

fn not_a_folder(path: &Path) -> FolderError {
    FolderError::NotAFolder { path: path.to_owned(), found: FileKind::of(path) }
}

#[cfg(unix)]
fn is_circle(error: &io::Error) -> bool {
    rustix::io::Errno::from_io_error(error) == Some(rustix::io::Errno::LOOP)
}

#[cfg(not(unix))]
fn is_circle(_error: &io::Error) -> bool {
    false
}

/// Whether a file system is mounted there, also one that is mounted twice.
#[cfg(target_os = "linux")]
fn is_mount_point(path: &Path) -> bool {
    use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};
    statx(CWD, path, AtFlags::empty(), StatxFlags::empty()).is_ok_and(|found| {
        let known = StatxAttributes::from_bits_retain(found.stx_attributes_mask.bits());
        known.contains(StatxAttributes::MOUNT_ROOT) && found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)
    })
}

#[cfg(not(target_os = "linux"))]
fn is_mount_point(_path: &Path) -> bool {
    false
}
