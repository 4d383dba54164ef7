//! Everything that can fail between a path and a reply, and typed hints.

use std::fmt;
use std::path::PathBuf;

use dialog::DialogError;
use engine::{EngineError, Overflow};
use genie_bundle::{BundleError, ConfigError};
use kvmanager::Admission;
use qnn_api::PerfPolicy;
use session_store::StoreError;

/// Why a bundle could not be opened, or a query not be answered. [`Error::hint`] has advice, apart from the text.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the messages say what the fields are
pub enum Error {
    // Options.
    #[error("unknown backend `{name}`: expected `host`, `htp` or the path of a QNN library")]
    UnknownBackend { name: String },
    #[error("threads can be pinned with the embedded backend only, found backend `{provider}`")]
    PinOnOtherBackend { provider: String },
    #[error("{whose}: expected at least one core, found none")]
    NoCores { whose: &'static str, may: Vec<usize> },
    #[error("{whose}: expected cores that this process may use ({}), found core {core}", qnn_host::pool::shown(may))]
    CoreUnavailable { whose: &'static str, core: usize, may: Vec<usize> },
    #[error("threads cannot be pinned: this system does not list its cores")]
    CoresUnknown,
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
    #[error(transparent)]
    Bundle(#[from] BundleError),
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error("cannot load backend `{backend}`")]
    Load { backend: String, source: qnn_api::Error },
    #[error("cannot start backend `{backend}`")]
    Start { backend: String, source: qnn_api::Error },
    #[error("cannot load the bundle's graphs")]
    Graphs { source: EngineError },

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
    #[error("cannot write the calibration into `{}`", folder.display())]
    WriteCalibration { folder: PathBuf, source: StoreError },

    // Measuring.
    #[error("a prompt of {length} tokens cannot be verified")]
    PromptLength { length: usize, limit: usize },
    #[error("a window of {window} tokens cannot be measured: the context holds {limit} tokens")]
    Window { window: usize, least: usize, limit: usize },
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
    Compile(#[from] compiler::CompileError),
}

/// What may help. [`fmt::Display`] words it for a user of this crate; a program with flags words it in those.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Hint {
    /// Give a bundle's folder or its config.
    GiveBundle,
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
    /// The text is too short.
    LongerText,
    /// Set a cache folder.
    SetCacheFolder,
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
            Self::UnknownBackend { .. } => Hint::ChooseBackend,
            Self::PinOnOtherBackend { .. } => Hint::EmbeddedBackendOnly,
            Self::NoCores { may, .. } | Self::CoreUnavailable { may, .. } => Hint::CoresToPin(may.clone()),
            Self::CoresUnknown => Hint::DoNotPin,
            Self::UnknownSoc { .. } => Hint::GiveSoc,
            Self::NoHtp { dsp_arch, .. } => Hint::DspTooOld { dsp_arch: *dsp_arch },
            Self::UnknownPerfProfile { .. } => Hint::ChoosePerfPolicy,
            Self::NoClocks { .. } => Hint::CastNoVote,
            Self::Load { source, .. } | Self::Start { source, .. } | Self::Vote { source, .. } => {
                Hint::Backend(source.hint()?)
            }
            Self::ContextExceeded { fits, .. } => Hint::Fits((*fits)?),
            Self::PromptLength { limit, .. } => Hint::ChooseTokens { least: 1, most: *limit },
            Self::Window { least, limit, .. } => Hint::ChooseTokens { least: *least, most: *limit },
            Self::NothingToPredict { .. } => Hint::LongerText,
            #[cfg(feature = "demo")]
            Self::NoCacheFolder => Hint::SetCacheFolder,
            _ => return None,
        })
    }
}

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::GiveBundle => f.write_str("give a bundle's folder or its `genie_config.json`"),
            Self::ChooseBackend => {
                f.write_str("`host` runs on this machine's CPU, `htp` finds Qualcomm's `libQnnHtp.so`")
            }
            Self::EmbeddedBackendOnly => f.write_str("do not pin threads, or use the embedded backend"),
            Self::CoresToPin(may) => write!(f, "choose from cores {}", qnn_host::pool::shown(may)),
            Self::DoNotPin => f.write_str("do not pin threads"),
            Self::GiveSoc => f.write_str("use a name such as `sm8650` or Qualcomm's number, for example 57"),
            Self::DspTooOld { dsp_arch } => {
                let first = qnn_api::soc::FIRST_HTP_ARCH;
                write!(f, "its DSP is V{dsp_arch}; the HTP backend needs V{first} or later")
            }
            Self::ChoosePerfPolicy => {
                let names: Vec<&str> = PerfPolicy::ALL.iter().map(|policy| policy.name()).collect();
                write!(f, "use one of {}", names.join(", "))
            }
            Self::CastNoVote => f.write_str("only HTP backends have clocks: choose no performance policy"),
            Self::Fits(fits) => fits.fmt(f),
            Self::ChooseTokens { least, most } => write!(f, "choose {least} to {most} tokens"),
            Self::LongerText => f.write_str("give a longer text, and at least one window"),
            Self::SetCacheFolder => f.write_str("set GENIE_CACHE to a writable folder"),
            Self::Backend(hint) => hint.fmt(f),
        }
    }
}
