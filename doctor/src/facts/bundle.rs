//! A bundle: the config, and the state of each file that it names.

use std::collections::BTreeMap;
use std::path::PathBuf;

use file_io::FileKind;
use qnn_api::BinaryInfo;
use serde_json::Value;

use super::ConfigFile;

/// The bundle to check.
#[derive(Debug, Default)]
pub struct Bundle {
    /// The requested folder or file.
    pub path: PathBuf,
    /// What the path leads to.
    pub kind: Option<FileKind>,
    /// The config; `None` for a single binary, or a folder without one.
    pub config: Option<ConfigFile>,
    /// True if a folder was requested, which should have a config.
    pub is_folder: bool,
    /// Context binaries, in the config's order.
    pub binaries: Vec<Binary>,
    /// The tokenizer that the config names.
    pub tokenizer: Option<TokenizerFile>,
    /// The backend extension configs that the config names.
    pub extensions: Vec<Extension>,
    /// The embedding table that the config names.
    pub embedding: Option<EmbeddingFile>,
    /// `manifest.json`, if it exists.
    pub manifest: Option<Manifest>,
}

/// The state of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileState {
    /// It does not exist.
    Missing {
        /// The current folder has a file of that relative path.
        in_cwd: bool,
    },
    /// It exists but cannot be used, with the reason.
    Unusable(String),
    /// It exists.
    Present {
        /// Its length.
        bytes: u64,
    },
}

/// A context binary.
#[derive(Debug)]
pub struct Binary {
    /// The path as the config writes it.
    pub written: String,
    /// The absolute path.
    pub path: PathBuf,
    /// Its state.
    pub file: FileState,
    /// Its content.
    pub content: Content,
    /// Files of the weights that its graphs take as inputs.
    pub weights: Vec<WeightFile>,
}

/// The file of a weight that graphs take as an input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeightFile {
    /// The input.
    pub tensor: String,
    /// The absolute path.
    pub path: PathBuf,
    /// Its state.
    pub file: FileState,
}

impl Binary {
    /// Its name in findings.
    pub fn name(&self) -> String {
        self.path.file_name().unwrap_or(self.path.as_os_str()).to_string_lossy().into_owned()
    }

    /// Its description, if a library could read it.
    pub fn info(&self) -> Option<&BinaryInfo> {
        match &self.content {
            Content::Described(info) => Some(info),
            _ => None,
        }
    }
}

/// The content of a binary.
#[derive(Debug)]
pub enum Content {
    /// Read by a system library.
    Described(Box<BinaryInfo>),
    /// Rejected by each system library.
    Rejected(Vec<Rejection>),
    /// By its first bytes no context binary.
    Foreign(FileKind),
    /// Not read, with the reason.
    Unexamined(String),
}

/// A system library's error for a file that it cannot read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The library, by its path or `linked in`.
    pub library: String,
    /// True for a library that reads HTP's binaries.
    pub reads_htp: bool,
    /// Its error message.
    pub message: String,
}

/// A `tokenizer.json`.
#[derive(Debug)]
pub struct TokenizerFile {
    /// The path as the config writes it.
    pub written: String,
    /// The absolute path.
    pub path: PathBuf,
    /// Its state.
    pub file: FileState,
    /// Its vocabulary, or why it cannot be read; `None` if the file is missing.
    pub vocabulary: Option<Result<Vocabulary, String>>,
}

/// The checked part of a tokenizer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vocabulary {
    /// Entries, added tokens included.
    pub n_entries: usize,
    /// The config's special tokens with their entries; `None` for an unknown id.
    pub entries: BTreeMap<u32, Option<String>>,
    /// Why it does not fit the width of the logits (unless they are known, the config's `n-vocab`), or does not give a text back.
    pub unfit: Option<String>,
}

/// A backend extension config (`htp_backend_ext_config.json`).
#[derive(Debug)]
pub struct Extension {
    /// The path as the config writes it.
    pub written: String,
    /// The absolute path.
    pub path: PathBuf,
    /// Its state.
    pub file: FileState,
    /// Its content, or why it cannot be read; `None` if the file is missing.
    pub document: Option<Result<Value, String>>,
}

/// A table of embeddings.
#[derive(Debug)]
pub struct EmbeddingFile {
    /// The path as the config writes it.
    pub written: String,
    /// The absolute path.
    pub path: PathBuf,
    /// Its state.
    pub file: FileState,
}

/// A bundle's manifest.
#[derive(Debug, Default)]
pub struct Manifest {
    /// Why it cannot be used, if so.
    pub fault: Option<String>,
    /// Build id of the library that made the bundle.
    pub build_id: Option<String>,
    /// The SoC that the bundle was compiled for, by name.
    pub target: Option<String>,
    /// Graphs of a binary share their weights.
    pub shared_weights: bool,
    /// The model's positions, as `positional-encoding` writes them.
    pub encoding: Option<serde_json::Value>,
    /// The model's attention windows, by prefix of their cache group.
    pub windows: Vec<(String, usize)>,
    /// The listed files and their state.
    pub files: Vec<ManifestFile>,
}

/// A file as listed and as found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ManifestFile {
    /// Path within the bundle.
    pub path: String,
    /// Listed length.
    pub bytes: u64,
    /// Found length; `None` if the file does not exist.
    pub found_bytes: Option<u64>,
    /// False if its hash differs from the listed one; `None` if not compared.
    pub same_hash: Option<bool>,
}

/// A file that the config names.
#[derive(Clone, Copy, Debug)]
pub struct NamedFile<'b> {
    /// The key that names it.
    pub pointer: &'static str,
    /// The path as the config writes it.
    pub written: &'b str,
    /// The absolute path.
    pub path: &'b std::path::Path,
    /// Its state.
    pub state: &'b FileState,
}

impl Bundle {
    /// The files that the config names, with their keys.
    pub fn named_files(&self) -> Vec<NamedFile<'_>> {
        let named = |pointer, written, path, state| NamedFile { pointer, written, path, state };
        let binaries = self
            .binaries
            .iter()
            .map(|b| named("/dialog/engine/model/binary/ctx-bins", b.written.as_str(), b.path.as_path(), &b.file));
        let tokenizer = self
            .tokenizer
            .iter()
            .map(|t| named("/dialog/tokenizer/path", t.written.as_str(), t.path.as_path(), &t.file));
        let extensions = self
            .extensions
            .iter()
            .map(|e| named("/dialog/engine/backend/extensions", e.written.as_str(), e.path.as_path(), &e.file));
        let embedding = self
            .embedding
            .iter()
            .map(|e| named("/dialog/embedding/lut-path", e.written.as_str(), e.path.as_path(), &e.file));
        binaries.chain(tokenizer).chain(extensions).chain(embedding).collect()
    }

    /// True if the config names that file, given relative to the bundle.
    pub fn names(&self, relative: &str) -> bool {
        let path = self.path.join(relative);
        self.named_files().iter().any(|file| file.path == path || file.written == relative)
    }
}
