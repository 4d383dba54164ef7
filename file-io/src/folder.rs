//! A folder under construction: a hidden one beside its place, which it takes when it is published.
//!
//! *Names*: `.NAME.partial.PID-HOST-START.N`, and `.NAME.exchange.PID-HOST-START.N` from right before an exchange on.
//! *Invariants*: the place is touched by renames alone, and holds the old folder or the new one, whole; what lies under the
//! hidden name, which is the old folder after [`NewFolder::exchange`], is removed in the end. If this process is killed, the
//! next maker of a folder there removes an unfinished folder; the old one only where its owner says that nothing is lost with
//! it ([`sweep_exchanged`]), for others may have written into it until the exchange. That can be asked of a whole folder
//! alone, so the old one takes a `partial` name right before it is removed.
//!
//! *Trap*: only Linux, and not each of its file systems, can exchange two folders. Elsewhere the old one is renamed to
//! `.NAME.replaced.PID-HOST-START.N` first, and put back by the next maker if the process was killed right then.

mod carry;
mod error;
mod hidden_name;
mod place;
mod sweep;

pub use carry::{carry, carry_changes, has_other_name};
pub use error::{FolderError, UnfitPlace};
pub use place::{Content, FolderPlace};
pub use sweep::{sweep_exchanged, sweep_folders, sweep_old_names};

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use crate::FileError;
use crate::new_file::sync_folder;
use crate::temporary::folder_of;
use hidden_name::{Kind, hidden_name};
use sweep::{discard, show};

/// A folder under construction. Dropped, it removes what lies under its hidden name: the unfinished folder, or the old one.
#[derive(Debug)]
pub struct NewFolder {
    path: PathBuf,
    place: FolderPlace,
    /// Folders above that were made for it, the uppermost first; those still empty go with it.
    parents: Vec<PathBuf>,
}

impl NewFolder {
    /// Makes an empty folder beside `place`, and the folders above where they are missing. Leftovers of killed processes
    /// are removed.
    ///
    /// # Errors
    /// The folder above cannot be made or written.
    pub fn create(place: FolderPlace) -> Result<Self, FolderError> {
        let parent = folder_of(place.path());
        let parents = missing_above(place.path());
        let mut new = Self { path: PathBuf::new(), place: place.clone(), parents: Vec::new() };
        for folder in parents {
            match fs::create_dir(&folder) {
                Ok(()) => new.parents.push(folder),
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(FileError::io("make the folder", &folder)(e).into()),
            }
        }
        sweep_folders(parent);
        new.path = make_hidden(place.path())?;
        Ok(new)
    }

    /// Makes an empty folder in `parent` that is never published: what is in it goes with it. `name` says what it is for.
    ///
    /// # Errors
    /// `parent` is missing or cannot be written.
    pub fn temporary(parent: &Path, name: &str) -> Result<Self, FolderError> {
        sweep_folders(parent);
        let place = FolderPlace::unchecked(parent.join(name));
        Ok(Self { path: make_hidden(place.path())?, place, parents: Vec::new() })
    }

    /// Moves a folder of the same file system into its place under the hidden name, to be removed with it; it must be empty
    /// itself. A folder that does not exist is fine.
    ///
    /// # Errors
    /// The system refuses.
    pub fn move_in(&self, folder: &Path) -> Result<(), FolderError> {
        match fs::rename(folder, &self.path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(FileError::io("move aside", folder)(e).into()),
            _ => Ok(()),
        }
    }

    /// Where it is for now.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where it goes.
    pub fn place(&self) -> &FolderPlace {
        &self.place
    }

    /// Brings every file in it, and the folder, onto the disk.
    ///
    /// # Errors
    /// The disk is full or fails.
    pub fn sync(&self) -> Result<(), FolderError> {
        sync_tree(&self.path).map_err(FolderError::from)
    }

    /// Puts it into a place where nothing is, or an empty folder, whose owner and permissions it takes. Says whether it is
    /// there now; if not, something has been put there.
    ///
    /// # Errors
    /// The system refuses.
    pub fn put(&mut self) -> Result<bool, FolderError> {
        self.take_access()?;
        // The system replaces an empty folder and nothing else, in one step.
        match fs::rename(&self.path, self.place.path()) {
            Ok(()) => {
                sync_folder(folder_of(self.place.path()));
                self.parents.clear();
                self.path = PathBuf::new();
                Ok(true)
            }
            Err(e) if is_occupied(&e) => Ok(false),
            Err(e) => Err(self.refused(e)),
        }
    }

