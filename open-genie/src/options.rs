//! How a bundle is opened: backend, SoC, clocks, threads, planner policy.

use std::path::PathBuf;
use std::str::FromStr;

use dialog::{Grammar, SamplerCallback};
use engine::{EmbeddingCallback, GraphProfile, ModeKind};
use genie_types::Variant;
use kvmanager::plan::{CostTable, Policy, Variants};
use qnn_api::PerfPolicy;

use crate::speculation::Speculation;
use crate::{Error, LongContext, OpPackage};

/// Everything about opening a bundle that its config does not contain.
///
/// ```
/// use open_genie::{BackendChoice, Options, PolicyChoice};
///
/// let options = Options::new().backend(BackendChoice::Embedded).threads(2).policy(PolicyChoice::Cost);
/// assert_ne!(options, Options::new().threads(2).policy(PolicyChoice::Cost)); // that takes the backend of the bundle
/// ```
#[derive(Clone, Debug, Default)]
pub struct Options {
    pub(crate) backend: BackendChoice,
    pub(crate) system_library: Option<PathBuf>,
    pub(crate) soc: Option<String>,
    pub(crate) perf: Perf,
    pub(crate) threads: Option<usize>,
    pub(crate) pin: Pin,
    pub(crate) policy: PolicyChoice,
    pub(crate) kv_mode: Option<ModeKind>,
    pub(crate) dynamic_load: bool,
    pub(crate) lets_weights_go: bool,
    pub(crate) shared_memory: SharedMemoryChoice,
    pub(crate) prefix_cache: Option<PrefixCacheOptions>,
    pub(crate) graph_profile: Option<GraphProfile>,
    pub(crate) cache_folder: Option<PathBuf>,
    pub(crate) op_packages: Vec<OpPackage>,
    /// Those of a folder: each for backends of its target.
    pub(crate) op_packages_of_folder: Vec<OpPackage>,
    pub(crate) long_context: LongContext,
    pub(crate) reserved_tokens: Option<usize>,
    pub(crate) context_size: Option<usize>,
    pub(crate) sampler_callbacks: Vec<(String, SamplerCallback)>,
    pub(crate) token_embedding: Option<EmbeddingCallback>,
    pub(crate) grammar: Option<Grammar>,
    pub(crate) speculation: Speculation,
}

impl PartialEq for Options {
    fn eq(&self, other: &Self) -> bool {
        let plain = |o: &Self| {
            (o.backend.clone(), o.system_library.clone(), o.soc.clone(), o.perf, o.threads, o.pin.clone(), o.policy)
        };
        plain(self) == plain(other)
            && (self.kv_mode, self.dynamic_load, self.lets_weights_go, self.shared_memory)
                == (other.kv_mode, other.dynamic_load, other.lets_weights_go, other.shared_memory)
            && self.prefix_cache == other.prefix_cache
            && self.cache_folder == other.cache_folder
            && (&self.op_packages, &self.op_packages_of_folder) == (&other.op_packages, &other.op_packages_of_folder)
            && (self.long_context, self.reserved_tokens, self.context_size)
                == (other.long_context, other.reserved_tokens, other.context_size)
            && self.grammar == other.grammar
            && self.speculation == other.speculation
            && self.graph_profile.is_some() == other.graph_profile.is_some()
    }
}

impl Options {
    /// The backend that the bundle's binaries are for, on all cores if it is the embedded one; the graphs that [`PolicyChoice::Auto`] chooses.
    pub fn new() -> Self {
        Self::default()
    }

    /// The library that executes the graphs. The config's `backend.type` is ignored.
    #[must_use]
    pub fn backend(mut self, backend: BackendChoice) -> Self {
        self.backend = backend;
        self
    }

    /// The library that reads context binaries, where it is not beside the backend's.
    #[must_use]
    pub fn system_library(mut self, path: impl Into<PathBuf>) -> Self {
        self.system_library = Some(path.into());
        self
    }

    /// The SoC to run on or to emulate, by name (`sm8650`) or Qualcomm's number; otherwise the bundle's backend extension
    /// config names it, or the library chooses.
    #[must_use]
    pub fn soc(mut self, name: impl Into<String>) -> Self {
        self.soc = Some(name.into());
        self
    }

    /// A library of ops to register with the backend: its code runs in this process. May be called for several.
    #[must_use]
    pub fn op_package(mut self, package: OpPackage) -> Self {
        self.op_packages.push(package);
        self
    }

