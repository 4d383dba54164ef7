//! What is in an output directory, and what of it is kept when the new bundle takes its place.
//!
//! Removed are the files that the earlier bundle's manifest lists, and the manifest. Kept is all else, under its name where
//! the new bundle does not need that; and listed files, except context binaries, that were edited since. Those kept under
//! another name are `NAME.old`.

use super::entries::Entries;
use crate::{CompileError, Result, fs};
use file_io::{FolderPlace, carry, carry_changes};
use genie_bundle::manifest::{ListedFile, listed_files};
use genie_bundle::{BundleError, CALIBRATION_FILE, MANIFEST_FILE};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// What is in a directory.
#[derive(Debug)]
pub(super) enum Found {
    /// Nothing is there, or an empty directory.
    Nothing,
    /// A bundle, of whatever version.
    Bundle(Earlier),
    /// Something of someone else's.
    Other {
        holds: Entries,
        /// Why the manifest that is there does not make it a bundle.
        why: Option<Box<BundleError>>,
    },
}

/// A bundle that is to be replaced.
#[derive(Debug)]
pub(super) struct Earlier {
    dir: PathBuf,
    listed: Vec<ListedFile>,
}

/// What was kept of an earlier bundle.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// Entry of the earlier directory to its name in the new one.
    names: BTreeMap<OsString, OsString>,
    /// Files of the earlier bundle that were edited.
    edited: Vec<OsString>,
    binaries: Vec<Option<String>>,
}

impl Found {
    /// Looks at a directory.
    pub(super) fn at(dir: &Path) -> Result<Self> {
        let holds = match Entries::of(dir) {
            Ok(holds) if holds.is_empty() => return Ok(Self::Nothing),
            Ok(holds) => holds,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Self::Nothing),
            Err(e) => return Err(fs::io_err("list", dir)(e)),
        };
        match listed_files(dir) {
            Ok(listed) => Ok(Self::Bundle(Earlier { dir: dir.into(), listed })),
            Err(why) => {
                let why = holds.has(OsStr::new(MANIFEST_FILE)).then(|| Box::new(why));
                Ok(Self::Other { holds, why })
            }
        }
    }

    /// The error of a place that holds this.
    pub(super) fn refusal(self, place: &FolderPlace) -> CompileError {
        let path = place.asked().to_owned();
        match self {
            // It was empty a moment ago: some process works in it.
            Self::Nothing => CompileError::OutputUnfit { path, why: "another process is changing it" },
            Self::Bundle(earlier) => {
                CompileError::OutputIsBundle { path, others: earlier.others().unwrap_or_default() }
            }
            Self::Other { holds, why } => CompileError::OutputOccupied { path, holds, source: why },
        }
    }
}

impl Earlier {
    /// What its manifest does not list.
    fn others(&self) -> std::io::Result<Entries> {
        Ok(Entries::of(&self.dir)?.without(|name| self.lists(name)))
    }

    fn lists(&self, name: &OsStr) -> bool {
        self.listed.iter().any(|file| OsStr::new(&file.path) == name) && !self.dir.join(name).is_dir()
    }

    /// Gives what is kept a second name in the directory of the new bundle.
    pub(super) fn carry_into(&self, new: &Path) -> Result<Kept> {
        file_io::sweep(&self.dir);
        let mut kept = Kept { binaries: hashes_of_binaries(&self.listed), ..Kept::default() };
        for file in self.listed.iter().filter(|file| !file.is_binary()) {
            if file.is_changed(&self.dir)? {
                kept.edited.push(file.path.clone().into());
            }
        }
        // Entries that keep their names first, so that no `NAME.old` takes one.
        let others = self.others().map_err(fs::io_err("list", &self.dir))?;
        let (clash, plain): (Vec<_>, Vec<_>) =
            others.names().chain(&kept.edited).cloned().partition(|name| new.join(name).symlink_metadata().is_ok());
        for name in plain {
            carry(&self.dir.join(&name), &new.join(&name))?;
            kept.names.insert(name.clone(), name);
        }
        for name in clash {
            let free = free_name(new, &name);
            carry(&self.dir.join(&name), &new.join(&free))?;
            kept.names.insert(name, free);
        }
        Ok(kept)
    }

    /// After the exchange, when this is the replaced bundle: moves over what came into it since [`Self::carry_into`].
    pub(super) fn carry_late(&self, kept: &Kept, new: &Path) -> Result<()> {
        let others = self.others().map_err(fs::io_err("list", &self.dir))?;
        for name in others.names().chain(&kept.edited) {
            let to = match kept.names.get(name) {
                Some(to) => to.clone(),
                None if new.join(name).symlink_metadata().is_ok() => free_name(new, name),
                None => name.clone(),
            };
            carry_changes(&self.dir.join(name), &new.join(to))?;
        }
        Ok(())
    }
}