    /// Exchanges it with the folder in its place, whose owner and permissions it takes; that one is then at
    /// [`path`](Self::path), which is another path than before. Exchanging again takes it back. Says whether it is done; if
    /// not, the place is empty.
    ///
    /// # Errors
    /// The system refuses; all is as it was.
    pub fn exchange(&mut self) -> Result<bool, FolderError> {
        self.take_access()?;
        // Says to a sweeper that this may be a folder in which others have worked.
        let hidden = hidden_name(self.place.path(), Kind::Exchange);
        fs::rename(&self.path, &hidden).map_err(FileError::io("rename", &self.path))?;
        self.path = hidden;
        let done = match exchange(&self.path, self.place.path()) {
            Err(e) if cannot_exchange(&e) => self.exchange_by_renames(),
            done => done,
        };
        match done {
            Ok(()) => {
                sync_folder(folder_of(self.place.path()));
                self.parents.clear();
                Ok(true)
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(self.refused(e)),
        }
    }

    /// Lets what lies under the hidden name stay for good, beside the place under a name that is seen: `NAME.kept`, or with
    /// a number. Returns its path; the hidden one where the system refuses to rename it.
    pub fn keep(&mut self) -> PathBuf {
        let kept = show(&self.path, self.place.path()).unwrap_or_else(|_| self.path.clone());
        self.path = PathBuf::new();
        kept
    }

    /// Three renames. Killed between the first two, [`sweep_folders`] puts the old folder back.
    fn exchange_by_renames(&self) -> io::Result<()> {
        let place = self.place.path();
        let aside = hidden_name(place, Kind::Replaced);
        fs::rename(place, &aside)?;
        sync_folder(folder_of(place));
        if let Err(e) = fs::rename(&self.path, place) {
            return Err(match fs::rename(&aside, place) {
                Ok(()) => e,
                Err(_) => io::Error::new(e.kind(), format!("{e}; the old folder is now `{}`", aside.display())),
            });
        }
        sync_folder(folder_of(place));
        fs::rename(&aside, &self.path)
    }

    /// A folder that takes another's place stays as open to others as that one was. Only root may give it away.
    fn take_access(&self) -> Result<(), FolderError> {
        let Ok(old) = fs::metadata(self.place.path()) else { return Ok(()) };
        if !old.is_dir() {
            return Ok(());
        }
        carry::take_access(&self.path, &old).map_err(|e| FileError::io("set the permissions of", &self.path)(e).into())
    }

    fn refused(&self, source: io::Error) -> FolderError {
        let path = self.place.asked().to_owned();
        match source.kind() {
            io::ErrorKind::ResourceBusy => FolderError::Unfit { path, why: UnfitPlace::MountPoint },
            io::ErrorKind::CrossesDevices => FolderError::Unfit { path, why: UnfitPlace::Unmovable },
            _ => FileError::io("replace", &path)(source).into(),
        }
    }
}

impl Drop for NewFolder {
    fn drop(&mut self) {
        if !self.path.as_os_str().is_empty() {
            // What cannot be removed now is swept by the next maker.
            let _ = discard(&self.path, self.place.path());
        }
        for folder in self.parents.iter().rev() {
            // Fails where another process has put something in, as it should.
            let _ = fs::remove_dir(folder);
        }
    }
}

/// The folders above that do not exist, the uppermost first.
fn missing_above(path: &Path) -> Vec<PathBuf> {
    let mut missing = Vec::new();
    let mut folder = folder_of(path);
    while !folder.exists() {
        missing.push(folder.to_owned());
        folder = folder_of(folder);
    }
    missing.reverse();
    missing
}

fn make_hidden(place: &Path) -> Result<PathBuf, FolderError> {
    loop {
        let path = hidden_name(place, Kind::Partial);
        match fs::create_dir(&path) {
            Ok(()) => return Ok(path),
            // Another process of this id in a container that counts as this host.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(FileError::io("make a folder in", folder_of(place))(e).into()),
        }
    }
}

#[cfg(target_os = "linux")]
fn exchange(a: &Path, b: &Path) -> io::Result<()> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    Ok(renameat_with(CWD, a, CWD, b, RenameFlags::EXCHANGE)?)
}

#[cfg(not(target_os = "linux"))]
fn exchange(_a: &Path, _b: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// The kernel or the file system knows no exchange: the flag is invalid, or the call is.
fn cannot_exchange(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported)
}

/// Something other than an empty folder is there.
fn is_occupied(error: &io::Error) -> bool {
    use io::ErrorKind::{AlreadyExists, DirectoryNotEmpty, NotADirectory};
    matches!(error.kind(), AlreadyExists | DirectoryNotEmpty | NotADirectory)
}

fn sync_tree(folder: &Path) -> Result<(), FileError> {
    for entry in fs::read_dir(folder).map_err(FileError::io("list", folder))? {
        let entry = entry.map_err(FileError::io("list", folder))?;
        let (path, kind) = (entry.path(), entry.file_type().map_err(FileError::io("open", &entry.path()))?);
        if kind.is_dir() {
            sync_tree(&path)?;
        } else if kind.is_file() {
            File::open(&path).and_then(|file| file.sync_all()).map_err(FileError::io("sync", &path))?;
        }
    }
    sync_folder(folder);
    Ok(())
}

#[cfg(all(test, unix))]
mod detail_tests;
#[cfg(all(test, unix))]
mod tests;
