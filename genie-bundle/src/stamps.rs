//! Stamps: what is known of a file's content since it was last read in full, for as long as the file does not change.
//!
//! A stamp is a small file in the cache folder, `weights-1/DEVICE-INODE.json`; other versions of this format have folders of
//! their own. *Invariant*: it is used only for a file with the same device, inode, length, time of content and time of
//! status (which programs cannot set), all to the nanosecond. A stamp that is missing, damaged or cannot be written only
//! costs time.
//!
//! *Trap*: a change within the clock tick of the one before has the same time. So a file that was changed just before it
//! was read gets no stamp ([`FileIdentity::is_settled`]).

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// The folder of this format's stamps, in the cache folder.
const FOLDER: &str = "weights-1";
/// Most stamps that are kept; the oldest go first.
const MOST: usize = 256;
/// Clock tick of file systems that count nanoseconds, with room, and of those that do not.
const TICK: Duration = Duration::from_millis(50);
const COARSE_TICK: Duration = Duration::from_secs(2);

/// A file as it stands on its disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct FileIdentity {
    device: u64,
    inode: u64,
    bytes: u64,
    /// Seconds and nanoseconds since 1970 of the last change of content.
    modified: (i64, i64),
    /// The same of content, name or rights.
    changed: (i64, i64),
}

impl FileIdentity {
    /// Of an open file; `None` where the system does not tell.
    #[cfg(unix)]
    pub fn of(file: &File) -> Option<Self> {
        use std::os::unix::fs::MetadataExt;
        let meta = file.metadata().ok().filter(fs::Metadata::is_file)?;
        Some(Self {
            device: meta.dev(),
            inode: meta.ino(),
            bytes: meta.size(),
            modified: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
        })
    }

    /// Of an open file; `None` where the system does not tell.
    #[cfg(not(unix))]
    pub fn of(_: &File) -> Option<Self> {
        None
    }

    /// Whether a change after `now` is sure to have a later time than the last one.
    pub fn is_settled(&self, now: SystemTime) -> bool {
        let (seconds, nanos) = self.changed.max(self.modified);
        let tick = if self.changed.1 == 0 && self.modified.1 == 0 { COARSE_TICK } else { TICK };
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let (Ok(seconds), Ok(nanos)) = (u64::try_from(seconds), u32::try_from(nanos)) else { return true };
        Duration::new(seconds, nanos) + tick < now
    }
}

/// What is known of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Known {
    /// The SHA-256 of all of it, lower-case hexadecimal.
    pub sha256: Option<String>,
    /// The checksums in it were compared with its content.
    #[serde(default)]
    pub checksums: bool,
}

#[derive(Serialize, Deserialize)]
struct Stamp {
    file: FileIdentity,
    known: Known,
}

/// A folder of stamps, which need not exist.
#[derive(Clone, Debug)]
pub struct Stamps(PathBuf);

impl Stamps {
    /// Those in a cache folder.
    pub fn in_folder(cache: &Path) -> Self {
        Self(cache.join(FOLDER))
    }

    /// Those in the user's cache folder, if there is one.
    pub fn of_user() -> Option<Self> {
        crate::cache_folder().map(|cache| Self::in_folder(&cache))
    }

    /// What is known of a file.
    pub fn known(&self, file: &FileIdentity) -> Known {
        let stamp = fs::read(self.path(file)).ok().and_then(|bytes| serde_json::from_slice::<Stamp>(&bytes).ok());
        stamp.filter(|stamp| stamp.file == *file).map_or_else(Known::default, |stamp| stamp.known)
    }

    /// Adds to what is known of a file; returns whether it could be written.
    pub fn learn(&self, file: &FileIdentity, more: Known) -> bool {
        let old = self.known(file);
        let known = Known { sha256: more.sha256.or(old.sha256), checksums: more.checksums || old.checksums };
        let stamp = Stamp { file: file.clone(), known };
        let bytes = serde_json::to_vec(&stamp).expect("plain data becomes JSON");
        let written = fs::create_dir_all(&self.0).is_ok() && file_io::write_bytes(&self.path(file), &bytes).is_ok();
        if written {
            self.drop_oldest();
        }
        written
    }

