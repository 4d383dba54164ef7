//! Why a session was not written or not accepted. Each reason is a value that a caller can match on.

use std::path::{Path, PathBuf};
use std::time::Duration;

use file_io::{FileError, FileKind};
use kvmanager::{KvDtype, KvError, SeqId};

use crate::model_hash::ModelHash;
use crate::names::{DIALOG, KV_MAGIC, RANDOM_STATE, SNAPSHOT, VERSION};

/// Why a session was not written or not accepted. Nothing live has changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The file system refuses to read, list or remove.
    #[error("cannot {action} `{}`", path.display())]
    Io {
        /// What was being done.
        action: &'static str,
        /// To which file.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: std::io::Error,
    },
    /// A file could not be written; what was saved before is as it was.
    #[error("{0}")] // not transparent: hints look for the cause by its type
    File(#[from] FileError),
    /// Another kind of file.
    #[error("not a cache snapshot: {0}")]
    NotASnapshot(NotASnapshot),
    /// Written by a later build.
    #[error("snapshot version {found} is newer than this build reads (up to {VERSION})")]
    Newer {
        /// Its version.
        found: u32,
    },
    /// Cut short, or longer than its header has it.
    #[error("torn snapshot: {found} bytes, its header says {expected}")]
    Torn {
        /// Length by the header.
        expected: u64,
        /// Length of the file.
        found: u64,
    },
    /// Bytes that do not match their checksum, or that contradict each other.
    #[error("corrupt snapshot: {0}")]
    Corrupt(Corruption),
    /// Rows of another model.
    #[error("saved with other weights or another type of cache{}: {found}, expected {expected}", named(bundle))]
    OtherModel {
        /// The model that runs.
        expected: ModelHash,
        /// The model that the rows were made with.
        found: ModelHash,
        /// The bundle that they were made with, if the snapshot names it.
        bundle: String,
    },
    /// Rows of this model whose keys the other factors of `longrope` turned.
    #[error(
        "saved with the other factors of `longrope`: its context and this one are on two sides of `original-max-position-embeddings`"
    )]
    OtherRopeFactors,
    /// Rows that other LoRA adapters had a part in.
    #[error("saved with {}, but {}", with_adapters(found), applied(expected))]
    OtherAdapters {
        /// The adapters that are applied, with their strengths; empty for none.
        expected: String,
        /// Those that the rows were made with.
        found: String,
    },
    /// The snapshot of a session cannot be used.
    #[error("the snapshot `{}` cannot be used", path.display())]
    Snapshot {
        /// The file.
        path: PathBuf,
        /// Whether libGenie's own files beside it hold a dialog that this model can go on with.
        genie_is_whole: bool,
        /// What is wrong with it.
        #[source]
        source: Box<StoreError>,
    },
    /// Another process holds the lock of a prefix store and does not give it back.
    #[error("another process {} `{}`{}", if waited.is_zero() { "holds" } else { "has held" }, path.display(), for_seconds(*waited))]
    Locked {
        /// The lock's file.
        path: PathBuf,
        /// How long it was waited for.
        waited: Duration,
    },
    /// The cache cannot be written as libGenie writes it.
    #[error("Genie's cache file has no form for this cache: {0}")]
    NoGenieForm(NoGenieForm),
    /// A folder without a session, or one whose files contradict each other or the model.
    #[error("cannot restore from `{}`: {fault}", dir.display())]
    Folder {
        /// The folder.
        dir: PathBuf,
        /// What is wrong with it.
        fault: FolderFault,
    },
    /// The rows contradict each other.
    #[error(transparent)]
    Kv(#[from] KvError),
}

impl StoreError {
    /// The constructor of an [`Io`](Self::Io), for `map_err`.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Io { action, path: path.to_owned(), source }
    }
}

impl From<Corruption> for StoreError {
    fn from(why: Corruption) -> Self {
        Self::Corrupt(why)
    }
}

impl From<NoGenieForm> for StoreError {
    fn from(why: NoGenieForm) -> Self {
        Self::NoGenieForm(why)
    }
}

/// What shows that a file is no snapshot.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotASnapshot {
    /// Shorter than magic and version.
    #[error("only {n_bytes} bytes")]
    TooShort {
        /// Its length.
        n_bytes: usize,
    },
    /// Another magic number.
    #[error("another magic")]
    Magic,
}

