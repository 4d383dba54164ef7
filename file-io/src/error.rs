//! Why a file was not written.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::maker::Maker;
use crate::space;
use crate::temporary::folder_of;

/// The result of a file operation.
pub type Result<T, E = FileError> = std::result::Result<T, E>;

/// Why a file was not written. A file that stood in its place is as it was, unless the path names a device or a pipe.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The system refuses.
    #[error("cannot {operation} `{}`", path.display())]
    Io {
        /// What was being done.
        operation: &'static str,
        /// To which file or folder.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// The disk is full, or a limit is reached.
    #[error("cannot write `{}`: {shortage}", path.display())]
    NoSpace {
        /// The file.
        path: PathBuf,
        /// How much is missing.
        shortage: Box<Shortage>,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// The folder that the file should stand in is missing.
    #[error("cannot write `{}`: there is no folder `{}`", path.display(), folder.display())]
    NoFolder {
        /// The file.
        path: PathBuf,
        /// The folder.
        folder: PathBuf,
    },
    /// The path cannot be written as what it is.
    #[error("cannot write `{}`: expected {expected}, found {found}", path.display())]
    Unfit {
        /// The path.
        path: PathBuf,
        /// What could be written.
        expected: &'static str,
        /// What is there.
        found: &'static str,
    },
    /// A named pipe that no program reads.
    #[error("cannot write `{}`: no program reads from this pipe", path.display())]
    NoReader {
        /// The pipe.
        path: PathBuf,
    },
}

/// Why there is no room for a file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Shortage {
    /// The file system is full, or the user's share of it.
    Disk {
        /// The folder whose file system it is.
        folder: PathBuf,
        /// What the file needs; at least this much where it was still growing.
        needed: u64,
        /// Whether `needed` is all of it.
        exact: bool,
        /// What is free, if the system says.
        free: Option<u64>,
    },
    /// The process's limit for the length of a file (`ulimit -f`).
    Limit {
        /// What the file needs; at least this much where it was still growing.
        needed: u64,
        /// Whether `needed` is all of it.
        exact: bool,
        /// The limit, if there is one; else the file system's own bound was hit.
        limit: Option<u64>,
    },
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Disk { needed, exact, .. } | Self::Limit { needed, exact, .. }) = self;
        let more = if *exact { "" } else { "more than " };
        write!(f, "it needs {more}{}", Bytes(*needed))?;
        match self {
            Self::Disk { folder, free: Some(free), .. } if free >= needed => write!(
                f,
                " in `{}`, {} are free, but not for this user or no further file can be made",
                folder.display(),
                Bytes(*free)
            ),
            Self::Disk { folder, free: Some(free), .. } => {
                write!(f, " in `{}`, {} are free", folder.display(), Bytes(*free))
            }
            Self::Disk { folder, free: None, .. } => write!(f, ", `{}` is full", folder.display()),
            Self::Limit { limit: Some(limit), .. } => {
                write!(f, ", the limit for a file is {} (`ulimit -f`)", Bytes(*limit))
            }
            Self::Limit { limit: None, .. } => write!(f, ", longer than a file may be here"),
        }
    }
}

impl FileError {
    /// The constructor of an [`Io`](Self::Io), for `map_err`.
    pub fn io(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { operation, path: meant(path), source }
    }

    /// The error of a file that grew to `needed` bytes in `folder`; with the figures if room is what lacks.
    pub(crate) fn writing(path: &Path, folder: &Path, needed: u64, exact: bool, source: io::Error) -> Self {
        let (path, folder) = (meant(path), visible(folder));
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                let free = space::free_bytes(folder);
                // What a growing file has taken so far counts: it is removed again.
                let free = if exact { free } else { free.map(|free| free + needed) };
                Self::NoSpace {
                    path,
                    shortage: Box::new(Shortage::Disk { folder: folder.to_owned(), needed, exact, free }),
                    source,
                }
            }
            io::ErrorKind::FileTooLarge => {
                let shortage = Box::new(Shortage::Limit { needed, exact, limit: space::file_limit() });
                Self::NoSpace { path, shortage, source }
            }
            _ => Self::Io { operation: "write", path, source },
        }
    }

    /// The path that the error is about.
    pub fn path(&self) -> &Path {
        match self {
            Self::Io { path, .. }
            | Self::NoSpace { path, .. }
            | Self::NoFolder { path, .. }
            | Self::Unfit { path, .. }
            | Self::NoReader { path } => path,
        }
    }
}

