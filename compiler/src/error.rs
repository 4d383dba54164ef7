//! What can go wrong: each message names the object, what was found, and what was expected.

use crate::bundle::Entries;
use crate::gguf_error::GgufError;
use crate::{Hint, Splits, Weights};
use file_io::{FileKind, FolderError, FolderKind, UnfitPlace};
use genie_bundle::BundleError;
use std::path::PathBuf;

/// This crate's results.
pub type Result<T, E = CompileError> = core::result::Result<T, E>;

/// A failed compilation. [`CompileError::hint`] has advice, apart from the text.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the messages name the fields
pub enum CompileError {
    // Options.
    #[error("no {what} given: need at least one width in tokens")]
    NoWidths { what: &'static str },
    #[error("{what} 0: expected at least 1 token")]
    ZeroWidth { what: &'static str },
    #[error("AR-{ar} is wider than the longest context, CL-{longest_cl}")]
    ArTooWide { ar: usize, longest_cl: usize },
    #[error("0 layers per split: need at least 1")]
    ZeroLayersPerSplit,
    #[error("{layers} layers per split asked for, but layout `mono` has only one split")]
    LayersPerSplitInMono { layers: usize },
    #[error("a cache of type {cache} is for the embedded backend, but the target is `{target}`")]
    CacheTypeForChip { cache: &'static str, target: String },
    #[error("a cache of type {cache} does not go together with {what}")]
    CacheTypeWith { cache: &'static str, what: &'static str },
    #[error("a cache of type q8_0 needs heads of whole blocks of 32 numbers, found heads of {head_dim}")]
    HeadNotInBlocks { head_dim: usize },
    #[error("a cache of type u8 needs the largest key and value of each layer, and none are given")]
    NoKvPeaks,
    #[error("the largest {kind} of layer {layer} is {value}: expected a finite number from 0 on")]
    BadKvPeak { kind: &'static str, layer: usize, value: f32 },
    #[error("the largest keys and values of {found} layers are given, but the model has {expected}")]
    KvPeaksOfOtherModel { found: usize, expected: usize },
    #[error("all splits in one file is for the embedded backend, but the target is `{target}`")]
    OneFileForChip { target: String },

    #[error("{rows} rows for a fused graph: expected 2 to {most} in a context of {context}")]
    PdRows { rows: u32, most: u32, context: u32 },
    #[error("cache updates by an op of a package for target `{target}`: no package for HTPs has it")]
    PdOpForChip { target: String },
    #[error(
        "keys by row cannot be distinguished from keys by column where every AR and every past (CL - AR) is the width of a head, {head_dim}: expected \
         another AR or CL beside them"
    )]
    KeysByRowUntold { head_dim: usize },
    #[error("fused graphs have no form with {what}")]
    PdWith { what: &'static str },
    #[error("fused graphs have no form with LoRA adapters that switch at run time")]
    PdAndLora,
    #[error(
        "fused graphs have one cache for all layers, but attention sees the last {tokens} tokens of a context of {context}"
    )]
    PdWindow { tokens: usize, context: usize },

    // Targets.
    #[error("unknown target `{name}`: expected one of {}", quoted(known))]
    UnknownTarget { name: String, known: Vec<String> },
    #[error("target `{target}` cannot run these graphs: its HTP is a V{arch}, which has no float16 arithmetic")]
    NoFloat16 { target: String, arch: u32 },
    #[error("target `{target}` cannot run weights in the format `{weights}`: expected `float` or `w8`")]
    HtpWeights { target: String, weights: Weights },
    #[error("precision f32 for target `{target}`: its HTP computes in float16")]
    HtpPrecision { target: String },
    #[error("library `{library}` does not compile for target `{target}`: it is `{provider}`, expected an HTP backend")]
    NotHtp { target: String, library: String, provider: String },
    #[error("the backend was opened for {found}, but target `{target}` is chip {expected}")]
    OtherDevice { target: String, expected: u32, found: String },

    #[error("`{file}` needs about {} for its {n_graphs} graphs, the limit of a context binary is {}", gb(*bytes), gb(*limit))]
    PlannedTooLong { file: String, bytes: u64, limit: u64, n_graphs: usize, finer: Option<(Splits, Option<usize>)> },
    #[error("`{file}` is {} long, the limit of a context binary is {}", gb(*bytes), gb(*limit))]
    TooLong { file: String, bytes: u64, limit: u64 },

    // Files.
    #[error("cannot {doing} `{}`", path.display())]
    Io { doing: &'static str, path: PathBuf, source: std::io::Error },
    #[error("`{}` is {found}, expected a file", path.display())]
    NoFile { path: PathBuf, found: String },
    #[error("`{}` is longer than {limit} bytes, expected a small file", path.display())]
    FileTooLong { path: PathBuf, limit: u64 },
    #[error("`{}` is {found}, expected the folder of a model (config.json, safetensors) or a GGUF file", path.display())]
    NotAModel { path: PathBuf, found: FileKind },
    #[error("`{}` has no config.json, expected the folder of a model", dir.display())]
    NoConfig { dir: PathBuf, gguf: Option<String> },
    #[error("`{}` has no tokenizer.json", dir.display())]
    NoTokenizer { dir: PathBuf, other: Option<&'static str> },
    #[error("`{}` does not exist, expected the folder of a model or a GGUF file", path.display())]
    NoModel { path: PathBuf },
    #[error("{0}")] // not transparent: hints look for the cause by its type
    File(#[from] file_io::FileError),
    #[error("`{}` is not the expected JSON", path.display())]
    Json { path: PathBuf, source: serde_json::Error },

    #[error("`{}` cannot be read as JSON: {detail}", path.display())]
    BadJson { path: PathBuf, detail: String },

    // Hidden states, and heads that draft from them.
    #[error("hidden states do not go together with {what}")]
    HiddenStatesWith { what: &'static str },
    #[error("hidden states of family `{family}`: expected a model without factors of embedding and logits")]
    HiddenStatesOf { family: &'static str },
    #[error("{what} of the EAGLE head: expected {expected} as its target has, found {found}")]
    EagleOther { what: &'static str, expected: usize, found: usize },
    #[error("`{}` is no head of EAGLE-1 or EAGLE-2: expected `fc.weight` and layers `layers.N`, found {found}", dir.display())]
    EagleForm { dir: PathBuf, found: String },

    // config.json.
    #[error("unsupported architecture `{found}`: this compiler supports {}", quoted(supported))]
    UnsupportedArchitecture { found: String, supported: Vec<&'static str> },
    #[error("unsupported `{feature}`: found {found}, this compiler needs {accepted}")]
    UnsupportedFeature { feature: &'static str, found: String, accepted: &'static str },
    #[error("unsupported `{key}` in `{}`: found {found}, this compiler needs {accepted}", file.display())]
    UnsupportedValue { file: PathBuf, key: String, found: String, accepted: String },
    #[error("unknown key `{key}` in `{}`, found {found}: it may change what the model computes", file.display())]
    UnknownKey { file: PathBuf, key: String, found: String },
    #[error("`{}` has no `{key}`: expected {expected}", file.display())]
    ConfigMissing { file: PathBuf, key: String, expected: String, near: Vec<String> },
    #[error("bad `{key}` in `{}`: found {found}, expected {expected}", file.display())]
    ConfigValue { file: PathBuf, key: String, found: String, expected: String },
    #[error("`config.json` has no `head_dim`, and hidden size {hidden} is no multiple of {n_heads} heads")]
    HeadDimUnknown { hidden: usize, n_heads: usize },
    #[error("`{key}` is {id}, but the vocabulary has {vocab} entries")]
    TokenOutOfRange { key: &'static str, id: usize, vocab: usize },

    // GGUF files.
    #[error(transparent)]
    Gguf(Box<GgufError>),

    // Checkpoint.
    #[error("no checkpoint in `{}`: neither model.safetensors nor model.safetensors.index.json", dir.display())]
    NoCheckpoint { dir: PathBuf, pickled: Option<String> },
    #[error("`{}` is not a safetensors file: {detail}", path.display())]
    NotSafetensors { path: PathBuf, detail: String },
    #[error("`{}` is not a supported GGUF file: {detail}", path.display())]
    NotGguf { path: PathBuf, detail: String },
    #[error("`{}` is damaged: {detail}", path.display())]
    DamagedFile { path: PathBuf, detail: String },
    #[error("bad entry for tensor `{name}` in `{}`: {detail}", path.display())]
    BadTensorEntry { path: PathBuf, name: String, detail: String },
    #[error("`{}` names no tensors", path.display())]
    EmptyIndex { path: PathBuf },
    #[error("`{}` points outside its directory: shard `{shard}`", path.display())]
    ShardOutside { path: PathBuf, shard: String },
    #[error("`{}` names {n_shards} shards, missing: {}", path.display(), quoted(missing))]
    MissingShards { path: PathBuf, missing: Vec<String>, n_shards: usize },
    #[error("`{}` puts tensor `{name}` in shard `{shard}`, which does not have it", path.display())]
    NotInShard { path: PathBuf, name: String, shard: String },
    #[error("shard `{shard}` has tensor `{name}`, which `{}` does not place there", path.display())]
    NotInIndex { path: PathBuf, name: String, shard: String },
    #[error("tensor `{name}` is missing: the checkpoint has {n_tensors} others")]
    MissingTensor { name: String, n_tensors: usize, near: Vec<String> },
    #[error("{} not part of a {family} model with this configuration", list(names, *n_others))]
    UnreadTensors { family: &'static str, names: Vec<String>, n_others: usize, bias_key: Option<&'static str> },
    #[error("`{key}` is {configured}, but the checkpoint has the tensors of {found} layers")]
    LayerCount { key: String, configured: usize, found: usize },
    #[error("tensor `{head}` differs from `{table}`, although `tie_word_embeddings` makes them one")]
    TiedHeadDiffers { head: String, table: String },
    #[error("tensor `{name}` has shape {found:?}, expected {expected:?}")]
    WrongShape { name: String, expected: Vec<usize>, found: Vec<usize> },
    #[error("tensor `{name}` has element type {found}, expected F32, F16 or BF16")]
    UnsupportedDtype { name: String, found: String },
    #[error("tensor `{name}` has element type {found}, expected floats: it is a list")]
    ListInBlocks { name: String, found: String },
    #[error("tensor `{name}` has {value} at index {index:?}: weights must be finite")]
    NotFinite { name: String, index: Vec<usize>, value: f32 },
    #[error("tensor `{name}` of {dims:?} cannot be stored in blocks: need rows of a multiple of {block} elements")]
    NoBlocks { name: String, dims: Vec<usize>, block: usize },
    #[error("tensor `{name}` has {value}: the scale of its block exceeds float16")]
    ScaleOverflow { name: String, value: f32 },
    #[error("tensor `{name}` has {value} at index {index:?}, which float16 cannot hold (largest 65504)")]
    F16Overflow { name: String, index: Vec<usize>, value: f32 },

    // LoRA adapters.
    #[error("`{}` has no {missing}, expected the folder of a LoRA adapter (adapter_config.json, adapter_model.safetensors)", dir.display())]
    NoAdapter { dir: PathBuf, missing: &'static str },
    #[error("tensor `{name}` of the LoRA adapter in `{}`: {detail}", dir.display())]
    AdapterTensor { dir: PathBuf, name: String, detail: String },
    #[error("the LoRA adapter of `{}` has no tensors", path.display())]
    EmptyAdapter { path: PathBuf },
    #[error("`{name}` cannot be the name of a LoRA adapter: expected 1 to 64 of letters, digits, `_`, `-` and `.`")]
    AdapterName { name: String },
    #[error("tensor `{stored}` stands for `{other}`, and another tensor does too")]
    TensorTwice { stored: String, other: String },
    #[error("LoRA adapters `{other}` and `{name}`: their names are too alike for the inputs of a graph")]
    AdapterTwice { name: String, other: String },

    // Tokenizer.
    #[error("`{}` is not a Hugging Face tokenizer: {detail}", path.display())]
    BadTokenizer { path: PathBuf, detail: String },
    #[error(transparent)]
    Tokenizer(#[from] genie_tokenizer::TokenizerError),

    // Bundle.
    #[error("`{}` already holds a bundle{}", path.display(), beside(others))]
    OutputIsBundle { path: PathBuf, others: Entries },
    #[error("`{}` is not empty and not a bundle: it holds {holds}", path.display())]
    OutputOccupied { path: PathBuf, holds: Entries, source: Option<Box<BundleError>> },
    #[error(transparent)]
    OutputFolder(#[from] FolderError),
    #[error("`{}` cannot be a bundle directory: {why}", path.display())]
    OutputUnfit { path: PathBuf, why: &'static str },
    #[error(transparent)]
    Bundle(#[from] BundleError),

    // Kinds of graphs.
    #[error("AR-{ar} for {what}: expected one of the widths that are compiled, {}", numbers(ars))]
    KindWidth { what: &'static str, ar: u32, ars: Vec<u32> },
    #[error("no graph gives logits: every width is for graphs of cache rows only")]
    NoLogits,
    #[error("widths of the LM head were given, but layout `mono` has no split for it")]
    HeadInMono,
    #[error("the LM head's widths {} leave steps of AR-{least} without logits", numbers(head))]
    HeadTooWide { least: u32, head: Vec<u32> },
    #[error(
        "AR-{least} for graphs of cache rows only: the narrowest width needs the LM head where that is a split of its own"
    )]
    RowsOnlyLeast { least: u32 },
    #[error("graphs of cache rows only are not compiled with LoRA adapters that switch at run time")]
    RowsOnlyAndLora,
    #[error(
        "graphs that scatter into the cache are not compiled where some layers have an attention window of their own"
    )]
    ScatterWindows,
    #[error("graphs that take embeddings have no split with the embedding table")]
    EmbeddingsAndLut,
    #[error("CL-{context} is longer than the {positions} positions that the model has a table of")]
    BeyondPositions { context: usize, positions: usize },

    // Proof.
    #[error("the bundle was compiled but does not run: nothing of it was kept")]
    NotProved { source: Box<dyn std::error::Error + Send + Sync> },

    // Backend.
    #[error(transparent)]
    Backend(#[from] qnn_api::Error),

    /// [`Progress::cancelled`](crate::Progress::cancelled) said so.
    #[error("the compilation was cancelled: nothing was written")]
    Cancelled,

    // Test models.
    #[error("a test model with {what} {found}: expected {expected}")]
    TestModel { what: &'static str, found: usize, expected: &'static str },
}

impl From<GgufError> for CompileError {
    fn from(error: GgufError) -> Self {
        Self::Gguf(Box::new(error))
    }
}

impl CompileError {
    /// What the user may do about it. A backend's own error has hints of its own.
    pub fn hint(&self) -> Option<Hint> {
        Some(match self {
            Self::ArTooWide { ar, .. } => Hint::LongerContext { at_least: *ar },
            Self::NoFloat16 { arch, .. } => Hint::ChipWithFloat16 { arch: *arch },
            Self::HtpPrecision { .. } => Hint::DefaultPrecisionOrNoChip,
            Self::NotHtp { .. } => Hint::HtpLibrary,
            Self::OtherDevice { .. } => Hint::OpenForChip,
            Self::Gguf(error) => return error.hint(),
            Self::PlannedTooLong { finer: Some((splits, layers)), .. } => {
                Hint::FinerSplits { splits: *splits, layers_per_split: *layers }
            }
            Self::PlannedTooLong { finer: None, .. } => Hint::SmallerBundle,
            Self::TooLong { .. } => Hint::FewerLayersPerSplit,
            Self::LayersPerSplitInMono { .. } | Self::HeadInMono => Hint::LayoutWithSplits,
            Self::PdAndLora | Self::RowsOnlyAndLora => Hint::MergeAdapters,
            Self::PdWith { .. } => Hint::NoFusedGraphs,
            Self::RowsOnlyLeast { .. } => Hint::WiderRowsOnlyOrMono,
            Self::NoCheckpoint { dir, pickled: Some(file) } if file.ends_with(".gguf") => {
                Hint::CompileFile(dir.join(file))
            }
            Self::NoCheckpoint { pickled: Some(file), .. } => Hint::ConvertToSafetensors(file.clone()),
            Self::NoCheckpoint { pickled: None, .. } => Hint::ModelDirectory,
            Self::DamagedFile { .. } | Self::MissingShards { .. } | Self::NotInIndex { .. } => Hint::DownloadAgain,
            Self::MissingTensor { name, near, .. } => {
                let maybe_tied = name == "lm_head.weight";
                return (maybe_tied || !near.is_empty())
                    .then(|| Hint::MissingTensor { near: near.clone(), maybe_tied });
            }
            Self::UnreadTensors { bias_key: Some(key), .. } => Hint::SetKey { key },
            Self::UnreadTensors { .. } => Hint::OtherFamilyOrConfig,
            Self::TiedHeadDiffers { .. } => Hint::UntieOrDropHead,
            Self::UnsupportedDtype { found, .. } if found.starts_with("F64") => Hint::SaveAsFloat,
            Self::UnsupportedDtype { found, .. } if is_quantised(found) => Hint::UnquantisedCheckpoint,
            Self::NoConfig { dir, gguf: Some(file) } => Hint::CompileFile(dir.join(file)),
            Self::NoModel { .. } | Self::NoConfig { .. } => Hint::PassModel,
            Self::NotAModel { found: FileKind::Folder(FolderKind::Bundle), .. } => Hint::AlreadyCompiled,
            Self::NotAModel { .. } => Hint::PassModel,
            Self::NoTokenizer { other, .. } => Hint::ConvertTokenizer { from: *other },
            Self::WrongShape { .. } | Self::LayerCount { .. } => Hint::OtherConfig,
            Self::NoBlocks { .. } | Self::ScaleOverflow { .. } => Hint::WeightsW8,
            Self::HtpWeights { .. } => Hint::WeightsW8OrFloat,
            Self::F16Overflow { .. } => Hint::PrecisionF32,
            Self::UnsupportedValue { key, .. } if key == "quantization_config" => Hint::UnquantisedCheckpoint,
            Self::UnknownKey { key, .. } => Hint::RemoveKey { key: key.clone() },
            Self::ConfigMissing { near, .. } if !near.is_empty() => Hint::SimilarKeys { near: near.clone() },
            Self::OutputIsBundle { .. } => Hint::OtherDirectoryOrForce,
            Self::OutputOccupied { .. } => Hint::OtherDirectory,
            Self::OutputFolder(FolderError::Unfit { why: UnfitPlace::MountPoint, .. }) => Hint::DirectoryInside,
            Self::OutputFolder(FolderError::Unfit { .. }) => Hint::AnyOtherDirectory,
            Self::Bundle(BundleError::ManifestVersion { .. }) => Hint::CompileAgainOrNewerBuild,
            Self::Bundle(BundleError::FileChanged { .. }) => Hint::CompileAgain,
            _ => return None,
        })
    }
}

/// True for a type of safetensors files that quantised weights have.
fn is_quantised(dtype: &str) -> bool {
    ["I", "U", "F8", "F6", "F4", "BOOL"].iter().any(|begin| dtype.starts_with(begin)) && !dtype.contains(' ')
}

fn numbers(list: &[u32]) -> String {
    list.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

/// In decimal gigabytes, or a smaller unit for short files.
fn gb(bytes: u64) -> String {
    match bytes {
        0..10_000_000 => format!("{} kB", bytes.div_ceil(1000)),
        10_000_000..1_000_000_000 => format!("{} MB", bytes / 1_000_000),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}

/// Other entries of a bundle's directory, as the end of a sentence.
fn beside(others: &Entries) -> String {
    if others.is_empty() { String::new() } else { format!(", and {others}") }
}

fn quoted<T: AsRef<str>>(names: &[T]) -> String {
    names.iter().map(|name| format!("`{}`", name.as_ref())).collect::<Vec<_>>().join(", ")
}

/// The subject of a sentence: `tensor `a` is`, or `5 tensors are`, with the first names.
fn list(names: &[String], n_others: usize) -> String {
    match (names, n_others) {
        ([one], 0) => format!("tensor `{one}` is"),
        (_, 0) => format!("tensors {} are", quoted(names)),
        _ => format!("tensors {} and {n_others} more are", quoted(names)),
    }
}
