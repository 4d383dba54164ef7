//! Why a folder was not made or replaced.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::{FileError, FileKind};

/// Why a folder was not made or replaced. The one that stood in its place is as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FolderError {
    /// A folder cannot be put there.
    #[error("`{}` cannot become a new folder: {why}", path.display())]
    Unfit {
        /// The path.
        path: PathBuf,
        /// Why.
        why: UnfitPlace,
    },
    /// Something that is no folder is there, or above.
    #[error("`{}` is {found}, expected a folder or nothing", path.display())]
    NotAFolder {
        /// The path.
        path: PathBuf,
        /// What is there.
        found: FileKind,
    },
    /// An entry cannot be kept while its folder is replaced.
    #[error("cannot keep `{}`: {why}", path.display())]
    CannotKeep {
        /// The entry.
        path: PathBuf,
        /// Why.
        why: &'static str,
    },
    /// A file operation failed.
    #[error(transparent)]
    File(#[from] FileError),
}

impl FolderError {
    /// The path that the error is about.
    pub fn path(&self) -> &Path {
        match self {
            Self::Unfit { path, .. } | Self::NotAFolder { path, .. } | Self::CannotKeep { path, .. } => path,
            Self::File(error) => error.path(),
        }
    }
}

/// Why a folder cannot be put there.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnfitPlace {
    /// It is the root folder.
    Root,
    /// It ends in `..` or is empty.
    NoName,
    /// This process works in it.
    Current,
    /// A file system is mounted there.
    MountPoint,
    /// The file system cannot rename it: a folder of a container's image.
    Unmovable,
    /// Symbolic links that lead back to themselves.
    LinkCircle,
    /// A symbolic link into a folder that does not exist.
    LinkToNowhere {
        /// Where it leads.
        to: PathBuf,
    },
}

impl fmt::Display for UnfitPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => f.write_str("it is the root folder"),
            Self::NoName => f.write_str("it has no name"),
            Self::Current => f.write_str("it is the current folder, or the current folder lies in it"),
            Self::MountPoint => f.write_str("a file system is mounted there"),
            Self::Unmovable => {
                f.write_str("its file system cannot rename it, perhaps it belongs to a container's image")
            }
            Self::LinkCircle => f.write_str("its symbolic links lead back to themselves"),
            Self::LinkToNowhere { to } => {
                write!(f, "it is a symbolic link to `{}`, in a folder that does not exist", to.display())
            }
        }
    }
}
