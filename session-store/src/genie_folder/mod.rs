//! The folder that libGenie saves a dialog in, read and written.
//!
//! | file | holds |
//! |---|---|
//! | `dialog.json` | counters; goes first and comes last when a set is replaced, so a folder without it is torn |
//! | `token-history-slot-0` | u32 tokens, the last perhaps not processed |
//! | `unprocessed-data` | u32, the first token of the last reply (as libGenie writes it; no reader uses it) |
//! | `sampler.primary.rng` | 624 words of the random state, as text |
//! | `kv-slot-0.primary.qnn-htp` | the cache, see `cache_file` |
//!
//! *Source*: files written by libGenie 1.21. *Trap*: from the second turn on its history has the token that ended the
//! turn before twice, since that token was fed again; the cache has it once.

pub(crate) mod cache_file;

use std::path::{Path, PathBuf};

use file_io::FileSet;
use genie_types::TokenId;
use kvmanager::{KvImage, KvTensor};
use serde::{Deserialize, Serialize};

use crate::error::{FolderFault, NoGenieForm};
use crate::names::{self, DIALOG, RANDOM_STATE, UNPROCESSED};
use crate::{Snapshot, StoreError};

/// Longest file of counters or of a random state that is read, in bytes; 624 words of digits have 7 kB.
const SHORT: u64 = 64 << 10;

/// A dialog saved by libGenie, in one slot of a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GenieFolder<'a> {
    /// The folder.
    pub dir: &'a Path,
    /// The slot's number; 0 for a dialog.
    pub slot: usize,
    /// The engine's role, `primary` for a basic dialog.
    pub role: &'a str,
}

/// A dialog of libGenie's without its cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GenieDialog {
    /// Its tokens, the last perhaps not processed.
    pub tokens: Vec<TokenId>,
    /// Tokens in the cache.
    pub n_past: usize,
    /// Tokens at the end that the last reply generated.
    pub n_generated: usize,
    /// Whether the last query was processed only.
    pub open: bool,
    /// The sampler's random state.
    pub random_state: String,
}

/// libGenie's `dialog.json`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Counters {
    last_tok: i64,
    n_generated: usize,
    n_past: usize,
    n_prompt: usize,
    n_queries: usize,
    prefill_only: bool,
    process_state: i64,
    unprocessed_embedding_size: usize,
    unprocessed_tokens_size: usize,
}

impl<'a> GenieFolder<'a> {
    /// Slot 0 of the primary engine.
    pub const fn new(dir: &'a Path) -> Self {
        Self { dir, slot: 0, role: "primary" }
    }

    /// Whether there is a complete dialog.
    pub fn exists(&self) -> bool {
        self.dir.join(DIALOG).exists()
    }

    /// Writes all files of a dialog. Those of an earlier one stay until all are on the disk.
    ///
    /// # Errors
    /// [`StoreError::NoGenieForm`]: the folder then has no dialog of libGenie's. [`StoreError::File`].
    pub fn write(&self, snapshot: &Snapshot) -> Result<(), StoreError> {
        let mut set = FileSet::new(self.dir);
        let without = self.add_to(&mut set, snapshot)?;
        set.publish()?;
        without.map_or(Ok(()), |why| Err(why.into()))
    }

