//! `manifest.json`: what a bundle holds and what it was made from.
//!
//! Nothing in it depends on time or place, so the same model and options give the same manifest.

mod formats;
mod graph_kinds;
mod listed;

pub use formats::{Precision, Splits, UnknownWord, Weights};
pub use graph_kinds::{CacheUpdate, GraphKinds, KvCacheType, PdGraphs, PdUpdate};
pub use listed::{ListedFile, listed_files};

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::hash::hash_file_in_parts;
use crate::{BundleError, MANIFEST_FILE};

/// Value of [`Manifest::format`].
pub const BUNDLE_FORMAT: &str = "open-genie-bundle";
/// Version written by this build, and the newest one it reads.
pub const BUNDLE_VERSION: u32 = 1;

/// A longer file is no manifest.
const MAX_BYTES: u64 = 64 << 20;

/// The file's content.
fn bytes_of(path: &Path) -> Result<Vec<u8>, BundleError> {
    file_io::read_file_up_to(path, MAX_BYTES).map_err(BundleError::io("read", path))
}

/// The whole file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Always [`BUNDLE_FORMAT`].
    pub format: String,
    /// See [`BUNDLE_VERSION`].
    pub version: u32,
    /// Where the weights came from.
    pub source: Source,
    /// How they were compiled.
    pub options: Options,
    /// Which library composed the graphs.
    pub backend: BackendId,
    /// The bundle's other files, in the order they were written.
    pub files: Vec<FileEntry>,
    /// All graphs, split by split.
    pub graphs: Vec<GraphEntry>,
}

/// The checkpoint a bundle was made from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// `model_type` of its configuration: `llama`, `gemma2`.
    pub family: String,
    /// Name of the model directory.
    pub name: String,
    /// The compiler's hash of that directory.
    pub sha256: String,
    /// Positions that the model was trained for, where its configuration has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub positions: Option<usize>,
    /// Some layers rotate keys otherwise than others, or not at all: cached keys cannot be moved to other positions.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub mixed_rotation: bool,
    /// Positions as the model has them: the config's `positional-encoding` that was written for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoding: Option<serde_json::Value>,
    /// Attention windows as the model has them: by prefix of a cache group, the tokens that its layers see.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub windows: BTreeMap<String, usize>,
}

/// The options that shape the output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Options {
    /// Input widths, ascending.
    pub ar: Vec<u32>,
    /// Context lengths, ascending.
    pub cl: Vec<u32>,
    /// Split layout.
    pub splits: Splits,
    /// Decoder layers in a split, when limited.
    pub layers_per_split: Option<usize>,
    /// All splits lie in one file.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub one_file: bool,
    /// Element type.
    pub precision: Precision,
    /// How weights of linear layers are stored; bundles without this key have them in the precision.
    #[serde(default)]
    pub weights: Weights,
    /// `weights` is `q4_0` because most of the file is, not because it was asked for: layers in Q8_0 are as the file has them, and those
    /// in Q4_1 or Q5_1 (in bundles of earlier builds floats too) are rounded to eight bits.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub keeps_eight_bits: bool,
    /// `weights` is a format of blocks, or `bf16`, because the file has some, not because it was asked for: matrices that it has as
    /// bfloat16 are in that (in bundles of earlier builds in the precision), and those that it has as other floats in the precision.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub keeps_floats: bool,
    /// The chip, by the name that `--target` takes; absent when compiled for what the backend runs on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Graphs of a file share their weights, which the x86 emulator cannot load.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub shared_weights: bool,
    /// Kinds of graphs beside the plain ones.
    #[serde(default, skip_serializing_if = "GraphKinds::is_plain")]
    pub kinds: GraphKinds,
    /// LoRA adapters that switch at run time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub adapters: Vec<AdapterEntry>,
    /// LoRA adapters that are in the weights.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub merged: Vec<AdapterEntry>,
    /// The model that this one drafts for, from its hidden states.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drafts_for: Option<String>,
}

