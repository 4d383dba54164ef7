//! Saved dialogs: ours and libGenie's.

use kvmanager::{KvDtype, KvKind, KvTensor};
use session_store::{CacheSchema, ModelHash, Snapshot, read_session};

use super::places::{check_message, folder};

/// A snapshot: what is read is written again alike.
pub(super) fn snapshot(bytes: &[u8]) {
    match Snapshot::from_bytes(bytes) {
        Ok(snapshot) => assert!(Snapshot::from_bytes(&snapshot.to_bytes()).is_ok(), "what was read can be written"),
        Err(error) => check_message(&error),
    }
}

/// Files of libGenie's folder, in the order of a seed.
const FILES: [&str; 4] = ["dialog.json", "token-history-slot-0", "sampler.primary.rng", "kv-slot-0.primary.qnn-htp"];

/// The cache tensors of the model that the seeds were made with.
pub(crate) fn schema() -> CacheSchema {
    let tensor = |kind| KvTensor::new(kind, 0, 1, 4, KvDtype::F16);
    CacheSchema { model: ModelHash([7; 32]), tensors: vec![tensor(KvKind::Key), tensor(KvKind::Value)] }
}

/// The folder that a seed stands for: for each file its length in four bytes, then its bytes.
pub(super) fn genie_folder(bytes: &[u8]) {
    let dir = folder().join("session");
    std::fs::create_dir_all(&dir).expect("a folder in the temporary folder");
    let mut rest = bytes;
    for name in FILES {
        let path = dir.join(name);
        let Some((len, behind)) = rest.split_first_chunk::<4>() else {
            let _ = std::fs::remove_file(path);
            continue;
        };
        let (content, behind) = behind.split_at((u32::from_le_bytes(*len) as usize).min(behind.len()));
        std::fs::write(path, content).expect("a file in the temporary folder");
        rest = behind;
    }
    if let Err(error) = read_session(&dir, &schema(), &[]) {
        check_message(&error);
    }
}

/// A folder as a seed.
pub(crate) fn folder_as_seed(dir: &std::path::Path) -> std::io::Result<Vec<u8>> {
    let mut seed = Vec::new();
    for name in FILES {
        let bytes = std::fs::read(dir.join(name))?;
        seed.extend((bytes.len() as u32).to_le_bytes());
        seed.extend(bytes);
    }
    Ok(seed)
}
