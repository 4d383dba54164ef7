//! Saving a dialog into a folder and taking it back: Genie's own files, and our checked snapshot beside them.
//!
//! | file | holds |
//! |---|---|
//! | `dialog.json` | Genie's counters; removed first and written after the other files of Genie's, so its absence means they are torn |
//! | `token-history-slot-0` | u32 tokens, the last perhaps not processed |
//! | `unprocessed-data` | u32, the first token of the last reply (as the real one writes it; nobody reads it) |
//! | `sampler.primary.rng` | 624 words of the random state, as text |
//! | `kv-slot-0.primary.qnn-htp` | the cache, unchecked |
//! | `open-genie.kvs` | all of it once more, in one file with checksums and the model's hash; written last |
//!
//! *What is restored*: the snapshot, if Genie's files say the same or are not complete; else they were written later, by
//! the real Genie, and count. A cache that has no form in Genie's file (windows, several sequences) has the snapshot only.
//! *Invariant*: whatever is refused, the live dialog is as it was.
//!
//! *Source*: files recorded from libGenie 1.21. *Trap*: from the second turn on its history has the token that ended the
//! turn before twice, since that token was fed again; the cache has it once.

use std::fs;
use std::path::{Path, PathBuf};

use engine::saved::callers_bytes;
use engine::{EngineError, Overflow, Snapshot, SnapshotError, write_atomically};
use genie_types::TokenId;
use serde::{Deserialize, Serialize};

use super::dialog::Dialog;
use super::error::DialogError;
use super::history::History;
use crate::sampler::Mt19937;

/// Our snapshot's name.
const SNAPSHOT: &str = "open-genie.kvs";
const DIALOG: &str = "dialog.json";
const HISTORY: &str = "token-history-slot-0";
const UNPROCESSED: &str = "unprocessed-data";
const RNG: &str = "sampler.primary.rng";
const KV: &str = "kv-slot-0.primary.qnn-htp";

/// Which files a dialog came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SavedBy {
    /// The checked snapshot.
    OpenGenie,
    /// Genie's own files.
    Genie,
}

/// How a dialog was saved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SaveReport {
    /// Why Genie's own files were left out, if they were.
    pub without_genie: Option<String>,
}

/// Genie's `dialog.json`.
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

/// What our snapshot holds beside cache and processed tokens.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
struct Extra {
    version: u32,
    /// The last token, if it is not in the cache.
    unprocessed: Option<u32>,
    /// Which tokens the model said: lengths of runs, the first of tokens that it did not say.
    said_runs: Vec<usize>,
    open: bool,
    rng: String,
}

/// A dialog read from files, before anything is touched.
struct Found {
    history: History,
    rng: String,
    open: bool,
    snapshot: Option<Snapshot>,
}

impl Dialog {
    /// Saves the dialog into a folder, which is made if need be. A paused one comes back as stopped.
    ///
    /// # Errors
    /// Nothing was said yet; the cache cannot be saved; the file system refuses.
    pub fn save(&mut self, dir: &Path) -> Result<SaveReport, DialogError> {
        if self.history.is_empty() {
            return Err(DialogError::NothingToSave);
        }
        fs::create_dir_all(dir).map_err(|e| file("make folder", dir, e))?;
        remove(&dir.join(DIALOG))?;
        let without_genie = match self.model.save_genie_slot(dir, self.history.tokens()) {
            Ok(()) => {
                self.write_genie(dir)?;
                None
            }
            Err(EngineError::Saved(SnapshotError::NotASnapshot { why })) => {
                [KV, HISTORY].iter().try_for_each(|name| remove(&dir.join(name)))?;
                Some(why)
            }
            Err(e) => return Err(e.into()),
        };
        let extra = Extra {
            version: 1,
            unprocessed: self.history.unprocessed().map(|t| t.0),
            said_runs: self.history.said_runs(),
            open: self.open,
            rng: self.sampler.save_rng(),
        };
        let extra = serde_json::to_vec(&extra).expect("plain data becomes JSON");
        self.model.snapshot(&extra)?.write(&dir.join(SNAPSHOT)).map_err(EngineError::from)?;
        Ok(SaveReport { without_genie })
    }