    /// The libraries of ops of a folder, each for backends of its target; see [`OpPackage::of_folder`].
    ///
    /// # Errors
    /// Those of [`OpPackage::of_folder`].
    pub fn op_package_folder(mut self, folder: impl AsRef<std::path::Path>) -> Result<Self, Error> {
        self.op_packages_of_folder = OpPackage::of_folder(folder.as_ref())?;
        Ok(self)
    }

    /// The clocks of an HTP backend.
    #[must_use]
    pub fn perf(mut self, perf: Perf) -> Self {
        self.perf = perf;
        self
    }

    /// Threads of the embedded backend; otherwise one per core.
    #[must_use]
    pub fn threads(mut self, n: usize) -> Self {
        self.threads = Some(n);
        self
    }

    /// The cores of the embedded backend's threads.
    #[must_use]
    pub fn pin(mut self, pin: Pin) -> Self {
        self.pin = pin;
        self
    }

    /// How the planner chooses graphs.
    #[must_use]
    pub fn policy(mut self, policy: PolicyChoice) -> Self {
        self.policy = policy;
        self
    }

    /// The layout of the KV cache; otherwise the one that the bundle's graphs have.
    #[must_use]
    pub fn kv_mode(mut self, mode: ModeKind) -> Self {
        self.kv_mode = Some(mode);
        self
    }

    /// What a full context drops; otherwise what the config says. Saved sessions fit only sessions with the same rule.
    #[must_use]
    pub fn long_context(mut self, rule: LongContext) -> Self {
        self.long_context = rule;
        self
    }

    /// Tokens at the beginning that the rule of [`long_context`](Self::long_context) never drops; otherwise none.
    #[must_use]
    pub fn reserved_tokens(mut self, n: usize) -> Self {
        self.reserved_tokens = Some(n);
        self
    }

    /// Most tokens of a conversation; otherwise the config's `size`, or for a window and for `keydiff` the positions that
    /// the model was trained for, where these are more.
    #[must_use]
    pub fn context_size(mut self, n: usize) -> Self {
        self.context_size = Some(n);
        self
    }

    /// What replies must follow; otherwise what the config says. [`Session::set_grammar`](crate::Session::set_grammar) changes it
    /// between prompts.
    #[must_use]
    pub fn grammar(mut self, grammar: Grammar) -> Self {
        self.grammar = Some(grammar);
        self
    }

    /// How replies are sped up; otherwise as the config's `type` says.
    #[must_use]
    pub fn speculation(mut self, speculation: Speculation) -> Self {
        self.speculation = speculation;
        self
    }

    /// Loads a binary when one of its graphs is to run and frees it when another's is: memory for one split at a time, for
    /// a load at each change.
    #[must_use]
    pub fn dynamic_load(mut self, on: bool) -> Self {
        self.dynamic_load = on;
        self
    }

    /// On the embedded backend weights leave memory as soon as a step has read them, and are read from the file by the next: a
    /// model that is larger than memory runs, slowly.
    #[must_use]
    pub fn lets_weights_go(mut self, on: bool) -> Self {
        self.lets_weights_go = on;
        self
    }

    /// Where the cache and the tensors of the graphs are: in memory that the NPU sees as well, or in plain memory.
    #[must_use]
    pub fn shared_memory(mut self, choice: SharedMemoryChoice) -> Self {
        self.shared_memory = choice;
        self
    }

    /// The function that gives the embedding of a token, for models that take embeddings and whose config has no table of them
    /// (`embedding {type callback}`).
    #[must_use]
    pub fn token_embedding(mut self, callback: EmbeddingCallback) -> Self {
        self.token_embedding = Some(callback);
        self
    }

    /// A function that chooses tokens, by the name that configs with sampler type `custom` give as `callback-name`.
    #[must_use]
    pub fn sampler_callback(mut self, name: impl Into<String>, callback: SamplerCallback) -> Self {
        self.sampler_callbacks.push((name.into(), callback));
        self
    }

    /// Keeps the caches of prompts on disk and starts from the longest stored prefix.
    #[must_use]
    pub fn prefix_cache(mut self, options: PrefixCacheOptions) -> Self {
        self.prefix_cache = Some(options);
        self
    }

    /// Where it is remembered which large files of weights were checked; otherwise `$GENIE_CACHE` or the user's cache folder.
    /// Without a folder that can be written they are checked in every run.
    #[must_use]
    pub fn cache_folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.cache_folder = Some(folder.into());
        self
    }

    /// Collects the backend's own times of each graph into this profile.
    #[must_use]
    pub fn graph_profile(mut self, profile: GraphProfile) -> Self {
        self.graph_profile = Some(profile);
        self
    }
}

