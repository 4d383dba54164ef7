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
