//! Carries entries of an old folder over into a new one that is to take its place, without moving them: files get a
//! second name (a hard link), folders are made again around them. So the entry is in both until the old folder is removed.
//!
//! *Trap*: a file system without hard links gets copies. What is mounted within the old folder cannot be carried.

use std::fs::{self, File, FileTimes, Metadata};
use std::io;
use std::path::Path;

use super::error::FolderError;
use crate::FileError;
use crate::new_file::sync_folder;

/// Gives an entry, a file or a folder with all in it, a second name `to`, whose parent exists.
///
/// # Errors
/// Something in it cannot be read or is of another file system; what was made so far stays.
pub fn carry(from: &Path, to: &Path) -> Result<(), FolderError> {
    let meta = fs::symlink_metadata(from).map_err(FileError::io("open", from))?;
    if !meta.is_dir() {
        return link(from, to, &meta);
    }
    fs::create_dir(to).map_err(FileError::io("make the folder", to))?;
    for entry in fs::read_dir(from).map_err(FileError::io("list", from))? {
        let name = entry.map_err(FileError::io("list", from))?.file_name();
        carry(&from.join(&name), &to.join(&name))?;
    }
    // Last, since it may forbid to write into it.
    take_access(to, &meta).map_err(FileError::io("set the permissions of", to))?;
    take_time(to, &meta);
    sync_folder(to);
    Ok(())
}

/// After the exchange: moves what has come into `old` or changed there since it was carried to `new`. Nothing is moved
/// over a newer file.
///
/// # Errors
/// The system refuses; the rest stays in `old`.
pub fn carry_changes(old: &Path, new: &Path) -> Result<(), FolderError> {
    let Ok(was) = fs::symlink_metadata(old) else { return Ok(()) };
    let is = fs::symlink_metadata(new).ok();
    // Of a file that is in both, the times are the same.
    let newer = |is: &Metadata| was.modified().ok() > is.modified().ok();
    match is {
        Some(is) if was.is_dir() && is.is_dir() => {
            for entry in fs::read_dir(old).map_err(FileError::io("list", old))? {
                let name = entry.map_err(FileError::io("list", old))?.file_name();
                carry_changes(&old.join(&name), &new.join(&name))?;
            }
            Ok(())
        }
        Some(is) if was.is_dir() || is.is_dir() || !newer(&is) => Ok(()),
        _ => fs::rename(old, new).map_err(|e| FileError::io("keep", new)(e).into()),
    }
}

/// Whether a file, or each file in a folder, is also found under another name, as after [`carry`]. Removing this one then
/// loses nothing. False where that is not known.
pub fn has_other_name(path: &Path) -> bool {
    let Ok(meta) = fs::symlink_metadata(path) else { return false };
    if !meta.is_dir() {
        return n_names(&meta) > 1;
    }
    let Ok(mut entries) = fs::read_dir(path) else { return false };
    entries.all(|entry| entry.is_ok_and(|entry| has_other_name(&entry.path())))
}

#[cfg(unix)]
fn n_names(meta: &Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::nlink(meta)
}

#[cfg(not(unix))]
fn n_names(_meta: &Metadata) -> u64 {
    1
}

fn link(from: &Path, to: &Path, meta: &Metadata) -> Result<(), FolderError> {
    match fs::hard_link(from, to) {
        Ok(()) => Ok(()),
        Err(e) if e.kind() == io::ErrorKind::CrossesDevices => {
            let why = "it is of another file system, which is mounted there";
            Err(FolderError::CannotKeep { path: from.to_owned(), why })
        }
        Err(e) if knows_no_links(&e) => copy(from, to, meta),
        Err(e) => Err(FileError::io("keep", from)(e).into()),
    }
}

/// The file system has no hard links, or not for this file: of another user, or with as many as it can have.
pub(super) fn knows_no_links(error: &io::Error) -> bool {
    use io::ErrorKind::{PermissionDenied, TooManyLinks, Unsupported};
    matches!(error.kind(), PermissionDenied | TooManyLinks | Unsupported)
}

pub(super) fn copy(from: &Path, to: &Path, meta: &Metadata) -> Result<(), FolderError> {
    if meta.is_symlink() {
        return copy_symlink(from, to);
    }
    if !meta.is_file() {
        let why = "it is neither a file nor a folder, and this file system cannot give it a second name";
        return Err(FolderError::CannotKeep { path: from.to_owned(), why });
    }
    fs::copy(from, to).map_err(FileError::io("copy", from))?;
    let _ = take_access(to, meta);
    take_time(to, meta);
    File::open(to).and_then(|file| file.sync_all()).map_err(|e| FileError::io("sync", to)(e).into())
}

#[cfg(unix)]
fn copy_symlink(from: &Path, to: &Path) -> Result<(), FolderError> {
    let copied = fs::read_link(from).and_then(|target| std::os::unix::fs::symlink(target, to));
    copied.map_err(|e| FileError::io("copy", from)(e).into())
}

#[cfg(not(unix))]
fn copy_symlink(from: &Path, _to: &Path) -> Result<(), FolderError> {
    let why = "it is a symbolic link, and this file system cannot give it a second name";
    Err(FolderError::CannotKeep { path: from.to_owned(), why })
}

/// Gives `path` the owner and permissions of another. Only root may give it away: where that fails the maker owns it.
pub(super) fn take_access(path: &Path, other: &Metadata) -> io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::{MetadataExt, chown};
        let own = fs::metadata(path)?;
        if (own.uid(), own.gid()) != (other.uid(), other.gid()) {
            let _ = chown(path, Some(other.uid()), Some(other.gid()));
        }
    }
    fs::set_permissions(path, other.permissions())
}

/// The time of the last change: worth keeping, not worth failing for.
fn take_time(path: &Path, other: &Metadata) {
    if let (Ok(file), Ok(time)) = (File::open(path), other.modified()) {
        let _ = file.set_times(FileTimes::new().set_modified(time));
    }
}
