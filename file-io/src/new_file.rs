//! A file under construction: a temporary beside its place, which it takes when it is published.

use std::fs::{self, File, Metadata};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::sweep::sweep_names;
use crate::target::Target;
use crate::temporary::{Temporary, folder_of};
use crate::{FileError, Result};

/// A file under construction, removed unless it is [published](Self::publish). Leftovers of killed processes in its folder
/// are removed when it is made.
#[derive(Debug)]
pub struct NewFile {
    file: File,
    temporary: Temporary,
    /// Where it goes, links resolved.
    target: PathBuf,
    /// As the user wrote it, for errors.
    asked: PathBuf,
    n_written: u64,
}

impl NewFile {
    /// Begins a file that will stand at `path`.
    ///
    /// # Errors
    /// The folder is missing or refuses; `path` names a folder, a device or a pipe.
    pub fn create(path: &Path) -> Result<Self> {
        match Target::of(path)? {
            Target::Regular { path: target, old } => Self::replacing(path, target, old.as_ref()),
            Target::InPlace(_) => Err(Self::not_regular(path)),
        }
    }

    pub(crate) fn not_regular(path: &Path) -> FileError {
        let (expected, found) = ("a regular file or nothing", "a device or pipe");
        FileError::Unfit { path: path.to_owned(), expected, found }
    }

    pub(crate) fn replacing(asked: &Path, target: PathBuf, old: Option<&Metadata>) -> Result<Self> {
        sweep_names(folder_of(&target), &|name| target.file_name().is_some_and(|own| own == name));
        let (temporary, file) = Temporary::create(&target)?;
        if let Some(old) = old {
            keep_access(&file, old);
        }
        Ok(Self { file, temporary, target, asked: asked.to_owned(), n_written: 0 })
    }

    /// The file, open for reading and writing.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Gives the empty file this length and a place on the disk for every byte: a map of it is then safe to fill.
    ///
    /// # Errors
    /// [`FileError::NoSpace`] with what is needed and what is free.
    pub fn reserve(&mut self, bytes: u64) -> Result<()> {
        let reserved = crate::space::reserve(&mut self.file, bytes);
        reserved.map_err(|source| {
            // A part that was written before the disk was full would be missing from what is free.
            let _ = self.file.set_len(0);
            FileError::writing(&self.asked, folder_of(&self.target), bytes, true, source)
        })
    }

    /// Cuts or lengthens the file.
    ///
    /// # Errors
    /// The system refuses.
    pub fn set_len(&self, bytes: u64) -> Result<()> {
        self.file.set_len(bytes).map_err(|e| self.failed(e))
    }

    /// Puts the file into its place, on the disk as well.
    ///
    /// # Errors
    /// The disk is full or fails; a file that was there before stays.
    pub fn publish(self) -> Result<()> {
        let mut ready = self.seal()?;
        ready.put()?;
        sync_folder(folder_of(&ready.target));
        Ok(())
    }

    /// Brings all bytes onto the disk; what is left is to rename.
    pub(crate) fn seal(self) -> Result<Sealed> {
        self.file.sync_all().map_err(|e| self.failed(e))?;
        Ok(Sealed { temporary: self.temporary, target: self.target, asked: self.asked })
    }

    /// The error of a write that failed.
    pub(crate) fn failed(&self, source: io::Error) -> FileError {
        FileError::writing(&self.asked, folder_of(&self.target), self.n_written, false, source)
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.file.write(bytes)?;
        self.n_written += n as u64;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// A whole file on the disk that still has its passing name.
#[derive(Debug)]
pub(crate) struct Sealed {
    pub(crate) temporary: Temporary,
    pub(crate) target: PathBuf,
    asked: PathBuf,
}

impl Sealed {
    /// Gives the file its name.
    pub(crate) fn put(&mut self) -> Result<()> {
        fs::rename(self.temporary.path(), &self.target).map_err(FileError::io("replace", &self.asked))?;
        self.temporary.set_exists(false);
        Ok(())
    }
}

/// The rename itself must survive a power cut. Not every system lets a folder be synced; the file itself is.
pub(crate) fn sync_folder(folder: &Path) {
    let _ = File::open(folder).and_then(|folder| folder.sync_all());
}

/// A file that is replaced keeps who may read it. Only root may give a file away: where that fails the maker owns it.
fn keep_access(file: &File, old: &Metadata) {
    #[cfg(unix)]
    {
        use std::os::unix::fs::{MetadataExt, fchown};
        let new = file.metadata();
        if new.is_ok_and(|new| (new.uid(), new.gid()) != (old.uid(), old.gid())) {
            let _ = fchown(file, Some(old.uid()), Some(old.gid()));
        }
    }
    let _ = file.set_permissions(old.permissions());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Shortage;

    #[test]
    fn a_file_has_the_length_that_was_set_or_reserved() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let mut new = NewFile::create(&path).unwrap();
        new.reserve(5000).unwrap();
        assert_eq!(new.file().metadata().unwrap().len(), 5000);
        new.set_len(7).unwrap();
        new.publish().unwrap();
        assert_eq!(fs::read(&path).unwrap(), [0; 7]);
    }

    #[test]
    fn a_full_disk_is_reported_with_what_was_written_so_far() {
        let dir = tempfile::tempdir().unwrap();
        let mut new = NewFile::create(&dir.path().join("f")).unwrap();
        new.write_all(b"abc").unwrap();
        new.write_all(b"de").unwrap();
        for kind in [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded] {
            let FileError::NoSpace { shortage, .. } = new.failed(kind.into()) else { panic!("{kind}") };
            assert!(matches!(*shortage, Shortage::Disk { needed: 5, exact: false, .. }));
        }
        let FileError::NoSpace { shortage, .. } = new.failed(io::ErrorKind::FileTooLarge.into()) else { panic!() };
        assert!(matches!(*shortage, Shortage::Limit { needed: 5, exact: false, .. }));
        assert!(matches!(new.failed(io::ErrorKind::Interrupted.into()), FileError::Io { operation: "write", .. }));
    }

    #[test]
    fn what_earlier_releases_left_of_this_file_goes_and_of_others_stays() {
        let dir = tempfile::tempdir().unwrap();
        let left = |name: &str| dir.path().join(format!(".{name}.2147483632.0.tmp"));
        for name in ["f", "g"] {
            fs::write(left(name), "x").unwrap();
        }
        drop(NewFile::create(&dir.path().join("f")).unwrap());
        assert_eq!([left("f").exists(), left("g").exists()], [false, true]);
    }

    #[cfg(unix)]
    #[test]
    fn the_owner_of_a_replaced_file_stays() {
        use std::os::unix::fs::{MetadataExt, chown};
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        for (user, group) in [(Some(4001), None), (None, Some(4002))] {
            fs::write(&path, "old").unwrap();
            if chown(&path, user, group).is_err() {
                return eprintln!("the_owner_of_a_replaced_file_stays: skipped: only root may give files away");
            }
            let old = path.metadata().unwrap();
            crate::write_bytes(&path, b"new").unwrap();
            let new = path.metadata().unwrap();
            assert_ne!(new.ino(), old.ino());
            assert_eq!((new.uid(), new.gid()), (old.uid(), old.gid()));
            fs::remove_file(&path).unwrap();
        }
    }
}
