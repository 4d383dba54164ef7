//! The QNN backend that the options select, with its vote for the SoC's clocks.

use std::path::PathBuf;
use std::sync::Arc;

use genie_bundle::config::{BackendSettings, HtpExtensions};
use qnn_api::library::runtime;
use qnn_api::{Backend, BackendOptions, Library, PerfPolicy, PowerVote, RpcTimes, Rpcmem, SharedMemory, Soc};

use crate::Error;
use crate::op_package;
use crate::options::{BackendChoice, Options, Perf, SharedMemoryChoice};
use crate::threads::Threads;

/// Loads the library that the options select: the embedded one, Qualcomm's, or a file.
///
/// # Errors
/// [`Error::Load`].
pub fn load_library(options: &Options) -> Result<Arc<Library>, Error> {
    let system = options.system_library.as_ref();
    let (opened, backend) = match (&options.backend, system) {
        (BackendChoice::OfBundle | BackendChoice::Embedded, Some(path)) => {
            return Err(Error::SystemOnEmbedded { path: path.clone() });
        }
        (BackendChoice::OfBundle | BackendChoice::Embedded, _) => {
            (Library::linked(qnn_host::providers()), "host".into())
        }
        (BackendChoice::Htp, None) => (Library::open_by_name(runtime::HTP), "htp".into()),
        (BackendChoice::Htp, Some(system)) => {
            // The system's loader may still find it by name.
            let file = runtime::find(runtime::HTP).unwrap_or_else(|| PathBuf::from(runtime::HTP));
            (Library::open_with_system(&file, system), file.display().to_string())
        }
        (BackendChoice::Library(file), None) => (Library::open(file), file.display().to_string()),
        (BackendChoice::Library(file), Some(system)) => {
            (Library::open_with_system(file, system), file.display().to_string())
        }
    };
    opened.map_err(|source| Error::Load { backend, source })
}

/// Opens the backend that the options select, without a bundle: threads as the options set them, no vote for clocks.
///
/// # Errors
/// The library cannot be loaded or started, or the threads cannot be as asked.
pub fn open_backend(options: &Options) -> Result<Arc<Backend>, Error> {
    open_for(options, &Threads::new(options, 0)?, options.soc.as_deref().map(soc_id).transpose()?)
}

/// Whether it is the embedded backend.
pub(crate) fn is_embedded(library: &Library) -> bool {
    library.provider().starts_with("HOST_")
}

fn open_for(options: &Options, threads: &Threads, soc: Option<u32>) -> Result<Arc<Backend>, Error> {
    let library = load_library(options)?;
    // Other libraries do not define these options, and some reject unknown ones.
    let ours = is_embedded(&library);
    if !threads.pin().is_empty() && !ours {
        return Err(Error::PinOnOtherBackend { provider: library.provider().into() });
    }
    if options.threads.is_some() && !ours {
        return Err(Error::ThreadsOnOtherBackend { provider: library.provider().into() });
    }
    if let Some(name) = options.soc.as_ref().filter(|_| ours) {
        return Err(Error::SocOnEmbedded { name: name.clone() });
    }
    let platform = threads.platform().filter(|_| ours);
    let backend = Backend::new(&library, &BackendOptions { platform, soc, ..BackendOptions::default() });
    let backend = backend.map_err(|source| Error::Start { backend: library.display_name().into(), source })?;
    log_library(&library);
    register_op_packages(&backend, options)?;
    Ok(backend)
}

/// Registers the op packages of the options with a backend that was opened by other means.
///
/// # Errors
/// [`Error::OpPackage`].
pub fn register_op_packages(backend: &Arc<Backend>, options: &Options) -> Result<(), Error> {
    op_package::register_all(&options.op_packages, &options.op_packages_of_folder, backend)
}

/// Logs the backend's versions and the files it was loaded from.
fn log_library(library: &Library) {
    let (core, own) = (library.core_version(), library.backend_version());
    let build = library.build_id().unwrap_or_else(|_| "unknown".to_owned());
    tracing::info!("backend {}: core API {core}, backend API {own}, build {build}", library.provider());
    for file in library.files() {
        tracing::info!("loaded {}", file.display());
    }
    if let Some((shown, version)) = library.system() {
        tracing::info!("context binaries are read by {shown}, system API {version}");
    }
}