    fn write_genie(&self, dir: &Path) -> Result<(), DialogError> {
        let tokens = self.history.tokens();
        let runs = self.history.said_runs();
        // The last run of tokens that the model said, and of those before that it was given.
        let n_generated = if runs.len().is_multiple_of(2) { runs.last().copied().unwrap_or(0) } else { 0 };
        let n_prompt = runs.iter().rev().nth(usize::from(n_generated > 0)).copied().unwrap_or(0);
        let unprocessed: Vec<u8> = self.history.unprocessed().map_or(Vec::new(), |last| {
            tokens.get(tokens.len() - n_generated).unwrap_or(&last).0.to_le_bytes().to_vec()
        });
        let counters = Counters {
            last_tok: tokens.last().map_or(-1, |t| i64::from(t.0)),
            n_generated,
            n_past: self.history.n_past(),
            n_prompt,
            n_queries: runs.len().div_ceil(2),
            prefill_only: false,
            process_state: 0,
            unprocessed_embedding_size: 0,
            unprocessed_tokens_size: unprocessed.len() / 4,
        };
        let counters = serde_json::to_vec(&counters).expect("plain data becomes JSON");
        let rng = self.sampler.save_rng();
        for (name, bytes) in [(UNPROCESSED, unprocessed.as_slice()), (RNG, rng.as_bytes()), (DIALOG, &counters)] {
            write_atomically(&dir.join(name), |out| out.write_all(bytes)).map_err(EngineError::from)?;
        }
        Ok(())
    }

    /// Takes a dialog from a folder that this or the real Genie has saved; what was said before is forgotten.
    ///
    /// # Errors
    /// There is none, or it is torn, corrupt, of another model, or too long for this context: nothing has changed.
    pub fn restore(&mut self, dir: &Path) -> Result<SavedBy, DialogError> {
        let found = self.find(dir)?;
        let limit = self.limit();
        if found.history.n_past() > limit {
            return Err(Overflow::ContextExceeded { n_past: 0, n_new: found.history.n_past(), limit }.into());
        }
        Mt19937::from_text(&found.rng).map_err(|e| bad(dir, format!("`{RNG}`: {e}")))?;
        match &found.snapshot {
            Some(snapshot) => self.model.restore_snapshot(snapshot).map(drop)?,
            None => self.model.restore_genie_slot(dir, found.history.tokens())?,
        }
        self.sampler.reset();
        self.sampler.restore_rng(&found.rng).expect("checked above");
        (0..found.history.len()).filter_map(|i| found.history.said_at(i)).for_each(|t| self.sampler.accept(t));
        self.history = found.history;
        self.open = found.open;
        self.paused = None;
        Ok(if found.snapshot.is_some() { SavedBy::OpenGenie } else { SavedBy::Genie })
    }

    /// The dialog in a folder, by whichever files count.
    fn find(&self, dir: &Path) -> Result<Found, DialogError> {
        let path = dir.join(SNAPSHOT);
        let ours = if path.exists() { Some(self.read_ours(dir, &path)?) } else { None };
        let genie = if dir.join(DIALOG).exists() { Some(self.read_genie(dir)) } else { None };
        match (ours, genie) {
            (Some(ours), None | Some(Err(_))) => Ok(ours),
            (Some(ours), Some(Ok(genie))) => {
                Ok(if ours.history.tokens() == genie.history.tokens() { ours } else { genie })
            }
            (None, Some(genie)) => genie,
            (None, None) => {
                let why = format!("it has neither `{SNAPSHOT}` nor `{DIALOG}`");
                Err(bad(dir, if dir.is_dir() { why } else { "there is no such folder".to_owned() }))
            }
        }
    }