/// A LoRA adapter that a bundle was compiled with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct AdapterEntry {
    /// Its name in the bundle, or that of its folder.
    pub name: String,
    /// Hash of its files.
    pub sha256: String,
    /// The largest rank of its matrices.
    pub rank: usize,
    /// The projections that it changes.
    pub targets: Vec<String>,
    /// The input of the graphs that holds its strength; none for one that is in the weights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alpha: Option<String>,
}

/// The library behind the function table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct BackendId {
    /// Provider name.
    pub name: String,
    /// Build id as the library reports it.
    pub build_id: String,
}

/// One file of the bundle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    /// Path within the bundle.
    pub path: String,
    /// Length in bytes.
    pub bytes: u64,
    /// Content hash, lower-case hex.
    pub sha256: String,
}

/// One graph and the file that holds it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GraphEntry {
    /// Name in the context.
    pub name: String,
    /// Context binary, as in [`FileEntry::path`].
    pub file: String,
    /// Split, counted from 1.
    pub split: usize,
    /// Input width in tokens.
    pub ar: usize,
    /// Context length in tokens.
    pub cl: usize,
}

impl Manifest {
    /// Identifies the weights as they were compiled: the same for every choice of AR, CL and splits, since a cache of one
    /// such bundle means the same in another.
    pub fn model_mark(&self) -> [u8; 32] {
        let mut options = serde_json::to_value(&self.options).expect("plain data becomes JSON");
        if let Some(options) = options.as_object_mut() {
            ["ar", "cl", "splits", "layers-per-split", "one-file", "target", "shared-weights"]
                .iter()
                .for_each(|key| drop(options.remove(*key)));
        }
        Sha256::digest(format!("{}\n{}\n{options}", self.source.family, self.source.sha256)).into()
    }

    /// Reads the manifest of a bundle directory.
    ///
    /// # Errors
    /// A file that is missing, unreadable or above 64 MiB, another format, a newer version.
    pub fn read(bundle: &Path) -> Result<Self, BundleError> {
        /// The part that every version has.
        #[derive(Deserialize)]
        struct Head {
            format: String,
            version: u32,
        }
        let path = bundle.join(MANIFEST_FILE);
        let bytes = bytes_of(&path)?;
        let json = |source| BundleError::Json { path: path.clone(), source };
        let head: Head = serde_json::from_slice(&bytes).map_err(json)?;
        if head.format != BUNDLE_FORMAT {
            return Err(BundleError::ManifestFormat { path, found: head.format, expected: BUNDLE_FORMAT });
        }
        if head.version > BUNDLE_VERSION {
            return Err(BundleError::ManifestVersion { path, found: head.version, newest: BUNDLE_VERSION });
        }
        let manifest: Self = serde_json::from_slice(&bytes).map_err(json)?;
        match manifest.files.iter().find(|file| !listed::is_within(&file.path)) {
            Some(file) => Err(BundleError::FileOutside { path, file: file.path.clone() }),
            None => Ok(manifest),
        }
    }

    /// Checks that every listed file is there with the listed length and hash.
    ///
    /// # Errors
    /// The first file that is missing or differs.
    pub fn verify_files(&self, bundle: &Path) -> Result<(), BundleError> {
        self.files.iter().try_for_each(|file| file.verify(bundle, |_| Ok(())))
    }
}

impl FileEntry {
    /// Checks that the file is in that bundle with this length and hash. `each` is given the length of each part that was read, in
    /// bytes, a mebibyte at most.
    ///
    /// # Errors
    /// An error of `each` ends it; a file that is missing or differs.
    pub fn verify<E: From<BundleError>>(&self, bundle: &Path, each: impl FnMut(u64) -> Result<(), E>) -> Result<(), E> {
        let path = bundle.join(&self.path);
        let found = hash_file_in_parts(&path, each)?;
        if (found.bytes, &found.sha256) == (self.bytes, &self.sha256) {
            return Ok(());
        }
        let expected = format!("{} bytes, sha256 {}", self.bytes, self.sha256);
        let found = format!("{} bytes, sha256 {}", found.bytes, found.sha256);
        Err(BundleError::FileChanged { path, expected, found }.into())
    }
}