/// What is wrong with the bytes of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Corruption {
    /// Version 0 does not exist.
    #[error("version 0")]
    VersionZero,
    /// Header and section table differ from their checksum.
    #[error("checksum of the header")]
    HeaderChecksum,
    /// A section differs from its checksum.
    #[error("checksum of section {kind}.{index}")]
    SectionChecksum {
        /// What the section holds.
        kind: u32,
        /// Which of that kind.
        index: u32,
    },
    /// A section outside the file, or not right behind the one before it.
    #[error("section {kind}.{index} lies outside the file, or not behind the one before it")]
    SectionPlace {
        /// What the section holds.
        kind: u32,
        /// Which of that kind.
        index: u32,
    },
    /// A section that occurs twice or out of order.
    #[error("section {kind}.{index} twice or out of order")]
    SectionOrder {
        /// What the section holds.
        kind: u32,
        /// Which of that kind.
        index: u32,
    },
    /// A section that every snapshot has.
    #[error("section {kind} is missing")]
    SectionMissing {
        /// What the section would hold.
        kind: u32,
    },
    /// Bytes that belong to no section.
    #[error("{n_bytes} bytes after the last section")]
    TrailingBytes {
        /// How many.
        n_bytes: u64,
    },
    /// A section or list of a length that it cannot have.
    #[error("{what} of {n_bytes} bytes")]
    Length {
        /// The section or list.
        what: &'static str,
        /// Its length, or what is left of it.
        n_bytes: usize,
    },
    /// A section or list that ends before its last number.
    #[error("the {what} ends early")]
    EndsEarly {
        /// The section or list.
        what: &'static str,
    },
    /// A number beyond what its field can hold.
    #[error("{what} of {found}")]
    Number {
        /// The field.
        what: &'static str,
        /// The number.
        found: u64,
    },
    /// A sequence that no cache has.
    #[error("sequence {found} of {}", SeqId::COUNT)]
    Sequence {
        /// Its number.
        found: u32,
    },
    /// A cache tensor that no model has.
    #[error("tensor of {n_heads} heads by {head_dim}, kind {kind}")]
    Tensor {
        /// Its heads.
        n_heads: u32,
        /// Elements of a row of one head.
        head_dim: u32,
        /// Key (0) or value (1).
        kind: u32,
    },
    /// Text that is not UTF-8.
    #[error("the {what} is not text")]
    NotText {
        /// The section.
        what: &'static str,
    },
    /// Version 1: tokens for other positions than those of the cache, and no list of sequences.
    #[error("{n_tokens} tokens for {n_past} positions, and no list of sequences")]
    TokensWithoutSequences {
        /// Tokens of the dialog.
        n_tokens: usize,
        /// Positions of the cache.
        n_past: usize,
    },
    /// Version 1: two lists of the dialog's tokens that differ.
    #[error("the tokens are not those of sequence 0")]
    TokensDiffer,
    /// Version 1: a dialog state of another version.
    #[error("a dialog of version {found}, expected 1")]
    DialogVersion {
        /// Its version.
        found: u32,
    },
    /// Version 1: run lengths of prompt and generated tokens that do not sum to the tokens.
    #[error("counts of tokens do not add up")]
    RunLengths,
}

/// Why a cache has no form in libGenie's file, which holds one dialog from position 0 without gaps.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoGenieForm {
    /// The file holds one sequence.
    #[error("it holds several sequences")]
    SeveralSequences,
    /// Tokens were removed, moved or evicted.
    #[error("it is not one dialog from position 0 without gaps")]
    Gaps,
    /// The file has no cache groups.
    #[error("{n_groups} cache groups")]
    Groups {
        /// How many there are.
        n_groups: usize,
    },
    /// The model keeps no rows.
    #[error("a model without cache tensors")]
    NoTensors,
    /// The file has one width, type and group for all tensors.
    #[error("`{a}` differs from `{b}`")]
    MixedTensors {
        /// A tensor.
        a: String,
        /// The first tensor.
        b: String,
    },
    /// The file counts with 16 bits.
    #[error("{found} {what}, expected at most 65535")]
    TooMany {
        /// What there are too many of.
        what: &'static str,
        /// How many.
        found: usize,
    },
    /// Every row needs its token.
    #[error("{n_tokens} tokens for {n_rows} rows")]
    TooFewTokens {
        /// Tokens of the dialog.
        n_tokens: usize,
        /// Rows of the cache.
        n_rows: usize,
    },
}