/// The library that executes the graphs. Reads `auto`, `host`, `htp` or a path from text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum BackendChoice {
    /// The one that the bundle's binaries are for, by their first bytes; the embedded one where there is no bundle yet.
    #[default]
    OfBundle,
    /// The CPU backend inside this program.
    Embedded,
    /// Qualcomm's `libQnnHtp.so`, wherever it is found.
    Htp,
    /// A QNN library by its path.
    Library(PathBuf),
}

impl FromStr for BackendChoice {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "auto" => Ok(Self::OfBundle),
            "host" => Ok(Self::Embedded),
            "htp" => Ok(Self::Htp),
            path if path.contains(['/', '\\', '.']) => Ok(Self::Library(path.into())),
            unknown => Err(Error::UnknownBackend { name: unknown.into() }),
        }
    }
}

impl std::fmt::Display for BackendChoice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::OfBundle => f.write_str("auto"),
            Self::Embedded => f.write_str("host"),
            Self::Htp => f.write_str("htp"),
            Self::Library(path) => path.display().fmt(f),
        }
    }
}

/// Memory that the NPU sees as well (`libcdsprpc.so` of a Snapdragon), registered with the backend: it spares a copy of each
/// buffer in each step. Reads `auto`, `on` or `off` from text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SharedMemoryChoice {
    /// On a chip with HTP, where there is such memory.
    #[default]
    Auto,
    /// On any backend; a machine without such memory is an error.
    On,
    /// Plain memory.
    Off,
}

impl FromStr for SharedMemoryChoice {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "auto" => Ok(Self::Auto),
            "on" => Ok(Self::On),
            "off" => Ok(Self::Off),
            other => Err(Error::UnknownSharedMemory { text: other.into() }),
        }
    }
}

/// The clocks of an HTP backend. Others have none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Perf {
    /// What the bundle's backend extension config names, else `burst`; a backend without clocks is fine.
    #[default]
    OfBundle,
    /// No vote: the clocks stay as they are.
    LeaveAlone,
    /// This one; a backend without clocks is an error.
    Policy(PerfPolicy),
}

/// The cores that the embedded backend's threads are pinned to, one each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Pin {
    /// None: the system moves threads.
    #[default]
    No,
    /// These cores, in this order.
    Cores(Vec<usize>),
    /// The cores of the config's `cpu-mask`.
    OfConfig,
}

/// A store of prompt prefixes on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrefixCacheOptions {
    /// Its folder.
    pub folder: PathBuf,
    /// Most bytes it may take.
    pub max_bytes: u64,
    /// Shortest prefix to store, in tokens.
    pub min_tokens: usize,
}

/// How the planner chooses the graphs of a query.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PolicyChoice {
    /// [`Self::Cost`] on the embedded backend, whose time follows the rows that a graph has; [`Self::Lenient`] on others.
    #[default]
    Auto,
    /// The graphs that libGenie runs; continues where libGenie fails although the context has room.
    Lenient,
    /// Exactly the graphs that libGenie runs; fails where libGenie does.
    Genie,
    /// One variant for the whole input, chosen again only when the context length grows.
    FixedVariant,
    /// The cheapest plan by the step times of `calibration.json`, else by nominal costs.
    Cost,
}

impl PolicyChoice {
    /// The planner's policy without measured times. `Cost` has nominal costs: a step's time grows with its AR and CL, on the
    /// embedded backend nearly in proportion to its AR. `Auto` is what it stands for there and elsewhere.
    pub fn nominal(self, variants: &Variants, on_embedded: bool) -> Policy {
        match self {
            Self::Auto if on_embedded => Self::Cost.nominal(variants, true),
            Self::Auto | Self::Lenient => Policy::Lenient,
            Self::Genie => Policy::Genie,
            Self::FixedVariant => Policy::FixedVariant,
            Self::Cost => Policy::Cost(nominal_costs(variants, on_embedded).into()),
        }
    }
}

/// What steps cost where nothing was measured, in the time of one row of a wide step.
fn nominal_costs(variants: &Variants, on_embedded: bool) -> CostTable {
    // A wide NPU takes many rows in the time that it reads the weights. A CPU computes 7 to 9 (measured: steps of 1, 32 and 512 rows
    // of Q4_0 on AVX-512); its switch copies rows of the cache at the memory's rate, or none.
    let (weights, switch, switch_per_row) = if on_embedded { (8.0, 0.1, 0.001) } else { (100.0, 1.0, 0.01) };
    let nominal = |variant: &Variant| {
        let (ar, cl) = (variant.ar().get() as f64, variant.cl().get() as f64);
        (*variant, weights + ar * (1.0 + cl / 4096.0))
    };
    let table = CostTable::new(variants.all().iter().map(nominal), switch, switch_per_row);
    table.expect("nominal costs are finite")
}
