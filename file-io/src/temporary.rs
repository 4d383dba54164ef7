//! Temporary files: `.NAME.PID-HOST-START.N.tmp` beside the file that they become.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::maker::{self, Maker};
use crate::{FileError, Result};

/// The end of a temporary file's name.
const END: &str = ".tmp";

/// A file that is removed unless it is given its name.
#[derive(Debug)]
pub(crate) struct Temporary {
    path: PathBuf,
    /// Whether there is something under the name.
    exists: bool,
}

impl Temporary {
    /// Makes an empty file, open for reading and writing, beside `target`.
    pub(crate) fn create(target: &Path) -> Result<(Self, File)> {
        loop {
            let path = target.with_file_name(next_name(target));
            match File::options().read(true).write(true).create_new(true).open(&path) {
                Ok(file) => return Ok((Self { path, exists: true }, file)),
                // Another process of this id in a container that counts as this host.
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(creating(target, e)),
            }
        }
    }

    /// A name for a file that is moved aside.
    pub(crate) fn aside(target: &Path) -> Self {
        Self { path: target.with_file_name(next_name(target)), exists: false }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Says whether there is now something to remove.
    pub(crate) fn set_exists(&mut self, exists: bool) {
        self.exists = exists;
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if self.exists {
            // What cannot be removed now is swept by the next writer.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn creating(target: &Path, source: std::io::Error) -> FileError {
    let folder = folder_of(target);
    if source.kind() == std::io::ErrorKind::NotFound && !folder.exists() {
        return FileError::NoFolder { path: target.to_owned(), folder: folder.to_owned() };
    }
    FileError::writing(target, folder, 0, false, source)
}

/// The folder that a path stands in.
pub(crate) fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A name of its own for each process and each call. A long name is cut: with ours around it, it has to stay below 256 bytes.
fn next_name(target: &Path) -> String {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    let cut = name.char_indices().map(|(at, _)| at).take_while(|&at| at <= 160).last().unwrap_or(0);
    let name = if name.len() > 160 { &name[..cut] } else { &name };
    format!(".{name}.{}.{number}{END}", Maker::this())
}

/// Whether this file is a temporary whose maker is dead. Names of releases before HOST and START were in them count for
/// files that `is_ours` only.
pub(crate) fn is_left_behind(path: &Path, is_ours: &dyn Fn(&str) -> bool) -> bool {
    let Some(name) = path.file_name().and_then(OsStr::to_str) else { return false };
    match maker_of(name) {
        Some(maker) => maker.has_left(path),
        None => old_maker_of(name).is_some_and(|(target, pid)| is_ours(target) && maker::is_dead(pid)),
    }
}

fn maker_of(name: &str) -> Option<Maker> {
    let mut parts = name.strip_prefix('.')?.strip_suffix(END)?.rsplitn(3, '.');
    let (number, maker) = (parts.next()?, parts.next()?);
    parts.next()?;
    number.parse::<u64>().ok()?;
    Maker::parse(maker)
}

/// Of an older release's temporary: the file that it was to become, and the process.
fn old_maker_of(name: &str) -> Option<(&str, u32)> {
    if let Some(stem) = name.strip_suffix(".part") {
        let (target, pid) = stem.rsplit_once('.')?;
        return Some((target, pid.parse().ok()?));
    }
    let (stem, number) = name.strip_prefix('.')?.strip_suffix(END)?.rsplit_once('.')?;
    number.parse::<u64>().ok()?;
    let (target, pid) = stem.rsplit_once('.')?;
    Some((target, pid.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_who_made_them() {
        let name = next_name(Path::new("a/dialog.json"));
        assert_eq!(maker_of(&name), Some(Maker::this()), "{name}");
        let long = next_name(Path::new(&"é".repeat(120)));
        assert!(long.len() < 256 && maker_of(&long) == Some(Maker::this()), "{long}");
        for name in ["dialog.json", ".dialog.json.tmp", ".x.12.3.tmp", "x.1-00000000-1.0.tmp", ".x.1-00000000-1.a.tmp"]
        {
            assert_eq!(maker_of(name), None, "{name}");
        }
    }

    #[test]
    fn a_long_name_is_cut_at_160_bytes() {
        for (length, kept) in [(159, 159), (160, 160), (161, 160), (200, 160)] {
            let name = next_name(Path::new(&"x".repeat(length)));
            assert_eq!(name.bytes().filter(|&byte| byte == b'x').count(), kept);
        }
    }

    #[test]
    fn a_name_that_is_taken_is_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("f");
        let name = next_name(&target);
        let (stem, number) = name.strip_suffix(END).unwrap().rsplit_once('.').unwrap();
        let number: u64 = number.parse().unwrap();
        // More than the other tests of this process can use up meanwhile.
        for number in number + 1..=number + 2000 {
            fs::write(dir.path().join(format!("{stem}.{number}{END}")), "taken").unwrap();
        }
        let (new, _) = Temporary::create(&target).unwrap();
        assert_eq!(fs::read(new.path()).unwrap(), b"");
        drop(new);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2000);
    }

    #[test]
    fn only_a_missing_folder_is_called_missing() {
        use std::io::ErrorKind::{NotFound, PermissionDenied};
        let dir = tempfile::tempdir().unwrap();
        let is_missing = |folder: &str, kind: std::io::ErrorKind| {
            matches!(creating(&dir.path().join(folder).join("f"), kind.into()), FileError::NoFolder { .. })
        };
        assert!(is_missing("no", NotFound));
        assert!(!is_missing("no", PermissionDenied));
        assert!(!is_missing(".", NotFound));
    }

    #[test]
    fn names_of_older_releases_say_what_they_were_to_become() {
        assert_eq!(old_maker_of(".dialog.json.12.3.tmp"), Some(("dialog.json", 12)));
        assert_eq!(old_maker_of("model.bin.12.part"), Some(("model.bin", 12)));
        for name in ["model.bin.x.part", ".dialog.json.12.x.tmp", "dialog.json.12.3.tmp", ".12.tmp", "12.part"] {
            assert_eq!(old_maker_of(name), None, "{name}");
        }
    }
}
