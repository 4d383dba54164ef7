//! A bundle: the config, and what was found of every file that it names.

use std::collections::BTreeMap;
use std::path::PathBuf;

use qnn_api::BinaryInfo;
use serde_json::Value;

use super::ConfigFile;

/// What is to be run.
#[derive(Debug, Default)]
pub struct Bundle {
    /// The folder or file that was asked about.
    pub path: PathBuf,
    /// The config; none for a lone binary, or where the folder has none.
    pub config: Option<ConfigFile>,
    /// True if a folder was given, which should have a config.
    pub is_folder: bool,
    /// Context binaries, in the config's order.
    pub binaries: Vec<Binary>,
    /// The tokenizer that the config names.
    pub tokenizer: Option<TokenizerFile>,
    /// The backend extension configs that the config names.
    pub extensions: Vec<Extension>,
    /// The embedding table that the config names.
    pub embedding: Option<EmbeddingFile>,
    /// `manifest.json`, where there is one.
    pub manifest: Option<Manifest>,
}

/// Whether a file is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileState {
    /// It is not.
    Missing {
        /// But a file of that relative path is there from the current folder.
        in_cwd: bool,
    },
    /// It is there but cannot be used, with the reason.
    Unusable(String),
    /// It is, and so long.
    Present {
        /// Length.
        bytes: u64,
    },
}

/// A context binary.
#[derive(Debug)]
pub struct Binary {
    /// The path as the config writes it.
    pub written: String,
    /// The path from the root.
    pub path: PathBuf,
    /// Whether it is there.
    pub file: FileState,
    /// What it holds.
    pub content: Content,
}

impl Binary {
    /// How a finding calls it.
    pub fn name(&self) -> String {
        self.path.file_name().unwrap_or(self.path.as_os_str()).to_string_lossy().into_owned()
    }

    /// What it holds, if that is known.
    pub fn info(&self) -> Option<&BinaryInfo> {
        match &self.content {
            Content::Described(info) => Some(info),
            _ => None,
        }
    }
}

/// What a binary holds.
#[derive(Debug)]
pub enum Content {
    /// A system library told.
    Described(Box<BinaryInfo>),
    /// Every system library refused it.
    Refused(Vec<Refusal>),
    /// Nobody looked, with the reason.
    Unexamined(String),
}

/// What a system library said of a file that it cannot read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The library, by its path or `linked in`.
    pub library: String,
    /// True for a library that reads HTP's binaries.
    pub reads_htp: bool,
    /// Its words.
    pub words: String,
}

/// A `tokenizer.json`.
#[derive(Debug)]
pub struct TokenizerFile {
    /// The path as the config writes it.
    pub written: String,
    /// The path from the root.
    pub path: PathBuf,
    /// Whether it is there.
    pub file: FileState,
    /// Its vocabulary, or why it cannot be read; nothing while the file is missing.
    pub vocabulary: Option<Result<Vocabulary, String>>,
}

/// What is asked of a tokenizer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vocabulary {
    /// Entries, added tokens included.
    pub n_entries: usize,
    /// The entries of the config's special tokens; nothing where there is none.
    pub entries: BTreeMap<u32, Option<String>>,
}

/// A backend extension config (`htp_backend_ext_config.json`).
#[derive(Debug)]
pub struct Extension {
    /// The path as the config writes it.
    pub written: String,
    /// The path from the root.
    pub path: PathBuf,
    /// Whether it is there.
    pub file: FileState,
    /// Its content, or why there is none; nothing while the file is missing.
    pub document: Option<Result<Value, String>>,
}

/// A table of embeddings.
#[derive(Debug)]
pub struct EmbeddingFile {
    /// The path as the config writes it.
    pub written: String,
    /// The path from the root.
    pub path: PathBuf,
    /// Whether it is there.
    pub file: FileState,
}

/// A bundle's list of what is in it.
#[derive(Debug, Default)]
pub struct Manifest {
    /// Why it cannot be used, if so.
    pub fault: Option<String>,
    /// Build id of the library that made the bundle.
    pub build_id: Option<String>,
    /// The chip that the bundle was compiled for, by name.
    pub target: Option<String>,
    /// Graphs of a binary share their weights.
    pub shared_weights: bool,
    /// The files that it lists, as they are now.
    pub files: Vec<ManifestFile>,
}

/// A file as a manifest lists it, and as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ManifestFile {
    /// Path within the bundle.
    pub path: String,
    /// Listed length.
    pub bytes: u64,
    /// Length now; nothing if it is not there.
    pub found_bytes: Option<u64>,
    /// False if its content has another hash than listed; nothing if nobody looked.
    pub same_hash: Option<bool>,
}

/// A file that the config names, whatever it is for.
#[derive(Clone, Copy, Debug)]
pub struct NamedFile<'b> {
    /// The key that names it.
    pub pointer: &'static str,
    /// The path as the config writes it.
    pub written: &'b str,
    /// The path from the root.
    pub path: &'b std::path::Path,
    /// Whether it is there.
    pub state: &'b FileState,
}

impl Bundle {
    /// All of them, with the key of each.
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

    /// True if the config names that file, which is told relative to the bundle.
    pub fn names(&self, relative: &str) -> bool {
        let path = self.path.join(relative);
        self.named_files().iter().any(|file| file.path == path || file.written == relative)
    }
}
