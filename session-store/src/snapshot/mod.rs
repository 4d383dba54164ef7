//! Snapshots: a cache, its sequences and its dialog in one checked file.
//!
//! A snapshot holds rows in layout-neutral form, so it restores into another AR, CL or mode of the same model. It is
//! written to a temporary file, synced and renamed, so a reader sees the old file or the new one and nothing between;
//! every section carries a checksum; reading checks all of it before a live cache is touched.
//!
//! The layout of the container is in `container`, that of the sections in `sections`. Unknown kinds of sections are
//! skipped. Version 1 is read (`v1`), version 2 is written.

mod container;
mod scored;
mod sections;
mod v1;

use std::path::Path;

use file_io::FileSet;
use genie_types::TokenId;
use kvmanager::{KvImage, SeqId};

use crate::{ModelHash, StoreError};
use container::ReadError;

/// A token of a sequence in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SavedToken {
    /// The token.
    pub token: TokenId,
    /// Its position.
    pub position: usize,
    /// Whether the model generated it; else it was input.
    pub generated: bool,
}

impl SavedToken {
    /// Input tokens at the positions from 0 on.
    pub fn prompt(tokens: &[TokenId]) -> Vec<Self> {
        let entry = |(position, &token)| Self { token, position, generated: false };
        tokens.iter().enumerate().map(entry).collect()
    }
}

/// A sequence of the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedSequence {
    /// Which one.
    pub seq: SeqId,
    /// Its tokens, in the order they came.
    pub tokens: Vec<SavedToken>,
}

/// What a dialog is beside its tokens and its cache. The dialog is sequence 0.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DialogState {
    /// The token that was generated last, if the model has not processed it.
    pub unprocessed: Option<TokenId>,
    /// Whether the last query was a part of a turn (`BEGIN` or `CONTINUE`).
    pub open: bool,
    /// The sampler's random state, as libGenie writes it: decimal words.
    pub random_state: String,
    /// How far the grammar of the replies has come, if there is one.
    pub grammar: Option<GrammarState>,
    /// Mirostat's bound of the surprise in bits, where the sampler follows it.
    pub mirostat_mu: Option<f64>,
}

/// How far a grammar has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GrammarState {
    /// A number that tells grammars apart.
    pub grammar: u64,
    /// The tokens that it has taken since its start.
    pub tokens: Vec<TokenId>,
    /// Whether its end was reached and said.
    pub ended: bool,
}

/// What a snapshot holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// The model whose rows these are.
    pub model: ModelHash,
    /// The rows.
    pub image: KvImage,
    /// The sequences that have tokens, ascending.
    pub sequences: Vec<SavedSequence>,
    /// The dialog, if there is one.
    pub dialog: Option<DialogState>,
    /// Bytes of the caller's own.
    pub user_data: Vec<u8>,
    /// The name of the bundle that it was made with, for messages; empty where it is not known.
    pub bundle: String,
    /// The LoRA adapters that were applied last, with their strengths; empty for none, `None` where it is not known.
    pub adapters: Option<String>,
}

impl Snapshot {
    /// The processed tokens of a sequence.
    pub fn sequence(&self, seq: SeqId) -> &[SavedToken] {
        self.sequences.iter().find(|s| s.seq == seq).map_or(&[], |s| &s.tokens)
    }

    /// The tokens of the dialog, sequence 0, that are in the cache.
    pub fn tokens(&self) -> impl ExactSizeIterator<Item = TokenId> + '_ {
        self.sequence(SeqId(0)).iter().map(|t| t.token)
    }

    /// All tokens of the dialog with their `generated` flags, the unprocessed one last.
    pub fn history(&self) -> (Vec<TokenId>, Vec<bool>) {
        let last = self.dialog.as_ref().and_then(|d| d.unprocessed).map(|token| (token, true));
        self.sequence(SeqId(0)).iter().map(|t| (t.token, t.generated)).chain(last).unzip()
    }

    /// Refuses rows of another model.
    ///
    /// # Errors
    /// [`StoreError::OtherModel`], [`StoreError::OtherRopeFactors`].
    pub fn check_model(&self, model: ModelHash) -> Result<(), StoreError> {
        if self.model == model {
            return Ok(());
        }
        if self.model == model.with_other_rope_factors() {
            return Err(StoreError::OtherRopeFactors);
        }
        Err(StoreError::OtherModel { expected: model, found: self.model, bundle: self.bundle.clone() })
    }

    /// Refuses rows that other LoRA adapters had a part in. Where it is not known which had, nothing is refused.
    ///
    /// # Errors
    /// [`StoreError::OtherAdapters`].
    pub fn check_adapters(&self, applied: &str) -> Result<(), StoreError> {
        match &self.adapters {
            Some(found) if found != applied => {
                Err(StoreError::OtherAdapters { expected: applied.into(), found: found.clone() })
            }
            _ => Ok(()),
        }
    }

    /// Writes the file: temporary, synced, renamed.
    ///
    /// # Errors
    /// [`StoreError::File`]; a file of that name stays as it was.
    pub fn write(&self, path: &Path) -> Result<(), StoreError> {
        Ok(file_io::write(path, |out| sections::write(self, out))?)
    }

    /// Writes the file as one of a set.
    pub(crate) fn add_to(&self, set: &mut FileSet, name: &str) -> Result<(), StoreError> {
        Ok(set.add(name, |out| sections::write(self, out))?)
    }

    /// Reads and checks a file.
    ///
    /// # Errors
    /// [`StoreError::Io`], [`StoreError::NotASnapshot`], [`StoreError::Newer`], [`StoreError::Torn`],
    /// [`StoreError::Corrupt`], [`StoreError::Kv`].
    pub fn read(path: &Path) -> Result<Self, StoreError> {
        let io = |e| StoreError::io("read snapshot", path)(e);
        let mut file = file_io::open_file(path).map_err(io)?;
        let found = file.metadata().map_err(io)?.len();
        sections::read(&mut file, found).map_err(|e| match e {
            ReadError::Io(e) => io(e),
            ReadError::Bad(e) => e,
        })
    }

    /// The format version of a file, without reading the rest of it.
    ///
    /// # Errors
    /// [`StoreError::Io`], [`StoreError::NotASnapshot`].
    pub fn version_of(path: &Path) -> Result<u32, StoreError> {
        let io = |e| StoreError::io("read snapshot", path)(e);
        container::version(&mut file_io::open_file(path).map_err(io)?).map_err(|e| match e {
            ReadError::Io(e) => io(e),
            ReadError::Bad(e) => e,
        })
    }

    /// The bytes of the file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        sections::write(self, &mut out).expect("a vector takes all bytes");
        out
    }

    /// Reads and checks the bytes of a file.
    ///
    /// # Errors
    /// As [`read`](Self::read), except [`StoreError::Io`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, StoreError> {
        sections::read(&mut &*bytes, bytes.len() as u64).map_err(|e| match e {
            ReadError::Bad(e) => e,
            ReadError::Io(e) => unreachable!("bytes in memory are read without errors: {e}"),
        })
    }
}