/// An open backend with its power vote, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct ActiveBackend {
    pub(crate) backend: Arc<Backend>,
    _vote: Option<PowerVote>,
}

impl ActiveBackend {
    /// The same backend for another model; the vote stays with the first, which is dropped last.
    pub(crate) fn share(&self) -> Self {
        Self { backend: self.backend.clone(), _vote: None }
    }
}

/// Opens a backend for a bundle. The config's backend extensions name SoC and clocks; options override them.
pub(crate) fn start(options: &Options, config: &BackendSettings, threads: &Threads) -> Result<ActiveBackend, Error> {
    let extensions = HtpExtensions::from_files(&config.extensions)?;
    let soc = match &options.soc {
        Some(name) => Some(soc_id(name)?),
        None => extensions.soc,
    };
    let backend = open_for(options, threads, soc)?;
    let rpc = rpc_times(config, &extensions);
    let _vote = match (options.perf, &extensions.perf_profile) {
        (Perf::LeaveAlone, _) => None,
        // Explicitly requested: a library without clocks to vote for is an error.
        (Perf::Policy(policy), _) => Some(PowerVote::cast_with(&backend, policy, rpc).map_err(|source| {
            if source.is_unsupported() {
                Error::NoClocks { backend: options.backend.to_string(), policy }
            } else {
                Error::Vote { policy, source }
            }
        })?),
        // Profiles that leave the clocks to the library.
        (Perf::OfBundle, Some(name)) if name == "default" || name == "system_settings" => None,
        (Perf::OfBundle, Some(name)) => {
            let policy = PerfPolicy::from_name(name).ok_or_else(|| Error::UnknownPerfProfile { name: name.clone() })?;
            vote(&backend, policy, rpc)
        }
        (Perf::OfBundle, None) => vote(&backend, PerfPolicy::default(), rpc),
    };
    Ok(ActiveBackend { backend, _vote })
}

/// The memory that the engine's buffers are to be in, if not in plain memory.
pub(crate) fn shared_memory(options: &Options, backend: &Backend) -> Result<Option<Arc<SharedMemory>>, Error> {
    let library = backend.library();
    let wanted = match options.shared_memory {
        SharedMemoryChoice::On => true,
        SharedMemoryChoice::Auto => library.is_htp() && !library.is_emulator(),
        SharedMemoryChoice::Off => false,
    };
    if !wanted {
        return Ok(None);
    }
    match Rpcmem::open() {
        Ok(rpcmem) => {
            tracing::info!("cache and tensors are in memory shared with the NPU");
            Ok(Some(SharedMemory::new(rpcmem)))
        }
        Err(source) if options.shared_memory == SharedMemoryChoice::On => Err(Error::NoSharedMemory { source }),
        Err(error) => {
            tracing::info!("cache and tensors are in plain memory: {error}");
            Ok(None)
        }
    }
}

/// How the host waits for the chip: `poll` asks for polling, unless the extension config gives the time.
fn rpc_times(config: &BackendSettings, extensions: &HtpExtensions) -> RpcTimes {
    let poll = config.poll.then_some(RpcTimes::LONGEST_POLL);
    RpcTimes { poll_us: extensions.rpc_polling_time.or(poll), control_latency_us: extensions.rpc_control_latency }
}

/// A vote that no option requested: a failure is logged and ignored.
fn vote(backend: &Arc<Backend>, policy: PerfPolicy, rpc: RpcTimes) -> Option<PowerVote> {
    match PowerVote::cast_with(backend, policy, rpc) {
        Ok(vote) => {
            tracing::info!("performance policy {}", policy.name());
            Some(vote)
        }
        Err(error) if error.is_unsupported() => None,
        Err(error) => {
            tracing::warn!("cannot vote for performance policy {}: {error}", policy.name());
            None
        }
    }
}

/// Qualcomm's number of a SoC given by name or number.
fn soc_id(name: &str) -> Result<u32, Error> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    let named = Soc::by_name(name).ok_or_else(|| Error::UnknownSoc { name: name.into() })?;
    named.id.ok_or_else(|| Error::NoHtp { name: name.into(), dsp_arch: named.dsp_arch })
}
