//! Everything that can fail between a path and a reply, and typed hints. One enum, one table of hints and their words: hence its many lines.

use std::fmt;
use std::path::PathBuf;

use dialog::DialogError;
use engine::{EngineError, Overflow};
use file_io::{FileError, FileKind};
use genie_bundle::{BundleError, ConfigError};
use kvmanager::{Admission, KvError};
use qnn_api::PerfPolicy;
use session_store::StoreError;

use genie_types::TokenId;

use crate::binaries;
#[cfg(feature = "compile")]
use crate::models::ModelsError;
use crate::options::BackendChoice;
use crate::weights::WeightFault;

/// Why a bundle could not be opened, or a query not be answered. [`Error::hint`] has advice, apart from the text.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the messages say what the fields are
pub enum Error {
    // Fused graphs.
    #[error("the bundle of `{}` has no fused graphs", path.display())]
    NoFusedGraphs { path: PathBuf },
    #[error("fused graphs have no form with {what}")]
    NotWithFused { what: &'static str },
    #[error("the bundle of `{}` has fused graphs alone, and {what} takes plain ones", path.display())]
    OnlyFused { path: PathBuf, what: &'static str },
    #[error("`pd_fusion.enable` is false in `{}`, but the bundle has fused graphs alone", path.display())]
    FusedDisabled { path: PathBuf },

    // Op packages.
    #[error("op package `{}` cannot be registered", path.display())]
    OpPackage { path: PathBuf, source: qnn_api::Error },
    #[error(
        "expected op packages like `libQnnLLaMAPackage_CPU.so` in folder `{}`, found {}",
        folder.display(),
        if source.is_none() { "none" } else { "no such folder that can be read" }
    )]
    OpPackageFolder { folder: PathBuf, source: Option<std::io::Error> },