    fn read_ours(&self, dir: &Path, path: &Path) -> Result<Found, DialogError> {
        let snapshot = Snapshot::read(path).map_err(EngineError::from)?;
        let extra: Extra = serde_json::from_slice(&callers_bytes(&snapshot)?)
            .map_err(|e| bad(dir, format!("`{SNAPSHOT}` holds a cache but no dialog of ours: {e}")))?;
        if extra.version != 1 {
            return Err(bad(dir, format!("`{SNAPSHOT}` holds a dialog of version {}, expected 1", extra.version)));
        }
        let mut tokens = snapshot.tokens.clone();
        let n_past = tokens.len();
        tokens.extend(extra.unprocessed.map(TokenId));
        let history = History::restored(tokens, &extra.said_runs, n_past);
        let history = history.ok_or_else(|| bad(dir, format!("`{SNAPSHOT}`: counts of tokens do not add up")))?;
        Ok(Found { history, rng: extra.rng, open: extra.open, snapshot: Some(snapshot) })
    }

    fn read_genie(&self, dir: &Path) -> Result<Found, DialogError> {
        let counters: Counters = serde_json::from_slice(&read(&dir.join(DIALOG))?)
            .map_err(|e| bad(dir, format!("`{DIALOG}` is not Genie's: {e}")))?;
        let bytes = read(&dir.join(HISTORY))?;
        if !bytes.len().is_multiple_of(4) {
            return Err(bad(dir, format!("`{HISTORY}` has {} bytes, expected a multiple of 4", bytes.len())));
        }
        let words = bytes.chunks_exact(4).map(|b| TokenId(u32::from_le_bytes([b[0], b[1], b[2], b[3]])));
        let tokens = self.once_each(words.collect(), counters.n_past);
        let n_known = tokens.len();
        if n_known != counters.n_past && n_known != counters.n_past + 1 {
            let why = format!("`{HISTORY}` has {n_known} tokens, but `{DIALOG}` says {}", counters.n_past);
            return Err(bad(dir, why));
        }
        let last = tokens.last().map_or(-1, |t| i64::from(t.0));
        if n_known > counters.n_past && last != counters.last_tok {
            let why = format!("`{HISTORY}` ends in token {last}, but `{DIALOG}` in {}", counters.last_tok);
            return Err(bad(dir, why));
        }
        let said = counters.n_generated.min(n_known);
        let history = History::restored(tokens, &[n_known - said, said], counters.n_past).expect("the counts add up");
        let rng = read(&dir.join(RNG))?;
        let rng = String::from_utf8(rng).map_err(|_| bad(dir, format!("`{RNG}` is not text")))?;
        Ok(Found { history, rng, open: counters.prefill_only, snapshot: None })
    }

    /// Drops the second of two equal tokens where a new turn begins, until there is one more than `n_past`.
    fn once_each(&self, mut tokens: Vec<TokenId>, n_past: usize) -> Vec<TokenId> {
        let starts = |t: &TokenId| self.context.eos.first() == Some(t) || self.context.bos == Some(*t);
        let mut i = 0;
        while tokens.len() > n_past + 1 && i + 2 < tokens.len() {
            if tokens[i] == tokens[i + 1] && starts(&tokens[i + 2]) {
                tokens.remove(i);
            }
            i += 1;
        }
        tokens
    }
}

fn bad(dir: &Path, why: String) -> DialogError {
    DialogError::Engine(EngineError::Restore { dir: dir.to_owned(), why })
}

fn file(action: &'static str, path: &Path, source: std::io::Error) -> DialogError {
    DialogError::Engine(SnapshotError::Io { action, path: path.to_owned(), source }.into())
}

fn read(path: &PathBuf) -> Result<Vec<u8>, DialogError> {
    fs::read(path).map_err(|e| file("read", path, e))
}

fn remove(path: &Path) -> Result<(), DialogError> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(file("remove", path, e)),
        _ => Ok(()),
    }
}
