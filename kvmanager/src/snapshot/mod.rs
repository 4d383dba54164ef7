//! Snapshots: a cache and its tokens in one checked file.
//!
//! A snapshot holds rows in layout-neutral form, so it restores into another AR, CL or mode of the same model. It is
//! written to a temporary file, synced and renamed, so a reader sees the old file or the new one and nothing between;
//! every section carries a checksum; reading checks all of it before a live cache is touched.
//!
//! | offset | bytes | all little-endian |
//! |---|---|---|
//! | 0 | 8 | magic `GNKVSNAP` |
//! | 8 | 4 | version, 1 |
//! | 12 | 4 | number of sections |
//! | 16 | 8 | length of the file |
//! | 24 | 8 | xxh3 of the bytes before, and of the section table |
//! | 32 | 32 each | sections: kind u32, index u32, offset u64, length u64, xxh3 u64 |
//!
//! Sections: 1 model hash (32 bytes), 2 tokens (u32 each), 3 groups and cells, 4 geometry, 5 the rows of tensor
//! `index`, 6 bytes of the caller. Unknown kinds are skipped.

mod file;
mod genie_dir;
mod prefix_store;
mod sections;
#[cfg(test)]
mod tests;

pub use file::write_atomically;
pub use genie_dir::{GenieSlot, KV_MAGIC};
pub use prefix_store::PrefixStore;

use crate::cache::KvImage;
use crate::{KvCache, KvError};
use genie_types::TokenId;
use sections::ReadError;
use std::fs::File;
use std::path::{Path, PathBuf};

/// The version this build writes, and the newest it reads.
pub const VERSION: u32 = 1;

/// Identifies a model: rows of one are rubbish to another. Opaque here; a bundle's manifest has one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ModelHash(pub [u8; 32]);

impl std::fmt::Display for ModelHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0[..8].iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

/// What a snapshot holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// The model whose rows these are.
    pub model: ModelHash,
    /// The tokens of the dialog, as the caller counts them.
    pub tokens: Vec<TokenId>,
    /// The rows.
    pub image: KvImage,
    /// Anything else that the caller wants to come back (a sampler's state).
    pub extra: Vec<u8>,
}

/// Why a snapshot was not written or not accepted. The live cache is as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// The file system said no.
    #[error("cannot {action} `{}`", path.display())]
    Io {
        /// What was being done.
        action: &'static str,
        /// To which file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// Another kind of file.
    #[error("not a cache snapshot: {why}")]
    NotASnapshot {
        /// What gave it away.
        why: String,
    },
    /// Written by a later build.
    #[error("snapshot version {found} is newer than this build reads (up to {VERSION})")]
    Newer {
        /// Its version.
        found: u32,
    },
    /// Cut short, or longer than it says.
    #[error("torn snapshot: {found} bytes, its header says {expected}")]
    Torn {
        /// Length by the header.
        expected: u64,
        /// Length of the file.
        found: u64,
    },
    /// Bytes that do not match their checksum, or make no sense.
    #[error("corrupt snapshot: {why}")]
    Corrupt {
        /// Where and how.
        why: String,
    },
    /// Rows of another model.
    #[error("snapshot of model {found}, this is {expected}")]
    OtherModel {
        /// The model that runs.
        expected: ModelHash,
        /// The model it was made with.
        found: ModelHash,
    },
    /// The cache refused the rows.
    #[error(transparent)]
    Kv(#[from] KvError),
}

impl Snapshot {
    /// Takes a snapshot of a live cache.
    ///
    /// # Errors
    /// [`SnapshotError::Kv`].
    pub fn take(kv: &mut KvCache, model: ModelHash, tokens: &[TokenId]) -> Result<Self, SnapshotError> {
        Ok(Self { model, tokens: tokens.to_vec(), image: kv.export()?, extra: Vec::new() })
    }

    /// Puts it into a live cache of the same model, of any shape and mode.
    ///
    /// # Errors
    /// [`SnapshotError::OtherModel`], [`SnapshotError::Kv`]; the cache is then as it was.
    pub fn restore(&self, kv: &mut KvCache, model: ModelHash) -> Result<(), SnapshotError> {
        if self.model != model {
            return Err(SnapshotError::OtherModel { expected: model, found: self.model });
        }
        Ok(kv.import(&self.image)?)
    }

    /// Writes the file: temporary, synced, renamed.
    ///
    /// # Errors
    /// [`SnapshotError::Io`]; a file of that name stays as it was.
    pub fn write(&self, path: &Path) -> Result<(), SnapshotError> {
        write_atomically(path, |out| sections::write(self, out))
    }

    /// Reads and checks a file.
    ///
    /// # Errors
    /// Any [`SnapshotError`] but `OtherModel`.
    pub fn read(path: &Path) -> Result<Self, SnapshotError> {
        let io = |source| SnapshotError::Io { action: "read snapshot", path: path.to_owned(), source };
        let mut file = File::open(path).map_err(io)?;
        let found = file.metadata().map_err(io)?.len();
        sections::read(&mut file, found).map_err(|e| match e {
            ReadError::Io(source) => io(source),
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
    /// Any [`SnapshotError`] but `Io` and `OtherModel`.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, SnapshotError> {
        sections::read(&mut &*bytes, bytes.len() as u64).map_err(|e| match e {
            ReadError::Bad(e) => e,
            ReadError::Io(e) => unreachable!("bytes in memory are read without errors: {e}"),
        })
    }
}
