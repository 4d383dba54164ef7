//! The built-in model `fox`: a GPT-2 of 133,000 weights that knows three sentences by heart, as `genie train` made it.
//!
//! Its checkpoint is written into the cache folder when it is first named, and compiled from there as any folder is.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;

use file_io::FileSet;

use super::error::{ModelsError, Result};

/// The word of it.
pub(super) const WORD: &str = "fox";

/// The checkpoint, file by file.
const FILES: [(&str, &[u8]); 4] = [
    ("config.json", include_bytes!("../../../models/fox/config.json")),
    ("model.safetensors", include_bytes!("../../../models/fox/model.safetensors")),
    ("tokenizer.json", include_bytes!("../../../models/fox/tokenizer.json")),
    ("tokenizer_config.json", include_bytes!("../../../models/fox/tokenizer_config.json")),
];

/// The folder of the checkpoint, written if it is not there whole.
///
/// # Errors
/// There is no cache folder, or it cannot be written.
pub fn checkpoint() -> Result<PathBuf> {
    let cache = genie_bundle::cache_folder().ok_or(ModelsError::NoCacheFolder)?;
    let mut hasher = DefaultHasher::new();
    FILES.hash(&mut hasher);
    // Another version's model is another folder; its name ends with the word, which names what is compiled of it.
    let folder = cache.join(format!("fox-{:016x}", hasher.finish())).join(WORD);
    let is_whole =
        |(name, bytes): &(&str, &[u8])| folder.join(name).metadata().is_ok_and(|meta| meta.len() == bytes.len() as u64);
    if !FILES.iter().all(is_whole) {
        std::fs::create_dir_all(&folder).map_err(|source| ModelsError::Make { path: folder.clone(), source })?;
        let mut files = FileSet::new(&folder);
        for (name, bytes) in FILES {
            files.add_bytes(name, bytes)?;
        }
        files.publish()?;
    }
    Ok(folder)
}