/// The folder itself, or the one around it that is no temporary folder: the user knows that one.
fn visible(folder: &Path) -> &Path {
    let is_temporary = |part: &Path| part.file_name().and_then(meant_name).is_some();
    let outermost = folder.ancestors().filter(|part| is_temporary(part)).last();
    outermost.map_or(folder, folder_of)
}

/// The path by the names that temporary files and folders will have in the end: the user gave those.
fn meant(path: &Path) -> PathBuf {
    path.iter().map(|part| meant_name(part).unwrap_or_else(|| part.to_owned())).collect()
}

/// What a temporary file or folder will be called; `None` for any other name.
fn meant_name(name: &OsStr) -> Option<OsString> {
    let name = name.to_str()?.strip_prefix('.')?;
    let mut at = 0;
    for part in name.split('.') {
        if at > 0 && Maker::parse(part).is_some() {
            let name = &name[..at - 1];
            return Some(name.strip_suffix(".partial").unwrap_or(name).into());
        }
        at += part.len() + 1;
    }
    None
}

/// A number of bytes in decimal units.
struct Bytes(u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            n @ 0..1_000 => write!(f, "{n} bytes"),
            n @ 1_000..1_000_000 => write!(f, "{:.1} kB", n as f64 / 1e3),
            n @ 1_000_000..1_000_000_000 => write!(f, "{:.1} MB", n as f64 / 1e6),
            n => write!(f, "{:.1} GB", n as f64 / 1e9),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_temporary_folder_is_not_named() {
        let staging = format!("t/.b.{}.partial/x/.y.{}.partial", Maker::this(), Maker::this());
        assert_eq!(visible(Path::new(&staging)), Path::new("t"));
        assert_eq!(visible(Path::new(&staging[2..])), Path::new("."));
        assert_eq!(visible(Path::new("t/.hidden/b")), Path::new("t/.hidden/b"));
    }

    #[test]
    fn a_file_is_named_as_it_will_be_called() {
        let this = Maker::this();
        let cases = [
            (format!("t/.b.partial.{this}.0/model.bin"), "t/b/model.bin"),
            (format!("/t/.my.b.partial.{this}.12/.x.json.{this}.3.tmp"), "/t/my.b/x.json"),
            (format!("t/.{this}"), &*format!("t/.{this}")),
            ("t/.hidden/b.partial".into(), "t/.hidden/b.partial"),
            (".".into(), "."),
        ];
        for (path, expected) in cases {
            assert_eq!(meant(Path::new(&path)), Path::new(expected));
            let error = FileError::io("write", Path::new(&path))(io::ErrorKind::PermissionDenied.into());
            assert_eq!(error.to_string(), format!("cannot write `{expected}`"));
        }
    }

    /// What a growing file has taken is free again once it is removed.
    #[test]
    fn what_a_growing_file_has_taken_counts_as_free() {
        let here = Path::new(".");
        let free = |exact| {
            let full = io::ErrorKind::StorageFull.into();
            match FileError::writing(&here.join("f"), here, 1 << 60, exact, full) {
                FileError::NoSpace { shortage, .. } => match *shortage {
                    Shortage::Disk { free, .. } => free.unwrap(),
                    Shortage::Limit { .. } => panic!("no limit"),
                },
                error => panic!("{error}"),
            }
        };
        assert!(free(false) > 1 << 60 && free(false) < 1 << 61);
        assert!(free(true) < 1 << 60);
    }

    #[test]
    fn a_shortage_says_what_is_needed_and_what_is_free() {
        let folder = PathBuf::from("t");
        let disk = |needed, exact, free| Shortage::Disk { folder: folder.clone(), needed, exact, free };
        for (shortage, text) in [
            (disk(5_600_000, true, Some(2_000_000)), "it needs 5.6 MB in `t`, 2.0 MB are free"),
            (disk(999, false, Some(0)), "it needs more than 999 bytes in `t`, 0 bytes are free"),
            (disk(1_500, true, None), "it needs 1.5 kB, `t` is full"),
            (
                disk(10, true, Some(5_000)),
                "it needs 10 bytes in `t`, 5.0 kB are free, but not for this user or no further file can be made",
            ),
            (
                Shortage::Limit { needed: 7_000_000_000, exact: true, limit: Some(1_024_000) },
                "it needs 7.0 GB, the limit for a file is 1.0 MB (`ulimit -f`)",
            ),
        ] {
            assert_eq!(shortage.to_string(), text);
        }
    }
}
