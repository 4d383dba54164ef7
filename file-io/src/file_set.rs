//! Several files that belong together: the old ones stay until all new ones are on the disk.
//!
//! *Order of publishing*: the old mark is moved aside, every file is put into its place, files that no longer belong are
//! moved aside, the new mark comes last. A reader that finds no mark knows that it looks at two sets; a process killed in
//! between leaves the set without its mark. *An error in between* puts everything back. *Two processes* that publish into
//! one folder take turns.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::new_file::{NewFile, Sealed, sync_folder};
use crate::target::Target;
use crate::temporary::{Temporary, folder_of};
use crate::write::{fill, put};
use crate::{FileError, Result};

/// Files of one folder that are replaced together. Dropped without [`publish`](Self::publish), it leaves the folder as it was.
#[derive(Debug)]
pub struct FileSet {
    folder: PathBuf,
    /// With their names in the folder.
    files: Vec<(String, Sealed)>,
    /// The name of the file that shows that the set is whole.
    mark: Option<String>,
    obsolete: Vec<PathBuf>,
}

impl FileSet {
    /// Begins a set in this folder.
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), files: Vec::new(), mark: None, obsolete: Vec::new() }
    }

    /// Writes a file of the set under a temporary name.
    ///
    /// # Errors
    /// [`FileError`].
    pub fn add(&mut self, name: &str, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
        let mut file = NewFile::create(&self.folder.join(name))?;
        fill(&mut file, write).map_err(|e| file.failed(e))?;
        self.keep(name, file)
    }

    /// Writes these bytes as a file of the set under a temporary name, with their room reserved first.
    ///
    /// # Errors
    /// [`FileError`].
    pub fn add_bytes(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        let mut file = NewFile::create(&self.folder.join(name))?;
        put(&mut file, bytes)?;
        self.keep(name, file)
    }

    fn keep(&mut self, name: &str, file: NewFile) -> Result<()> {
        self.files.push((name.to_owned(), file.seal()?));
        Ok(())
    }

    /// Names a file that goes when the set is published; it need not be there.
    pub fn remove(&mut self, name: &str) {
        self.obsolete.push(self.folder.join(name));
    }

    /// Names the file without which the set is not whole: it goes first and comes last.
    pub fn set_mark(&mut self, name: &str) {
        self.mark = Some(name.to_owned());
    }

    /// Puts all files into their places.
    ///
    /// # Errors
    /// [`FileError`]; the old set is as it was.
    pub fn publish(mut self) -> Result<()> {
        let _turn = take_turn(&self.folder);
        let mut done = Undo::default();
        let placed = self.place(&mut done);
        if placed.is_err() {
            done.undo();
        }
        sync_folder(&self.folder);
        placed
    }

    fn place(&mut self, done: &mut Undo) -> Result<()> {
        if let Some(mark) = &self.mark {
            done.move_aside(&self.folder.join(mark))?;
        }
        let is_mark = |name: &String| self.mark.as_ref() == Some(name);
        for (_, file) in self.files.iter_mut().filter(|(name, _)| !is_mark(name)) {
            done.put(file)?;
        }
        for path in &self.obsolete {
            done.move_aside(path)?;
        }
        if let Some((_, mark)) = self.files.iter_mut().find(|(name, _)| is_mark(name)) {
            // The files before the mark, also after a power cut.
            sync_folder(&self.folder);
            done.put(mark)?;
        }
        Ok(())
    }
}

/// Holds the folder's lock where there are locks. Renames take no time: after five seconds the holder is stopped or gone
/// astray, and is not waited for.
fn take_turn(folder: &Path) -> Option<File> {
    let file = File::open(folder).ok()?;
    for _ in 0..500 {
        match file.try_lock() {
            Ok(()) => return Some(file),
            Err(fs::TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(10)),
            Err(fs::TryLockError::Error(_)) => return None,
        }
    }
    None
}

/// What has been done to a folder, to be taken back in the opposite order.
#[derive(Debug, Default)]
struct Undo {
    steps: Vec<Step>,
}

#[derive(Debug)]
struct Step {
    /// Where something changed.
    place: PathBuf,
    /// The old file, if there was one.
    old: Option<Temporary>,
}

impl Undo {
    /// Moves a file away, under a temporary name beside it; of a link, the file that it names.
    fn move_aside(&mut self, place: &Path) -> Result<()> {
        let Target::Regular { path: place, .. } = Target::of(place)? else {
            return Err(NewFile::not_regular(place));
        };
        let mut old = Temporary::aside(&place);
        match fs::rename(&place, old.path()) {
            Ok(()) => {
                old.set_exists(true);
                self.steps.push(Step { place, old: Some(old) });
                Ok(())
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(e) => Err(FileError::io("move aside", &place)(e)),
        }
    }

    /// Puts a file into its place; the old one is kept until the end. With an exchange, readers never find the place empty.
    fn put(&mut self, file: &mut Sealed) -> Result<()> {
        if file.target.is_dir() {
            return Err(FileError::Unfit { path: file.target.clone(), expected: "a file", found: "a folder" });
        }
        if exchange(file.temporary.path(), &file.target) {
            let old = std::mem::replace(&mut file.temporary, Temporary::aside(&file.target));
            self.steps.push(Step { place: file.target.clone(), old: Some(old) });
            return Ok(());
        }
        self.move_aside(&file.target)?;
        file.put()?;
        match self.steps.last() {
            Some(step) if step.place == file.target => {}
            _ => self.steps.push(Step { place: file.target.clone(), old: None }),
        }
        Ok(())
    }

    /// Takes everything back. What cannot be put back keeps its temporary name rather than being removed.
    fn undo(&mut self) {
        while let Some(step) = self.steps.pop() {
            match step.old {
                Some(mut old) => {
                    let _ = fs::rename(old.path(), &step.place);
                    old.set_exists(false);
                }
                None => drop(fs::remove_file(&step.place)),
            }
            sync_folder(folder_of(&step.place));
        }
    }
}

/// Exchanges two files, where the system and the file system can.
fn exchange(a: &Path, b: &Path) -> bool {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        renameat_with(CWD, a, CWD, b, RenameFlags::EXCHANGE).is_ok()
    }
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    {
        let _ = (a, b);
        false
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;

    #[test]
    fn whoever_publishes_holds_the_folder() {
        let dir = tempfile::tempdir().unwrap();
        let turn = take_turn(dir.path()).unwrap();
        let other = File::open(dir.path()).unwrap();
        assert!(matches!(other.try_lock(), Err(fs::TryLockError::WouldBlock)));
        drop(turn);
        other.try_lock().unwrap();
    }

    /// Readers never find the place empty, for the old file and the new one change places in one step.
    #[test]
    fn two_files_change_places() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (dir.path().join("a"), dir.path().join("b"));
        fs::write(&a, "1").unwrap();
        assert!(!exchange(&a, &b), "nothing to exchange it with");
        fs::write(&b, "2").unwrap();
        assert!(exchange(&a, &b));
        assert_eq!((fs::read_to_string(a).unwrap(), fs::read_to_string(b).unwrap()), ("2".into(), "1".into()));
    }
}
