//! Removes the hidden folders of killed processes, or puts back what they had moved aside.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::hidden_name::{Kind, hidden_name, parse};
use crate::maker;

/// Sweeps a folder: hidden folders of this crate in it whose makers are dead are removed, or put back where their process
/// was killed between moving the old folder aside and putting the new one there. Returns how many. Those of processes that
/// still run, old folders whose place is taken ([`sweep_exchanged`]), and everything else, stay.
pub fn sweep_folders(parent: &Path) -> usize {
    let mut n_swept = 0;
    for_each_folder(parent, |path, name| {
        let Some((kind, place, maker)) = parse(name) else { return };
        if !maker.has_left(path) {
            return;
        }
        let place = path.with_file_name(place);
        let swept = match kind {
            Kind::Partial => remove_tree(path),
            Kind::Replaced if fs::symlink_metadata(&place).is_err() => fs::rename(path, &place),
            Kind::Replaced | Kind::Exchange => return,
        };
        n_swept += usize::from(swept.is_ok());
    });
    n_swept
}

/// Sweeps what processes left that were killed while they replaced a folder in `parent`: removed where `is_expendable`, asked
/// with its path, says that nothing is lost with it; else given a name that is seen, `NAME.kept`. Returns those.
pub fn sweep_exchanged(parent: &Path, is_expendable: impl Fn(&Path) -> bool) -> Vec<PathBuf> {
    let mut kept = Vec::new();
    for_each_folder(parent, |path, name| {
        let Some((kind, place, maker)) = parse(name) else { return };
        let place = path.with_file_name(place);
        let is_old = kind == Kind::Exchange || kind == Kind::Replaced && fs::symlink_metadata(&place).is_ok();
        if !is_old || !maker.has_left(path) {
            return;
        }
        if is_expendable(path) {
            // What cannot be removed now is swept by the next one.
            let _ = discard(path, &place);
        } else if let Ok(shown) = show(path, &place) {
            kept.push(shown);
        }
    });
    kept
}

/// Gives a hidden folder a name that is seen beside `place`: `NAME.kept`, or with the first number from 2 that is free.
pub(super) fn show(hidden: &Path, place: &Path) -> io::Result<PathBuf> {
    let numbered = |n: u32| {
        let mut name = Kind::Exchange.cut(place.file_name().unwrap_or_default()).into_owned();
        name.push(if n == 1 { ".kept".to_owned() } else { format!(".kept.{n}") });
        place.with_file_name(name)
    };
    let is_free = |path: &PathBuf| fs::symlink_metadata(path).is_err();
    let shown = (1..).map(numbered).find(is_free).expect("a folder has fewer entries than there are numbers");
    fs::rename(hidden, &shown).map(|()| shown)
}

/// Removes folders that earlier releases left, `.NAME.partial-PID` of a dead process, for the names that `is_ours` accepts.
pub fn sweep_old_names(parent: &Path, is_ours: impl Fn(&str) -> bool) -> usize {
    let mut n_swept = 0;
    for_each_folder(parent, |path, name| {
        let parts = name.to_str().and_then(|name| name.strip_prefix('.')?.rsplit_once(".partial-"));
        let Some((name, pid)) = parts else { return };
        let is_dead = pid.parse().is_ok_and(maker::is_dead);
        n_swept += usize::from(is_dead && is_ours(name) && remove_tree(path).is_ok());
    });
    n_swept
}

/// A folder that cannot be listed has nothing to sweep.
fn for_each_folder(parent: &Path, mut act: impl FnMut(&Path, &OsStr)) {
    let Ok(entries) = fs::read_dir(parent) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        if name.as_encoded_bytes().starts_with(b".") && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            act(&entry.path(), &name);
        }
    }
}

/// Removes a hidden folder with which nothing is lost. It takes the name of an unfinished one first: if this process is
/// killed halfway, the next maker removes what is left. Under its old name, that would be kept as somebody's work.
pub(super) fn discard(hidden: &Path, place: &Path) -> io::Result<()> {
    let kind = hidden.file_name().and_then(parse).map(|(kind, ..)| kind);
    let partial = hidden_name(place, Kind::Partial);
    match kind {
        Some(Kind::Exchange | Kind::Replaced) if fs::rename(hidden, &partial).is_ok() => remove_tree(&partial),
        _ => remove_tree(hidden),
    }
}

/// Removes a folder and all in it. A folder without write permission in it is given one first.
pub(super) fn remove_tree(path: &Path) -> io::Result<()> {
    // Another process may sweep the same folder: what is gone is gone.
    let gone = |done: io::Result<()>| match done {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    };
    let Err(error) = gone(fs::remove_dir_all(path)) else { return Ok(()) };
    match error.kind() {
        io::ErrorKind::PermissionDenied => open_up(path),
        // Another process that works on the same folder, or a file that was made meanwhile.
        io::ErrorKind::DirectoryNotEmpty => {}
        _ => return Err(error),
    }
    gone(fs::remove_dir_all(path))
}

/// Lets the owner change what is in these folders.
pub(super) fn open_up(folder: &Path) {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let _ = fs::set_permissions(folder, fs::Permissions::from_mode(0o700));
    }
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            open_up(&entry.path());
        }
    }
}