    fn path(&self, file: &FileIdentity) -> PathBuf {
        self.0.join(format!("{:x}-{:x}.json", file.device, file.inode))
    }

    /// Stamps of files that are gone are never asked for again: the oldest go.
    fn drop_oldest(&self) {
        let Ok(entries) = fs::read_dir(&self.0) else { return };
        let stamps = entries.flatten().filter(|e| e.path().extension().is_some_and(|end| end == "json"));
        let mut stamps: Vec<_> = stamps.filter_map(|e| Some((e.metadata().ok()?.modified().ok()?, e.path()))).collect();
        stamps.sort();
        let n_over = stamps.len().saturating_sub(MOST);
        for (_, path) in &stamps[..n_over] {
            let _ = fs::remove_file(path); // another process may have been first
        }
    }
}

#[cfg(unix)]
#[cfg(test)]
mod tests {
    use super::*;

    fn identity(path: &Path) -> FileIdentity {
        FileIdentity::of(&File::open(path).unwrap()).unwrap()
    }

    #[test]
    fn a_stamp_holds_until_the_file_changes_in_any_way() {
        let dir = tempfile::tempdir().unwrap();
        let (path, stamps) = (dir.path().join("f"), Stamps::in_folder(&dir.path().join("cache")));
        fs::write(&path, "content").unwrap();
        let first = identity(&path);
        assert_eq!(stamps.known(&first), Known::default());
        assert!(stamps.learn(&first, Known { sha256: Some("ab".into()), checksums: false }));
        assert!(stamps.learn(&first, Known { sha256: None, checksums: true }));
        assert_eq!(stamps.known(&first), Known { sha256: Some("ab".into()), checksums: true });

        // A flip with the time of content put back: the time of status tells.
        let modified = fs::metadata(&path).unwrap().modified().unwrap();
        std::thread::sleep(Duration::from_millis(20));
        fs::write(&path, "Content").unwrap();
        File::options().append(true).open(&path).unwrap().set_modified(modified).unwrap();
        let second = identity(&path);
        assert_eq!((second.modified, second.bytes, second.inode), (first.modified, first.bytes, first.inode));
        assert_eq!(stamps.known(&second), Known::default());
        // A copy that keeps the times is another file.
        let copy = dir.path().join("copy");
        fs::copy(&path, &copy).unwrap();
        File::options().append(true).open(&copy).unwrap().set_modified(modified).unwrap();
        assert_eq!(stamps.known(&identity(&copy)), Known::default());
    }

    #[test]
    fn a_file_that_has_just_changed_is_not_settled() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        fs::write(&path, "x").unwrap();
        let file = identity(&path);
        let at = UNIX_EPOCH + Duration::new(file.changed.0 as u64, file.changed.1 as u32);
        assert!(!file.is_settled(at));
        assert!(!file.is_settled(at - Duration::from_secs(9)), "a time ahead of the clock");
        assert!(file.is_settled(at + Duration::from_millis(60)));
        let coarse = FileIdentity { changed: (file.changed.0, 0), modified: (file.changed.0, 0), ..file };
        assert!(!coarse.is_settled(at + Duration::from_millis(60)));
        assert!(coarse.is_settled(at + Duration::from_secs(4)));
    }

    #[test]
    fn the_folder_is_bounded_and_failures_only_cost_time() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        fs::write(&path, "x").unwrap();
        let (file, stamps) = (identity(&path), Stamps::in_folder(dir.path()));
        for inode in 0..(MOST as u64 + 9) {
            assert!(stamps.learn(&FileIdentity { inode, ..file.clone() }, Known { sha256: None, checksums: true }));
        }
        assert_eq!(fs::read_dir(dir.path().join(FOLDER)).unwrap().count(), MOST);
        assert!(stamps.learn(&file, Known { sha256: None, checksums: true }));
        fs::write(stamps.path(&file), "{\"file\": 3").unwrap();
        assert_eq!(stamps.known(&file), Known::default(), "a damaged stamp is none");
        let nowhere = Stamps::in_folder(&path.join("below a file"));
        assert!(!nowhere.learn(&file, Known::default()) && nowhere.known(&file) == Known::default());
    }
}