impl Kept {
    /// Takes back what was carried into a directory that is not published yet.
    pub(super) fn remove_from(&self, new: &Path) {
        for name in self.names.values() {
            let path = new.join(name);
            // What stays is carried again under another name.
            let _ = if path.is_dir() && !path.is_symlink() {
                std::fs::remove_dir_all(&path)
            } else {
                std::fs::remove_file(&path)
            };
        }
    }

    /// A line for the user on each thing that was kept; `new` are the new bundle's files.
    pub(crate) fn notes(&self, out: &Path, new: &[ListedFile]) -> Vec<String> {
        let mut notes = Vec::new();
        let (same, renamed): (Vec<_>, Vec<_>) = self.names.iter().partition(|(name, kept)| name == kept);
        if !same.is_empty() {
            let names = Entries::named(out, same.iter().map(|(name, _)| (*name).clone()));
            notes.push(format!("kept in `{}`: {names}", out.display()));
        }
        for (name, kept) in renamed {
            let why = if self.edited.contains(name) { "was edited" } else { "is no file of the earlier bundle" };
            let (name, kept) = (Entries::shown(name), Entries::shown(kept));
            notes.push(format!("`{name}` {why}: it is kept as `{kept}`"));
        }
        let measured = self.names.contains_key(OsStr::new(CALIBRATION_FILE));
        if measured && self.binaries != hashes_of_binaries(new) {
            notes.push(format!("`{CALIBRATION_FILE}` was measured with the earlier graphs: measure again"));
        }
        notes
    }
}

fn hashes_of_binaries(files: &[ListedFile]) -> Vec<Option<String>> {
    let mut hashes: Vec<_> = files.iter().filter(|file| file.is_binary()).map(|file| file.sha256.clone()).collect();
    hashes.sort();
    hashes
}

/// `NAME.old`, or with the first number from 2 that is free.
fn free_name(dir: &Path, name: &OsStr) -> OsString {
    let numbered = |n: u32| {
        let mut free = name.to_owned();
        free.push(if n == 1 { ".old".to_owned() } else { format!(".old.{n}") });
        free
    };
    let is_free = |name: &OsString| dir.join(name).symlink_metadata().is_err();
    (1..).map(numbered).find(is_free).expect("a directory has fewer entries than there are numbers")
}

/// Removes the folders beside this place that killed processes were replacing, where all in them is the bundle's own or has
/// another name; the others are kept and named.
pub(super) fn sweep_replaced(place: &Path) {
    let Some(parent) = place.parent() else { return };
    let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    for kept in file_io::sweep_exchanged(parent, is_expendable) {
        tracing::warn!(
            "a compilation was killed while it replaced a bundle; `{}` is what it replaced, with files of others in it",
            kept.display()
        );
    }
}

/// Whether nothing is lost with a bundle that was replaced, or that was about to replace one.
fn is_expendable(dir: &Path) -> bool {
    let bundle = match Found::at(dir) {
        Ok(Found::Nothing) => return true,
        Ok(Found::Bundle(bundle)) => bundle,
        Ok(Found::Other { .. }) | Err(_) => return false,
    };
    let Ok(others) = bundle.others() else { return false };
    let is_edited = |file: &&ListedFile| !file.is_binary() && file.is_changed(dir).unwrap_or(true);
    let edited = bundle.listed.iter().filter(is_edited).map(|file| dir.join(&file.path));
    others.names().map(|name| dir.join(name)).chain(edited).all(|path| file_io::has_other_name(&path))
}

/// Removes what releases before the hidden names of today left beside this place, if their process is dead.
pub(super) fn sweep_old_names(place: &Path) {
    let (Some(parent), Some(name)) = (place.parent(), place.file_name().and_then(OsStr::to_str)) else { return };
    let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    file_io::sweep_old_names(parent, |found| found == name);
    // A bundle that was moved aside. Before a removal was done the new one stood in its place.
    let replaced = parent.join(format!(".{name}.replaced"));
    if place.exists() && matches!(Found::at(&replaced), Ok(Found::Bundle(_))) {
        let others = Found::at(&replaced).ok().and_then(|found| match found {
            Found::Bundle(earlier) => earlier.others().ok(),
            _ => None,
        });
        if others.is_some_and(|others| others.is_empty()) {
            let _ = std::fs::remove_dir_all(&replaced);
            return;
        }
    }
    if replaced.exists() {
        tracing::warn!("an earlier release left the folder it replaced at `{}`", replaced.display());
    }
}