/// What is wrong with a folder that a session should be restored from.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FolderFault {
    /// The folder does not exist.
    #[error("there is no such folder")]
    NoFolder,
    /// Something else stands there.
    #[error("it is {found}, expected the folder of a saved dialog")]
    NotAFolder {
        /// What it is.
        found: Box<FileKind>,
    },
    /// Neither our snapshot nor libGenie's files.
    #[error("it has neither `{SNAPSHOT}` nor `{DIALOG}`")]
    NoSession,
    /// A snapshot without a dialog: of a bare engine, or a prompt prefix.
    #[error("`{SNAPSHOT}` holds a cache but no dialog")]
    NoDialog,
    /// `dialog.json` does not have libGenie's keys.
    #[error("`{DIALOG}` is not Genie's: {0}")]
    Counters(serde_json::Error),
    /// A token history that is cut within a token.
    #[error("`{file}` has {n_bytes} bytes, expected a multiple of 4")]
    HistoryLength {
        /// Its file name.
        file: String,
        /// Its length.
        n_bytes: usize,
    },
    /// The token history and `dialog.json` count differently.
    #[error("`{file}` has {n_tokens} tokens, but `{DIALOG}` says {n_past}")]
    HistoryCount {
        /// The history's file name.
        file: String,
        /// Its tokens, repeated end-of-turn tokens dropped.
        n_tokens: usize,
        /// Processed tokens by `dialog.json`.
        n_past: usize,
    },
    /// The token history and `dialog.json` end differently.
    #[error("`{file}` ends in token {found}, but `{DIALOG}` in {expected}")]
    LastToken {
        /// The history's file name.
        file: String,
        /// Its last token.
        found: i64,
        /// The last token by `dialog.json`.
        expected: i64,
    },
    /// The random state is not text.
    #[error("`{RANDOM_STATE}` is not text")]
    RandomState,
    /// The cache file and the token history count differently.
    #[error("the cache file has {n_rows} rows, but the token history {n_tokens} tokens, expected as many or one more")]
    RowCount {
        /// Rows of the cache file.
        n_rows: usize,
        /// Tokens of the history.
        n_tokens: usize,
    },
    /// The cache file has another magic number, or is too short to have one.
    #[error("`{file}` does not begin as Genie's cache file does: {}", magic(*found))]
    Magic {
        /// Its file name.
        file: String,
        /// The number in the place of [`KV_MAGIC`], if it is that long.
        found: Option<u32>,
    },
    /// The cache file is of a model with other tensors.
    #[error(
        "{} tensors of {} heads by {} in it, this model has {} of {} by {}",
        found.0, found.1, found.2, expected.0, expected.1, expected.2
    )]
    OtherTensors {
        /// Tensors, heads and elements of a row of the model.
        expected: (usize, usize, usize),
        /// Those of the file.
        found: (usize, usize, usize),
    },
    /// The cache file has rows of another element type.
    #[error("rows of {} in it, this model keeps {}", found.name(), expected.name())]
    OtherDtype {
        /// The model's.
        expected: KvDtype,
        /// The file's.
        found: KvDtype,
    },
    /// The cache file was quantised with another scale.
    #[error("scale {found} of `{tensor}` in it, {expected} in this model")]
    OtherScale {
        /// The tensor.
        tensor: String,
        /// The model's scale.
        expected: f64,
        /// The file's.
        found: f64,
    },
    /// This model's cache has no form in libGenie's file.
    #[error("Genie's cache file has no form for this model's cache: {0}")]
    NoGenieForm(NoGenieForm),
}

/// How long was waited, if at all.
fn for_seconds(waited: Duration) -> String {
    if waited.is_zero() { String::new() } else { format!(" for {} s", waited.as_secs()) }
}

/// The bundle of a snapshot in parentheses, with the escape codes of a hostile file made visible.
fn named(bundle: &str) -> String {
    if bundle.is_empty() { String::new() } else { format!(" (bundle `{}`)", bundle.escape_debug()) }
}

fn with_adapters(label: &str) -> String {
    if label.is_empty() { "no LoRA adapter".into() } else { format!("LoRA adapter `{}`", label.escape_debug()) }
}

fn applied(label: &str) -> String {
    if label.is_empty() { "none is applied".into() } else { format!("`{label}` is applied") }
}

fn magic(found: Option<u32>) -> String {
    found.map_or_else(|| "it has no header".to_owned(), |n| format!("magic {n:#x}, expected {KV_MAGIC:#x}"))
}
