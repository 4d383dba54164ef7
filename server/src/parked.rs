//! Slots that outlive the server: written into the folder of slots at its end, and read at its next start.
//!
//! *Files*: `.parked-MODEL-N`, MODEL the hash of the model whose rows they are, N the slot's number. Clients cannot name them: they begin
//! with a dot. They stay until the next end, so that a start that fails loses nothing; those of other models stay as they are. One of this
//! model that cannot be read is named in a warning. `.parked.lock` is held by the server that keeps its slots in the folder.

use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};

use open_genie::SeqId;
use open_genie::serving::Slot;

use crate::error::{ServerError, with_causes};
use crate::options::ServerOptions;
use crate::served_model::ServedModel;

/// What the files' names begin with.
const PREFIX: &str = ".parked-";
const LOCK: &str = ".parked.lock";

/// Takes the folder where slots are kept, until the file is dropped. Where the system has no locks for it, nothing is locked.
pub(crate) fn lock(options: &ServerOptions) -> Result<Option<File>, ServerError> {
    let Some(path) = options.slot_folder.clone().filter(|_| options.keep_slots) else { return Ok(None) };
    let opened = File::options().create(true).truncate(false).write(true).open(path.join(LOCK));
    match opened {
        Ok(file) => match file.try_lock() {
            Err(TryLockError::WouldBlock) => Err(ServerError::SlotFolderTaken { path }),
            Ok(()) | Err(TryLockError::Error(_)) => Ok(Some(file)),
        },
        Err(source) => Err(ServerError::SlotFolder { path, source }),
    }
}

/// Where slots are kept from one run to the next, and from a model's unloading to its next loading; `None`: they are not. `name`: of
/// a model among several, which has a folder of its own there.
pub(crate) fn folder(options: &ServerOptions, name: Option<&str>) -> Option<PathBuf> {
    let folder = options.slot_folder.as_ref().filter(|_| options.keep_slots)?;
    let Some(name) = name else { return Some(folder.clone()) };
    let folder = folder.join(format!("{PREFIX}{name}"));
    match std::fs::create_dir_all(&folder) {
        Ok(()) => Some(folder),
        Err(error) => {
            tracing::warn!(path = %folder.display(), %error, "slots cannot be kept");
            None
        }
    }
}

/// How often the model's thread is asked for slots, until requests whose clients are gone have ended.
const ASKED: usize = 64;

/// Reads the slots of the last run; returns how many there are then.
pub(crate) fn restore(model: &ServedModel, folder: &Path) -> usize {
    let Some(prefix) = prefix_of(model) else { return 0 };
    let found = files(folder, &prefix);
    let mut n = 0;
    for (slot, path) in &found {
        match model.running().restore_slot(*slot, path) {
            Ok(_) => n += 1,
            Err(error) => {
                let why = with_causes(&error);
                tracing::warn!(path = %path.display(), why, "a parked slot is left out");
            }
        }
    }
    // Where rows are lacking, those that were restored first make room.
    let n_there = model.server().slots().map_or(n, |slots| slots.len());
    if n_there < n {
        let n_forgotten = n - n_there;
        tracing::warn!(n_forgotten, "the cache has no room for all parked slots");
    }
    n_there.min(n)
}

/// Writes all slots with tokens; removes this model's files of slots that have none now. Returns how many were written.
pub(crate) fn save(model: &ServedModel, folder: &Path) -> usize {
    let Some(prefix) = prefix_of(model) else { return 0 };
    let mut slots = Vec::new();
    for _ in 0..ASKED {
        let Ok(found) = model.server().slots() else { return 0 };
        slots = found;
        if slots.iter().all(is_idle) {
            break;
        }
    }
    let mut n = 0;
    for slot in slots.iter().filter(|slot| is_idle(slot)) {
        match model.running().save_slot(slot.seq, folder.join(format!("{prefix}{}", slot.seq.0))) {
            Ok(_) => n += 1,
            Err(error) => {
                let why = with_causes(&error);
                tracing::warn!(slot = slot.seq.0, why, "a slot was not parked");
            }
        }
    }
    for (seq, path) in files(folder, &prefix) {
        if !slots.iter().any(|slot| slot.seq == seq)
            && let Err(error) = std::fs::remove_file(&path)
        {
            tracing::warn!(path = %path.display(), %error, "an old parked slot could not be removed");
        }
    }
    n
}

fn is_idle(slot: &Slot) -> bool {
    slot.request.is_none()
}

/// What the names of a model's files begin with.
fn prefix_of(model: &ServedModel) -> Option<String> {
    match model.running().model_hash() {
        Ok(hash) => Some(format!("{PREFIX}{hash}-")),
        Err(error) => {
            let why = with_causes(&error);
            tracing::warn!(why, "slots cannot be kept");
            None
        }
    }
}

/// Regular files of a model's parked slots, by number.
fn files(folder: &Path, prefix: &str) -> Vec<(SeqId, PathBuf)> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut found: Vec<(SeqId, PathBuf)> = entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let id = entry.file_name().to_str()?.strip_prefix(prefix)?.parse().ok()?;
            entry.file_type().ok()?.is_file().then(|| (SeqId(id), entry.path()))
        })
        .collect();
    found.sort();
    found
}