    // Options.
    #[error("unknown backend `{name}`: expected `host`, `htp` or the path of a QNN library")]
    UnknownBackend { name: String },
    #[error(
        "an image of {rows} rows of embeddings cannot lie in {} frames of {} rows of {} columns", grid.frames, grid.rows, grid.columns
    )]
    ImageGrid { rows: usize, grid: engine::Grid },
    #[error("unknown shared memory `{text}`: expected `auto`, `on` or `off`")]
    UnknownSharedMemory { text: String },
    #[error("there is no memory to share with an NPU")]
    NoSharedMemory { source: qnn_api::Error },
    #[error("threads can be pinned with the embedded backend only, found backend `{provider}`")]
    PinOnOtherBackend { provider: String },
    #[error("the number of threads can be set with the embedded backend only, found backend `{provider}`")]
    ThreadsOnOtherBackend { provider: String },
    #[error("the embedded backend reads context binaries itself, but the system library `{}` was given", path.display())]
    SystemOnEmbedded { path: PathBuf },
    #[error("the embedded backend runs on this machine's CPU, but SoC `{name}` was given")]
    SocOnEmbedded { name: String },
    #[error("{found} threads: expected 1 to {most}")]
    ThreadCount { found: usize, most: usize },
    #[error("{whose}: expected at least one core, found none")]
    NoCores { whose: &'static str, may: Vec<usize> },
    #[error("{whose}: expected cores that this process may use ({}), found core {core}", qnn_host::pool::shown(may))]
    CoreUnavailable { whose: &'static str, core: usize, may: Vec<usize> },
    #[error("threads cannot be pinned: this system does not list its cores")]
    CoresUnknown,
    #[error("unknown long context `{text}`: expected `window:N`, `shift`, `shift:N`, `keydiff`, `keydiff:N` or `none`")]
    UnknownLongContext { text: String },
    #[error("`{text}` is no LoRA adapter: expected `NAME` or `NAME:STRENGTH`, a finite number")]
    BadLora { text: String },
    #[error("tokens are reserved for long context, but there is none: {found} reserved tokens")]
    ReservedWithoutLongContext { found: usize },
    #[error("unknown SoC `{name}`")]
    UnknownSoc { name: String },
    #[error("SoC `{name}` has no HTP")]
    NoHtp { name: String, dsp_arch: u32 },
    #[error("unknown performance profile `{name}` in the backend extension config")]
    UnknownPerfProfile { name: String },
    #[error("backend `{backend}` has no clocks to vote for, but performance policy `{}` was given", policy.name())]
    NoClocks { backend: String, policy: PerfPolicy },
    #[error("cannot vote for performance policy `{}`", policy.name())]
    Vote { policy: PerfPolicy, source: qnn_api::Error },

    // Opening.
    #[error("`{}` does not exist", path.display())]
    NoFile { path: PathBuf },
    #[error("`{}` is {found}, expected a context binary", path.display())]
    NoBinary { path: PathBuf, found: Box<FileKind> },
    #[error("`{}` is {found}, but backend `{backend}` was chosen", path.display())]
    OtherBackend { path: PathBuf, found: Box<FileKind>, backend: BackendChoice },
    #[error("`{}` has format version {found}, this program reads up to {newest}", path.display())]
    NewerBinary { path: PathBuf, found: u32, newest: u32 },
    #[error(
        "`{}` is {}, but `{}` is {}: one bundle runs on one backend", files[0].display(), found[0], files[1].display(), found[1]
    )]
    MixedBinaries { files: [PathBuf; 2], found: [Box<FileKind>; 2] },
    #[error(transparent)]
    Bundle(#[from] BundleError),
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("cannot load backend `{backend}`")]
    Load { backend: String, source: qnn_api::Error },
    #[error("cannot start backend `{backend}`")]
    Start { backend: String, source: qnn_api::Error },
    #[error("`{key}` of the config is {token}, but the model's vocabulary has {vocab_size} entries")]
    SpecialToken { key: &'static str, token: TokenId, vocab_size: usize },
    #[error("the config's sampler calls the function `{name}`, which the program has not given")]
    NoSamplerCallback { name: String },
    #[error("the encoder's vectors have {found} numbers, the config's `embed-size` is {expected}")]
    EncoderWidth { expected: usize, found: usize },
    #[error("the text has {found} tokens, but the encoder takes at most {most}")]
    TextTooLong { found: usize, most: usize },
    #[error("the text has {bytes} bytes, but the encoder takes at most {most} tokens, of at most {longest} bytes each")]
    TextTooLarge { bytes: usize, most: usize, longest: usize },
    #[error("cannot load the bundle's graphs")]
    Graphs { source: EngineError },

    #[error("the weights in `{}` are damaged: what is computed with them means nothing", path.display())]
    DamagedWeights { path: PathBuf, source: WeightFault },
    #[error("`{}` is another file than the one that this bundle was made with", path.display())]
    OtherWeights { path: PathBuf, source: WeightFault },

    // Proving.
    #[error("the graphs give {found} logits, the config's `n-vocab` is {expected}")]
    LogitsWidth { found: usize, expected: usize },
    #[error("a step of {width} tokens gives logits with {value} at index {index}: expected finite numbers")]
    LogitsNotFinite { width: usize, index: usize, value: f32 },

    // Running.
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error(transparent)]
    Dialog(DialogError),
    #[error(transparent)]
    Serving(#[from] serving::ServeError),
    #[error("cannot open the `{role}` model")]
    SecondModel { role: &'static str, source: Box<Error> },
    #[error("a speculation `{text}` is not known: expected {expected}")]
    UnknownSpeculation { text: String, expected: String },
    #[error("{error}")]
    ContextExceeded { error: Box<DialogError>, fits: Option<Admission> },
    #[error(transparent)]
    Tokenizer(#[from] dialog::TokenizerError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("cannot save into `{}`", folder.display())]
    Save { folder: PathBuf, source: Box<DialogError> },
    #[error("cannot restore the dialog in `{}`", folder.display())]
    Restore { folder: PathBuf, source: Box<DialogError> },
    #[error("the bundle's chat template cannot be used")]
    Template { source: chat_template::TemplateError },
    #[error("`{}` {problem}", path.display())]
    Messages { path: PathBuf, problem: String },
    #[error("cannot write the calibration into `{}`", folder.display())]
    WriteCalibration { folder: PathBuf, source: FileError },

    // Images.
    #[error("the bundle has no image encoder")]
    NoImageEncoder,
    #[error("the bundle's graphs take token ids, not rows of embeddings")]
    TakesNoRows,
    #[error(
        "{} in the bundle's tokenizer",
        name.as_ref().map_or_else(|| format!("none of the image tokens `{known}` is"), |name| format!("image token `{name}` is not"))
    )]
    NoImageToken { name: Option<String>, known: String },
    #[error("the prompt has image token {token} in {found} places, expected {expected}, as many as there are images")]
    ImagePlaces { token: TokenId, expected: usize, found: usize },
    #[error(
        "{found} image tokens in a row (token {token}), but the image has {expected} rows: expected 1 or {expected}"
    )]
    ImageRun { token: TokenId, expected: usize, found: usize },

    // Measuring.
    #[error("a prompt of {length} tokens cannot be verified")]
    PromptLength { length: usize, limit: usize },
    #[error("a window of {window} tokens cannot be measured: the context holds {limit} tokens")]
    Window { window: usize, least: usize, limit: usize },
    #[cfg(feature = "compile")]
    #[error("no checkpoint `{name}` was found whose hash is that of the bundle's manifest")]
    NoCheckpoint { name: String },
    #[cfg(feature = "compile")]
    #[error("`{}` is another model than `{name}`, which the bundle was compiled from", path.display())]
    OtherCheckpoint { path: PathBuf, name: String },
    #[cfg(feature = "compile")]
    #[error("the bundle `{}` has LoRA adapters merged into its weights: graphs without a cache are compiled from a checkpoint alone", bundle.display())]
    NaiveOfMerged { bundle: PathBuf },
    #[cfg(feature = "compile")]
    #[error("an attention window is shorter than the context: no graph without a cache computes it")]
    NaiveWindow,
    #[error("0 tokens to generate verify nothing")]
    NothingToVerify,
    #[error("a tolerance of {found} tells nothing apart: expected a finite number of at least 0")]
    Tolerance { found: f32 },
    #[error("nothing to predict in {tokens} tokens")]
    NothingToPredict { tokens: usize },

    // The demo.
    #[cfg(feature = "compile")]
    #[error("no cache folder: none of GENIE_CACHE, XDG_CACHE_HOME, HOME is set")]
    NoCacheFolder,
    #[cfg(feature = "compile")]
    #[error("cannot write to `{}`", path.display())]
    DemoFile { path: PathBuf, source: std::io::Error },
    #[cfg(feature = "compile")]
    #[error(transparent)]
    DemoFolder(#[from] file_io::FolderError),
    #[cfg(feature = "demo")]
    #[error("the demo model cannot be compiled into `{}`: it holds files that are not the demo's", folder.display())]
    DemoOccupied { folder: PathBuf, source: Box<compiler::CompileError> },
    #[cfg(feature = "compile")]
    #[error(transparent)]
    Compile(#[from] compiler::CompileError),
    #[cfg(feature = "compile")]
    #[error(transparent)]
    Models(#[from] crate::models::ModelsError),
}

/// What may help. [`fmt::Display`] words it for a user of this crate; a program with flags words it in those.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Hint {
    /// Give a bundle's folder or its config.
    GiveBundle,
    /// Give the checkpoint that the bundle was compiled from.
    GiveCheckpoint,
    /// Give a model: a bundle, a GGUF file, a Hugging Face folder, or a name of the folder of models.
    GiveModel(Option<PathBuf>),
    /// This name is near to the one that was given.
    Similar(String),
    /// Give the path of one.
    GivePath,
    /// Compile that checkpoint into a bundle first.
    CompileFirst(PathBuf),
    /// Give the folder that holds the file.
    GiveFolder(PathBuf),
    /// Give the path of a package that this machine can load.
    OpPackageFile,
    /// Name the function that gives the package's interface.
    OpPackageProvider,
    /// Packages are for a target that the backend must be.
    OpPackageTarget,
    /// Give each package once.
    OpPackageOnce,
    /// The package is at fault.
    OpPackageBuild,
    /// The graphs name a package that was not given.
    GiveOpPackage,
    /// Compile the bundle with fused graphs, or run it on the plain ones.
    CompileFused,
    /// Compile the bundle with plain graphs as well.
    CompilePlain,
    /// Let the config choose the plain graphs, or leave the option out.
    DisableFused,
    /// Let the config choose the fused graphs.
    EnableFused,
    /// Correct the special tokens of the config.
    CorrectToken,
    /// The file was not downloaded.
    DownloadAgain,
    /// The file is damaged, or was not copied whole.
    CopyAgain,
    /// Compile the whole bundle again, for one backend.
    CompileAgain,
    /// Let the binaries choose the backend.
    BackendOfBundle,
    /// Use a newer version of this program.
    NewerProgram,
    /// Choose a backend that exists.
    ChooseBackend,
    /// Do not pin threads, or use the embedded backend.
    EmbeddedBackendOnly,
    /// Pin to some of these cores.
    CoresToPin(Vec<usize>),
    /// Do not pin threads on this system.
    DoNotPin,
    /// Give a SoC's name or number.
    GiveSoc,
    /// The DSP architecture of the SoC is too old for the HTP backend.
    DspTooOld {
        /// Its architecture.
        dsp_arch: u32,
    },
    /// Use one of the performance policies there are.
    ChoosePerfPolicy,
    /// Use plain memory.
    PlainMemory,
    /// Cast no vote for this backend.
    CastNoVote,
    /// This much fits.
    Fits(Admission),
    /// Choose a number of tokens in this range, ends included.
    ChooseTokens {
        /// Fewest.
        least: usize,
        /// Most.
        most: usize,
    },
    /// Give at least one token to generate.
    GenerateTokens,
    /// Give a tolerance as a plain number.
    ChooseTolerance,
    /// The snapshot of a session is damaged, libGenie's files beside it are whole: without the snapshot they are used.
    RemoveSnapshot(PathBuf),
    /// The session belongs to another bundle: this one, if its name is known.
    RestoreWithBundle(String),
    /// The session needs the context size that it was saved with.
    RestoreWithContextSize,
    /// The bundle's files are damaged, or not its own.
    CopyBundleAgain,
    /// The KV cache does not fit into memory.
    SmallerContext,
    /// The text is too short.
    LongerText,
    /// Leave out the number of threads.
    LeaveOutThreads,
    /// Leave out the system library, or name a backend library that uses it.
    LeaveOutSystemLibrary,
    /// Leave out the SoC, or choose an HTP backend.
    LeaveOutSoc,
    /// Name the binary of an image encoder.
    GiveImageEncoder,
    /// Use a bundle whose graphs take embeddings.
    EmbeddingsBundle,
    /// Name the token that stands for an image.
    NameImageToken,
    /// Write the image token where images belong.
    WriteImageToken,
    /// Choose a window that the graphs hold beside the reserved tokens, or a bundle with a longer context.
    ShorterWindow {
        /// The most tokens of it.
        most: usize,
        /// Reserved tokens beside it.
        reserved: usize,
    },
    /// Reserve fewer tokens.
    ReserveFewer {
        /// The most.
        most: usize,
    },
    /// Choose one of the kinds of long context.
    ChooseLongContext,
    /// Choose a kind of long context beside the reserved tokens, or reserve none.
    LongContextToReserve,
    /// Use a bundle that was compiled with adapters, or none of them.
    BundleWithAdapters,
    /// Set a cache folder.
    SetCacheFolder,
    /// Give the messages as they are, or another chat template.
    OtherTemplate,
    /// A backend's own hint.
    Backend(qnn_api::Hint),
}

impl Error {
    /// Wraps a dialog's error; where the context is full, with what fits.
    pub(crate) fn of_dialog(error: DialogError, fits: Option<Admission>) -> Self {
        match error {
            DialogError::Overflow(Overflow::ContextExceeded { .. }) => {
                Self::ContextExceeded { error: Box::new(error), fits }
            }
            other => Self::Dialog(other),
        }
    }

    /// The status that Genie's C functions return for a query that ends so: 4 where the prompt does not fit, else -6
    /// ("query failed").
    pub fn genie_status(&self) -> i32 {
        match self {
            Self::ContextExceeded { .. } => 4,
            Self::Dialog(error) => error.genie_status(),
            _ => -6,
        }
    }

    /// Whether it was stopped on request: by a [`StopFlag`](crate::StopFlag), or by
    /// [`Progress::cancelled`](compiler::Progress::cancelled).
    pub fn is_stopped(&self) -> bool {
        match self {
            Self::Engine(EngineError::Stopped { .. })
            | Self::Dialog(DialogError::Engine(EngineError::Stopped { .. })) => true,
            #[cfg(feature = "compile")]
            Self::Compile(compiler::CompileError::Cancelled) => true,
            _ => false,
        }
    }

    /// What may help, if something is known to.
    pub fn hint(&self) -> Option<Hint> {
        Some(match self {
            Self::Bundle(BundleError::NoConfig { .. }) => Hint::GiveBundle,
            Self::Bundle(BundleError::NotABundle { path, found }) => {
                binaries::instead(path, found).unwrap_or(Hint::GiveBundle)
            }
            Self::NoBinary { path, found } => binaries::instead(path, found)?,
            Self::SpecialToken { .. } => Hint::CorrectToken,
            Self::OtherBackend { .. } => Hint::BackendOfBundle,
            Self::NewerBinary { .. } => Hint::NewerProgram,
            Self::MixedBinaries { .. } => Hint::CompileAgain,
            Self::UnknownBackend { .. } => Hint::ChooseBackend,
            Self::PinOnOtherBackend { .. } => Hint::EmbeddedBackendOnly,
            Self::ThreadsOnOtherBackend { .. } => Hint::LeaveOutThreads,
            Self::SystemOnEmbedded { .. } => Hint::LeaveOutSystemLibrary,
            Self::SocOnEmbedded { .. } => Hint::LeaveOutSoc,
            Self::NoCores { may, .. } | Self::CoreUnavailable { may, .. } => Hint::CoresToPin(may.clone()),
            Self::CoresUnknown => Hint::DoNotPin,
            Self::UnknownSoc { .. } => Hint::GiveSoc,
            Self::NoHtp { dsp_arch, .. } => Hint::DspTooOld { dsp_arch: *dsp_arch },
            Self::UnknownPerfProfile { .. } => Hint::ChoosePerfPolicy,
            Self::NoClocks { .. } => Hint::CastNoVote,
            Self::UnknownSharedMemory { .. } | Self::NoSharedMemory { .. } => Hint::PlainMemory,
            Self::Load { source, .. } | Self::Start { source, .. } | Self::Vote { source, .. } => {
                Hint::Backend(source.hint()?)
            }
            Self::OpPackage { source, .. } => match number(source)? {
                4005 => Hint::OpPackageFile,
                4006 => Hint::OpPackageProvider,
                4003 => Hint::OpPackageTarget,
                4009 => Hint::OpPackageOnce,
                _ => Hint::OpPackageBuild,
            },
            Self::OpPackageFolder { .. } => Hint::OpPackageFile,
            Self::NoFusedGraphs { .. } => Hint::CompileFused,
            Self::NotWithFused { .. } => Hint::DisableFused,
            Self::OnlyFused { .. } => Hint::CompilePlain,
            Self::FusedDisabled { .. } => Hint::EnableFused,
            Self::Graphs { source } if source.is_only_fused() => Hint::CompilePlain,
            Self::Template { .. } => Hint::OtherTemplate,
            Self::ContextExceeded { fits, .. } => Hint::Fits((*fits)?),
            Self::PromptLength { limit, .. } => Hint::ChooseTokens { least: 1, most: *limit },
            Self::Window { least, limit, .. } => Hint::ChooseTokens { least: *least, most: *limit },
            Self::NoImageEncoder => Hint::GiveImageEncoder,
            Self::TakesNoRows => Hint::EmbeddingsBundle,
            Self::NoImageToken { .. } => Hint::NameImageToken,
            Self::ImagePlaces { .. } | Self::ImageRun { .. } => Hint::WriteImageToken,
            Self::NothingToPredict { .. } => Hint::LongerText,
            Self::DamagedWeights { .. } | Self::OtherWeights { .. } => Hint::CopyBundleAgain,
            Self::NothingToVerify => Hint::GenerateTokens,
            Self::Tolerance { .. } => Hint::ChooseTolerance,
            Self::Restore { source, .. } => saved_hint(source)?,
            Self::Graphs { source } | Self::Engine(source) | Self::Dialog(DialogError::Engine(source)) => {
                graphs_hint(source)?
            }
            Self::UnknownLongContext { .. } => Hint::ChooseLongContext,
            Self::ReservedWithoutLongContext { .. } => Hint::LongContextToReserve,
            #[cfg(feature = "compile")]
            Self::NoCheckpoint { .. } | Self::OtherCheckpoint { .. } => Hint::GiveCheckpoint,
            #[cfg(feature = "compile")]
            Self::Models(ModelsError::NoCacheFolder) => Hint::SetCacheFolder,
            #[cfg(feature = "compile")]
            Self::Models(ModelsError::Unknown { similar: Some(similar), .. }) => Hint::Similar(similar.clone()),
            #[cfg(feature = "compile")]
            Self::Models(ModelsError::Unknown { folder, .. }) => Hint::GiveModel(folder.clone()),
            #[cfg(feature = "compile")]
            Self::Models(ModelsError::NoFile { .. } | ModelsError::NoModel { .. }) => Hint::GiveModel(None),
            #[cfg(feature = "compile")]
            Self::Models(ModelsError::SeveralGguf { .. } | ModelsError::Ambiguous { .. }) => Hint::GivePath,
            #[cfg(feature = "demo")]
            Self::NoCacheFolder | Self::DemoOccupied { .. } => Hint::SetCacheFolder,
            _ => return None,
        })
    }
}

/// What helps against an engine that does not open.
fn graphs_hint(error: &EngineError) -> Option<Hint> {
    match *error {
        EngineError::Kv(KvError::Memory { .. }) => Some(Hint::SmallerContext),
        // With more reserved tokens than the graphs hold no window fits.
        EngineError::WindowTooLong { sinks, most, .. } if sinks >= most => {
            Some(Hint::ReserveFewer { most: most.max(1) - 1 })
        }
        EngineError::WindowTooLong { sinks, most, .. } => {
            Some(Hint::ShorterWindow { most: most - sinks, reserved: sinks })
        }
        EngineError::TooManyReserved { most, .. } => Some(Hint::ReserveFewer { most }),
        EngineError::NoAdapters { .. } => Some(Hint::BundleWithAdapters),
        EngineError::LoadBinary { ref source, .. } | EngineError::FindGraph { ref source, .. } if lacks_op(source) => {
            Some(Hint::GiveOpPackage)
        }
        EngineError::LoadBinary { ref source, .. } | EngineError::FindGraph { ref source, .. }
            if package_failed(source) =>
        {
            Some(Hint::OpPackageBuild)
        }
        EngineError::Execute { ref source, .. } if source.downcast_ref().is_some_and(package_failed) => {
            Some(Hint::OpPackageBuild)
        }
        _ => None,
    }
}

/// What a QNN library returned.
fn number(error: &qnn_api::Error) -> Option<u64> {
    if let qnn_api::Error::Qnn { source, .. } = error { Some(source.code) } else { None }
}

/// The embedded backend was given a node of a package that is not registered.
fn lacks_op(error: &qnn_api::Error) -> bool {
    let qnn_api::Error::Qnn { source, .. } = error else { return false };
    source.library_message.as_ref().is_some_and(|message| message.contains("a package registered with this backend"))
}

/// A function of a registered package failed, as the embedded backend says it.
fn package_failed(error: &qnn_api::Error) -> bool {
    let qnn_api::Error::Qnn { source, .. } = error else { return false };
    let says = |message: &String| message.contains("`createOpImpl`") || message.contains("`opImplFn`");
    source.library_message.as_ref().is_some_and(says)
}

/// What helps against a session that is not accepted.
fn saved_hint(error: &DialogError) -> Option<Hint> {
    let (DialogError::Store(error) | DialogError::Engine(EngineError::Saved(error))) = error else { return None };
    match error {
        StoreError::Snapshot { path, genie_is_whole: true, .. } => Some(Hint::RemoveSnapshot(path.clone())),
        StoreError::OtherModel { bundle, .. } => Some(Hint::RestoreWithBundle(bundle.clone())),
        StoreError::OtherRopeFactors => Some(Hint::RestoreWithContextSize),
        _ => None,
    }
}

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::GiveCheckpoint => f.write_str("give the checkpoint that the bundle was compiled from"),
            Self::GiveBundle => f.write_str("give a bundle's folder or its `genie_config.json`"),
            Self::GiveModel(None) => f.write_str("give a bundle, a GGUF file or a Hugging Face folder"),
            Self::GiveModel(Some(folder)) => {
                write!(f, "give a bundle, a GGUF file or a Hugging Face folder, or put one into `{}`", folder.display())
            }
            Self::Similar(name) => write!(f, "similar: `{name}`"),
            Self::GivePath => f.write_str("give the path of one of them"),
            Self::CompileFirst(path) => write!(f, "compile `{}` into a bundle first", path.display()),
            Self::GiveFolder(folder) => write!(f, "give the folder `{}` of the bundle", folder.display()),
            Self::CorrectToken => {
                f.write_str("set it to the model's token, as in its `generation_config.json`, or compile again")
            }
            Self::DownloadAgain => f.write_str("download the file again, with git-lfs where it is a pointer"),
            Self::CopyAgain => f.write_str("the file is damaged: copy it again, or compile it again"),
            Self::CompileAgain => f.write_str("compile the whole bundle again for one backend"),
            Self::BackendOfBundle => f.write_str("choose no backend: it follows from the bundle's binaries"),
            Self::NewerProgram => f.write_str("the file was made by a newer version: update this program"),
            Self::ChooseBackend => {
                f.write_str("`host` runs on this machine's CPU, `htp` finds Qualcomm's `libQnnHtp.so`")
            }
            Self::LeaveOutThreads => f.write_str("leave out the number of threads, or use the embedded backend"),
            Self::LeaveOutSystemLibrary => {
                f.write_str("leave out the system library, or choose the backend that uses it")
            }
            Self::LeaveOutSoc => f.write_str("leave out the SoC, or choose an HTP backend"),
            Self::EmbeddedBackendOnly => f.write_str("do not pin threads, or use the embedded backend"),
            Self::CoresToPin(may) => write!(f, "choose from cores {}", qnn_host::pool::shown(may)),
            Self::DoNotPin => f.write_str("do not pin threads"),
            Self::OtherTemplate => f.write_str("choose another chat template, or give the text without one"),
            Self::GiveSoc => f.write_str("use a name such as `sm8650` or Qualcomm's number, for example 57"),
            Self::DspTooOld { dsp_arch } => {
                let first = qnn_api::soc::FIRST_HTP_ARCH;
                write!(f, "its DSP is V{dsp_arch}; the HTP backend needs V{first} or later")
            }
            Self::ChoosePerfPolicy => {
                let names: Vec<&str> = PerfPolicy::ALL.iter().map(|policy| policy.name()).collect();
                write!(f, "use one of {}", names.join(", "))
            }
            Self::OpPackageFile => f.write_str("give the path of a library that this machine can load"),
            Self::OpPackageProvider => f.write_str("name the function that gives the package's interface"),
            Self::OpPackageTarget => {
                f.write_str("this backend takes no package for that target: the embedded one takes `CPU`")
            }
            Self::OpPackageOnce => f.write_str("give each package once"),
            Self::OpPackageBuild => {
                f.write_str("the package itself is at fault: docs/op-packages.md says what a backend asks of it")
            }
            Self::GiveOpPackage => f.write_str("register the op package that the graphs name, if you trust its code"),
            Self::CompileFused => {
                f.write_str("compile the bundle with fused graphs, or remove `pd_fusion.enable` from its config")
            }
            Self::CompilePlain => f.write_str("compile the bundle with plain graphs as well"),
            Self::DisableFused => f.write_str(
                "leave it out, or set `pd_fusion.enable` to false in the config of a bundle that has plain graphs as well",
            ),
            Self::EnableFused => {
                f.write_str("remove `pd_fusion.enable` from the config, or compile the bundle with plain graphs as well")
            }
            Self::PlainMemory => f.write_str("shared memory is that of a Snapdragon: use plain memory elsewhere"),
            Self::CastNoVote => f.write_str("only HTP backends have clocks: choose no performance policy"),
            Self::Fits(fits) => fits.fmt(f),
            Self::ChooseTokens { least, most } => write!(f, "choose {least} to {most} tokens"),
            Self::GenerateTokens => f.write_str("generate at least 1 token"),
            Self::ChooseTolerance => f.write_str("choose a tolerance such as 0.001"),
            Self::RemoveSnapshot(path) => write!(
                f,
                "Genie's own files beside it are whole, but have no checksums: remove `{}` to continue from them",
                path.display()
            ),
            Self::RestoreWithBundle(name) if name.is_empty() => {
                f.write_str("restore with the bundle that it was saved with, or start a new session")
            }
            Self::RestoreWithBundle(name) => {
                write!(f, "restore with bundle `{}`, or start a new session", name.escape_debug())
            }
            Self::RestoreWithContextSize => {
                f.write_str("restore with the context size that it was saved with (`--context-size`), or start a new session")
            }
            Self::CopyBundleAgain => f.write_str("copy the bundle again, or compile it again; then check the disk"),
            Self::SmallerContext => f.write_str("use a bundle with a smaller context length, or free memory"),
            Self::GiveImageEncoder => f.write_str("give the context binary of an image encoder, or rows of embeddings"),
            Self::EmbeddingsBundle => f.write_str("use a bundle whose graphs take `inputs_embeds`"),
            Self::NameImageToken => f.write_str("name the token that stands for an image"),
            Self::WriteImageToken => f.write_str("write the image token once for each image, where it belongs"),
            Self::LongerText => f.write_str("give a longer text, and at least one window"),
            Self::ShorterWindow { most, reserved: 0 } => {
                write!(f, "choose a window of at most {most} tokens, or a bundle with a longer context")
            }
            Self::ShorterWindow { most, reserved } => write!(
                f,
                "choose a window of at most {most} tokens beside the {reserved} reserved ones, or a bundle with a longer context"
            ),
            Self::ReserveFewer { most: 0 } => f.write_str("reserve no tokens, or use a bundle with a longer context"),
            Self::ReserveFewer { most } => {
                write!(f, "reserve at most {most} tokens, or use a bundle with a longer context")
            }
            Self::ChooseLongContext => f.write_str(
                "a window keeps the last tokens exactly, a shift goes on without end, keydiff keeps what differs",
            ),
            Self::LongContextToReserve => f.write_str("choose a kind of long context, or reserve no tokens"),
            Self::BundleWithAdapters => f.write_str("use a bundle that was compiled with adapters, or apply none"),
            Self::SetCacheFolder => f.write_str("set GENIE_CACHE to a writable folder"),
            Self::Backend(hint) => hint.fmt(f),
        }
    }
}
