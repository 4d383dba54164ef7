//! A cache that one engine leaves in a folder for another: libGenie's `kv-share` dialog without shared memory.
//!
//! | file | holds |
//! |---|---|
//! | `kv-cache.primary.qnn-htp` | the rows, in the type of the engine that has computed them |
//! | `token-history` | u32 tokens, one for each row |
//!
//! *Source*: the files that libGenie 1.21 writes at the switch. What it converts them to for its CPU engine
//! (`kv-cache.secondary.qnn-cpu`) is not known and not written: the reader converts.

use std::path::Path;

use file_io::FileSet;
use genie_types::TokenId;
use kvmanager::{KvImage, KvTensor};

use crate::StoreError;
use crate::genie_folder::{GenieFolder, cache_file};
use crate::names;

/// libGenie's name of the tokens beside the rows.
pub(crate) const HISTORY: &str = "token-history";

/// Longest history that is read: 16 million tokens.
const MOST_HISTORY_BYTES: u64 = 64 << 20;

/// Writes rows and tokens; the folder is made if there is none.
///
/// # Errors
/// [`StoreError::NoGenieForm`] for rows that libGenie's file cannot hold (windows, evicted rows); [`StoreError::File`].
pub fn write_handed_cache(dir: &Path, image: &KvImage, tokens: &[TokenId]) -> Result<(), StoreError> {
    let bytes = cache_file::to_bytes(image)?;
    let history: Vec<u8> = tokens.iter().flat_map(|token| token.0.to_le_bytes()).collect();
    std::fs::create_dir_all(dir).map_err(StoreError::io("make folder", dir))?;
    let mut set = FileSet::new(dir);
    set.add_bytes(&names::old_cache(GenieFolder::new(dir).role), &bytes)?;
    set.add_bytes(HISTORY, &history)?;
    Ok(set.publish()?)
}

/// Reads what [`write_handed_cache`] has written; `tensors` are those of the engine that wrote.
///
/// # Errors
/// [`StoreError::Io`], [`StoreError::Torn`], [`StoreError::Folder`] for files of another model.
pub fn read_handed_cache(dir: &Path, tensors: &[KvTensor]) -> Result<(KvImage, Vec<TokenId>), StoreError> {
    let folder = GenieFolder::new(dir);
    let image = folder.read_rows(tensors, &dir.join(names::old_cache(folder.role)))?;
    let path = dir.join(HISTORY);
    let bytes = file_io::read_file_up_to(&path, MOST_HISTORY_BYTES).map_err(StoreError::io("read", &path))?;
    let tokens = bytes.chunks_exact(4).map(|b| TokenId(u32::from_le_bytes([b[0], b[1], b[2], b[3]]))).collect();
    Ok((image, tokens))
}
