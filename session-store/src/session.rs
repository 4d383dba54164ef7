//! A saved session: a folder with libGenie's files and our checked snapshot beside them.
//!
//! `open-genie.kvs` holds everything once more, in one file with checksums and the model's hash. All files are on the disk
//! under temporary names before the first of the old ones goes.
//! *What is restored*: the snapshot, if libGenie's files hold the same tokens or cannot be used; else they were written
//! later, by libGenie, and count. A cache that has no form in libGenie's file (windows, several sequences) has the
//! snapshot only. Whatever differs is reported in [`Restored::note`].

use std::fs;
use std::path::Path;

use file_io::{FileKind, FileSet};
use kvmanager::SeqId;

use crate::error::{FolderFault, NoGenieForm};
use crate::genie_folder::{GenieDialog, GenieFolder};
use crate::names::{SECOND_SNAPSHOT, SNAPSHOT};
use crate::restored::{RestoreNote, Restored, SaveFormat, choose};
use crate::{CacheSchema, DialogState, SavedSequence, SavedToken, Snapshot, StoreError};
use genie_types::TokenId;

/// How a session was saved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SaveReport {
    /// Why libGenie's own files were left out, if they were.
    pub without_genie: Option<NoGenieForm>,
}

/// Writes a session into a folder, which is made if need be. A session that is there already stays whole until all files
/// of the new one are on the disk.
///
/// # Errors
/// [`StoreError::Io`] for the folder, [`StoreError::File`].
pub fn save_session(dir: &Path, snapshot: &Snapshot) -> Result<SaveReport, StoreError> {
    save_session_of_two(dir, snapshot, None)
}

/// As [`save_session`], with the cache of the other model, for a dialog of two.
///
/// # Errors
/// As [`save_session`].
pub fn save_session_of_two(
    dir: &Path,
    snapshot: &Snapshot,
    second: Option<&Snapshot>,
) -> Result<SaveReport, StoreError> {
    fs::create_dir_all(dir).map_err(StoreError::io("make folder", dir))?;
    let mut set = FileSet::new(dir);
    let without_genie = GenieFolder::new(dir).add_to(&mut set, snapshot)?;
    snapshot.add_to(&mut set, SNAPSHOT)?;
    match second {
        Some(second) => second.add_to(&mut set, SECOND_SNAPSHOT)?,
        None => set.remove(SECOND_SNAPSHOT),
    }
    set.publish()?;
    Ok(SaveReport { without_genie })
}

/// Reads the session of a folder by whichever files count; it always has a dialog. libGenie's files are read for `schema`
/// and carry its model hash, having none; a snapshot keeps its own. `starts_turn`: tokens that a later turn begins with
/// (EOS, BOS).
///
/// # Errors
/// [`StoreError::Folder`] if there is no session, or one whose files contradict each other or the model;
/// [`StoreError::Snapshot`] with the errors of [`Snapshot::read`] for a snapshot that is there and cannot be used.
pub fn read_session(dir: &Path, schema: &CacheSchema, starts_turn: &[TokenId]) -> Result<Restored, StoreError> {
    let fault = |fault| StoreError::Folder { dir: dir.to_owned(), fault };
    let (path, folder) = (dir.join(SNAPSHOT), GenieFolder::new(dir));
    let theirs = folder.exists().then(|| folder.read_dialog(starts_turn));
    let theirs = theirs.map(|theirs| theirs.and_then(|dialog| with_cache(dialog, folder, schema)));
    if !path.exists() {
        return match theirs {
            Some(theirs) => Ok(Restored { snapshot: theirs?, format: SaveFormat::Genie, note: None }),
            None if dir.is_dir() => Err(fault(FolderFault::NoSession)),
            None => Err(fault(match FileKind::of(dir) {
                FileKind::Missing => FolderFault::NoFolder,
                found => FolderFault::NotAFolder { found: Box::new(found) },
            })),
        };
    }
    let ours = match Snapshot::read(&path) {
        Ok(ours) if ours.dialog.is_none() => return Err(fault(FolderFault::NoDialog)),
        Ok(ours) => ours,
        Err(source) => {
            let genie_is_whole = matches!(theirs, Some(Ok(_)));
            return Err(StoreError::Snapshot { path, genie_is_whole, source: Box::new(source) });
        }
    };
    Ok(match theirs {
        None => Restored { snapshot: ours, format: SaveFormat::OpenGenie, note: None },
        Some(Err(why)) => {
            let note = Some(RestoreNote::GenieUnusable(why));
            Restored { snapshot: ours, format: SaveFormat::OpenGenie, note }
        }
        Some(Ok(theirs)) => choose(ours, theirs),
    })
}

/// Reads what [`save_session_of_two`] has kept of the other model; `None` where it kept nothing.
///
/// # Errors
/// [`StoreError::Snapshot`] for a file that is there and cannot be used.
pub fn read_second(dir: &Path) -> Result<Option<Snapshot>, StoreError> {
    let path = dir.join(SECOND_SNAPSHOT);
    if !path.exists() {
        return Ok(None);
    }
    let read = Snapshot::read(&path);
    read.map(Some).map_err(|source| StoreError::Snapshot { path, genie_is_whole: false, source: Box::new(source) })
}

/// A dialog of libGenie's as a snapshot.
fn with_cache(dialog: GenieDialog, folder: GenieFolder<'_>, schema: &CacheSchema) -> Result<Snapshot, StoreError> {
    let image = folder.read_cache(&schema.tensors, dialog.tokens.len())?;
    let (processed, last) = dialog.tokens.split_at(image.n_past());
    let first_generated = dialog.tokens.len() - dialog.n_generated;
    let token = |(position, &token)| SavedToken { token, position, generated: position >= first_generated };
    let tokens = processed.iter().enumerate().map(token).collect();
    let sequences = vec![SavedSequence { seq: SeqId(0), tokens }];
    let unprocessed = last.first().copied();
    let state =
        DialogState { unprocessed, open: dialog.open, random_state: dialog.random_state, ..DialogState::default() };
    Ok(Snapshot { model: schema.model, image, sequences, dialog: Some(state), ..Snapshot::default() })
}
