//! Slots that outlive the server: written into the folder of slots at its end, and read at its next start.
//!
//! *Files*: `parked-N`, N the slot's number. They stay until the next end, so that a start that fails loses nothing. One that cannot
//! be read, such as another model's, is named in a warning and left alone.

use std::path::{Path, PathBuf};

use open_genie::SeqId;
use open_genie::serving::Slot;

use crate::error::with_causes;
use crate::options::ServerOptions;
use crate::served_model::ServedModel;

/// What the files' names begin with.
const PREFIX: &str = "parked-";

/// Where slots are kept from one run to the next, and from a model's unloading to its next loading; `None`: they are not. `name`: of
/// a model among several, which has a folder of its own there. Clients cannot name it: it begins with a dot.
pub(crate) fn folder(options: &ServerOptions, name: Option<&str>) -> Option<PathBuf> {
    let folder = options.slot_folder.as_ref().filter(|_| options.keep_slots)?;
    let Some(name) = name else { return Some(folder.clone()) };
    let folder = folder.join(format!(".{PREFIX}{name}"));
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

/// Reads the slots of the last run; returns how many.
pub(crate) fn restore(model: &ServedModel, folder: &Path) -> usize {
    let mut n = 0;
    for (slot, path) in files(folder) {
        match model.running().restore_slot(slot, &path) {
            Ok(_) => n += 1,
            Err(error) => {
                let why = with_causes(&error);
                tracing::warn!(path = %path.display(), why, "a parked slot is left out");
            }
        }
    }
    n
}

/// Writes all slots with tokens; removes files of slots that have none now. Returns how many were written.
pub(crate) fn save(model: &ServedModel, folder: &Path) -> usize {
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
        match model.running().save_slot(slot.seq, folder.join(name(slot.seq))) {
            Ok(_) => n += 1,
            Err(error) => {
                let why = with_causes(&error);
                tracing::warn!(slot = slot.seq.0, why, "a slot was not parked");
            }
        }
    }
    for (seq, path) in files(folder) {
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

fn name(slot: SeqId) -> String {
    format!("{PREFIX}{}", slot.0)
}

/// Regular files of parked slots, by number.
fn files(folder: &Path) -> Vec<(SeqId, PathBuf)> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut found: Vec<(SeqId, PathBuf)> = entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let id = entry.file_name().to_str()?.strip_prefix(PREFIX)?.parse().ok()?;
            entry.file_type().ok()?.is_file().then(|| (SeqId(id), entry.path()))
        })
        .collect();
    found.sort();
    found
}