    /// Puts all files of a dialog into a set; without a form for it, the set removes those of an earlier dialog.
    pub(crate) fn add_to(&self, set: &mut FileSet, snapshot: &Snapshot) -> Result<Option<NoGenieForm>, StoreError> {
        let (tokens, generated) = snapshot.history();
        set.set_mark(DIALOG);
        let several = snapshot.sequences.iter().any(|s| s.seq.0 != 0 && !s.tokens.is_empty());
        let cache = if several { Err(NoGenieForm::SeveralSequences.into()) } else { Ok(()) };
        match cache.and_then(|()| self.add_cache(set, &snapshot.image, &tokens)) {
            Ok(()) => {}
            Err(StoreError::NoGenieForm(why)) => {
                set.remove(&self.cache_name());
                set.remove(&self.history_name());
                return Ok(Some(why));
            }
            Err(e) => return Err(e),
        }
        let runs: Vec<&[bool]> = generated.chunk_by(|a, b| a == b).collect();
        let ends_generated = generated.last() == Some(&true);
        let n_generated = runs.last().filter(|_| ends_generated).map_or(0, |run| run.len());
        let n_prompt = runs.iter().rev().find(|run| !run[0]).map_or(0, |run| run.len());
        let dialog = snapshot.dialog.clone().unwrap_or_default();
        let first_of_reply = tokens.len() - n_generated;
        let unprocessed: Vec<u8> = dialog
            .unprocessed
            .map_or(Vec::new(), |last| tokens.get(first_of_reply).unwrap_or(&last).0.to_le_bytes().to_vec());
        let counters = Counters {
            last_tok: tokens.last().map_or(-1, |t| i64::from(t.0)),
            n_generated,
            n_past: snapshot.tokens().len(),
            n_prompt,
            n_queries: runs.iter().filter(|run| !run[0]).count(),
            prefill_only: false,
            process_state: 0,
            unprocessed_embedding_size: 0,
            unprocessed_tokens_size: unprocessed.len() / 4,
        };
        let counters = serde_json::to_vec(&counters).expect("plain data becomes JSON");
        let random_state = dialog.random_state.as_bytes();
        for (name, bytes) in [(UNPROCESSED, unprocessed.as_slice()), (RANDOM_STATE, random_state), (DIALOG, &counters)]
        {
            set.add_bytes(name, bytes)?;
        }
        Ok(None)
    }

    /// Writes cache and token history only. `tokens` is all of the dialog, the last perhaps not processed.
    ///
    /// # Errors
    /// [`StoreError::NoGenieForm`], also for fewer tokens than rows: nothing is written then. [`StoreError::File`].
    pub fn write_cache(&self, image: &KvImage, tokens: &[TokenId]) -> Result<(), StoreError> {
        let mut set = FileSet::new(self.dir);
        self.add_cache(&mut set, image, tokens)?;
        Ok(set.publish()?)
    }

    fn add_cache(&self, set: &mut FileSet, image: &KvImage, tokens: &[TokenId]) -> Result<(), StoreError> {
        let bytes = cache_file::to_bytes(image)?;
        let (n_tokens, n_rows) = (tokens.len(), image.n_past());
        if n_tokens < n_rows {
            return Err(NoGenieForm::TooFewTokens { n_tokens, n_rows }.into());
        }
        let history: Vec<u8> = tokens.iter().flat_map(|t| t.0.to_le_bytes()).collect();
        set.add_bytes(&self.cache_name(), &bytes)?;
        Ok(set.add_bytes(&self.history_name(), &history)?)
    }

    /// Reads everything except the cache. `starts_turn`: tokens that a later turn begins with (EOS, BOS).
    ///
    /// # Errors
    /// [`StoreError::Io`]; [`StoreError::Folder`] for files that contradict each other.
    pub fn read_dialog(&self, starts_turn: &[TokenId]) -> Result<GenieDialog, StoreError> {
        let counters: Counters = serde_json::from_slice(&read_short(&self.dir.join(DIALOG))?)
            .map_err(|e| self.fault(FolderFault::Counters(e)))?;
        let n_past = counters.n_past;
        let tokens = drop_repeated_eos(self.read_history()?, n_past, starts_turn);
        let n_tokens = tokens.len();
        if !matches!(n_tokens.checked_sub(n_past), Some(0 | 1)) {
            return Err(self.fault(FolderFault::HistoryCount { file: self.history_name(), n_tokens, n_past }));
        }
        let (found, expected) = (tokens.last().map_or(-1, |t| i64::from(t.0)), counters.last_tok);
        if n_tokens > n_past && found != expected {
            return Err(self.fault(FolderFault::LastToken { file: self.history_name(), found, expected }));
        }
        let random_state = String::from_utf8(read_short(&self.dir.join(RANDOM_STATE))?);
        Ok(GenieDialog {
            tokens,
            n_past,
            n_generated: counters.n_generated.min(n_tokens),
            open: counters.prefill_only,
            random_state: random_state.map_err(|_| self.fault(FolderFault::RandomState))?,
        })
    }

    /// Reads the token history as it is.
    ///
    /// # Errors
    /// [`StoreError::Io`]; [`StoreError::Folder`] for a file that is cut within a token.
    pub fn read_history(&self) -> Result<Vec<TokenId>, StoreError> {
        let bytes = read(&self.history_path())?;
        if !bytes.len().is_multiple_of(4) {
            let (file, n_bytes) = (self.history_name(), bytes.len());
            return Err(self.fault(FolderFault::HistoryLength { file, n_bytes }));
        }
        Ok(bytes.chunks_exact(4).map(|b| TokenId(u32::from_le_bytes([b[0], b[1], b[2], b[3]]))).collect())
    }

    /// Reads the cache of a dialog of `n_tokens` for a model with these tensors.
    ///
    /// # Errors
    /// [`StoreError::Io`], [`StoreError::Torn`], [`StoreError::Folder`] for a file of another model or another dialog.
    pub fn read_cache(&self, tensors: &[KvTensor], n_tokens: usize) -> Result<KvImage, StoreError> {
        let image = self.read_rows(tensors, &self.existing_cache_path())?;
        let n_rows = image.n_past();
        if n_rows != n_tokens && n_rows + 1 != n_tokens {
            return Err(self.fault(FolderFault::RowCount { n_rows, n_tokens }));
        }
        Ok(image)
    }

    /// Reads a cache file for a model with these tensors, however many rows it has.
    pub(crate) fn read_rows(&self, tensors: &[KvTensor], path: &Path) -> Result<KvImage, StoreError> {
        cache_file::from_bytes(&read(path)?, tensors, path).map_err(|e| match e {
            cache_file::ReadError::Fault(fault) => self.fault(fault),
            cache_file::ReadError::Torn { expected, found } => StoreError::Torn { expected, found },
        })
    }

    fn fault(&self, fault: FolderFault) -> StoreError {
        StoreError::Folder { dir: self.dir.to_owned(), fault }
    }

    /// The cache file under its name, or under that of older releases.
    fn existing_cache_path(&self) -> PathBuf {
        let named = self.cache_path();
        if named.exists() { named } else { self.dir.join(names::old_cache(self.role)) }
    }

    fn cache_name(&self) -> String {
        names::cache(self.slot, self.role)
    }

    fn cache_path(&self) -> PathBuf {
        self.dir.join(self.cache_name())
    }

    fn history_name(&self) -> String {
        names::history(self.slot)
    }

    fn history_path(&self) -> PathBuf {
        self.dir.join(self.history_name())
    }
}

fn read(path: &Path) -> Result<Vec<u8>, StoreError> {
    file_io::read_file(path).map_err(StoreError::io("read", path))
}

/// Counters or the random state: some thousand bytes.
fn read_short(path: &Path) -> Result<Vec<u8>, StoreError> {
    file_io::read_file_up_to(path, SHORT).map_err(StoreError::io("read", path))
}

/// Drops the second of two equal tokens where a new turn begins, until there is one more than `n_past`.
fn drop_repeated_eos(mut tokens: Vec<TokenId>, n_past: usize, starts_turn: &[TokenId]) -> Vec<TokenId> {
    let mut i = 0;
    while tokens.len().saturating_sub(n_past) > 1 && i + 2 < tokens.len() {
        if tokens[i] == tokens[i + 1] && starts_turn.contains(&tokens[i + 2]) {
            tokens.remove(i);
        }
        i += 1;
    }
    tokens
}
