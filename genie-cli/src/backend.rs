//! Opens the QNN backend selected by `--backend`, `--backend-lib` and `--system-lib`.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use genie_bundle::config::{BackendSettings, HtpExtensions};
use qnn_api::library::runtime;
use qnn_api::{Backend, BackendOptions, Library, PerfPolicy, PowerVote, Soc};

use crate::args::{BackendArgs, NO_VOTE, SocArgs};
use crate::failure::UserError;
use crate::threads::Threads;

/// The library that the flags select: the embedded one, Qualcomm's, or a file.
pub fn library(args: &BackendArgs) -> Result<Arc<Library>> {
    let file = match (&args.backend_lib, args.backend.as_str()) {
        (Some(file), _) => file.clone(),
        (None, "host") => return embedded(),
        (None, "htp") => match &args.system_lib {
            // The system's loader may still find it by name.
            Some(_) => runtime::find(runtime::HTP).unwrap_or_else(|| PathBuf::from(runtime::HTP)),
            None => return Library::open_by_name(runtime::HTP).context("cannot load backend `htp`"),
        },
        (None, path) if path.contains(['/', '\\', '.']) => PathBuf::from(path),
        (None, unknown) => {
            return Err(UserError::error(
                format!("unknown backend `{unknown}`: expected `host`, `htp` or the path of a QNN library"),
                "use `--backend host` for this machine's CPU, `--backend htp` for Qualcomm's `libQnnHtp.so`",
            ));
        }
    };
    let opened = match &args.system_lib {
        Some(system) => Library::open_with_system(&file, system),
        None => Library::open(&file),
    };
    opened.with_context(|| format!("cannot load backend `{}`", file.display()))
}

fn embedded() -> Result<Arc<Library>> {
    let library = Library::linked(qnn_host::providers());
    library.context("cannot use the embedded backend")
}

/// Opens the selected backend; `threads` applies to the embedded backend only.
pub fn open(args: &BackendArgs, threads: &Threads) -> Result<Arc<Backend>> {
    open_for(args, threads, None)
}

fn open_for(args: &BackendArgs, threads: &Threads, soc: Option<u32>) -> Result<Arc<Backend>> {
    let library = library(args)?;
    // Other libraries do not define these options, and some reject unknown ones.
    let ours = library.provider().starts_with("HOST_");
    if !threads.pin().is_empty() && !ours {
        return Err(UserError::error(
            format!("`--pin` works with the embedded backend only, found backend `{}`", library.provider()),
            "remove `--pin`, or use `--backend host`",
        ));
    }
    let platform = threads.platform().filter(|_| ours);
    let backend = Backend::new(&library, &BackendOptions { platform, soc, ..BackendOptions::default() });
    let backend = backend.with_context(|| format!("cannot start backend `{}`", library.display_name()))?;
    log_library(&library);
    Ok(backend)
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
pub struct ActiveBackend {
    /// The backend.
    pub backend: Arc<Backend>,
    _vote: Option<PowerVote>,
}

/// Opens a backend for a bundle. The config's backend extensions name SoC and clocks; flags override them.
pub fn start(args: &BackendArgs, soc: &SocArgs, config: &BackendSettings, threads: &Threads) -> Result<ActiveBackend> {
    let extensions = HtpExtensions::from_files(&config.extensions)?;
    let id = match &soc.soc {
        Some(name) => Some(soc_id(name)?),
        None => extensions.soc,
    };
    let backend = open_for(args, threads, id)?;
    let _vote = match (&soc.perf, &extensions.perf_profile) {
        (Some(name), _) if name == NO_VOTE => None,
        // Explicitly requested: a library without clocks to vote for is an error.
        (Some(name), _) => {
            Some(PowerVote::cast(&backend, policy(name)?).map_err(|error| match error.is_unsupported() {
                false => error.into(),
                true => UserError::error(
                    format!("backend `{}` has no clocks to vote for, but `--perf {name}` was given", args.backend),
                    "remove `--perf`; it works with HTP backends only",
                ),
            })?)
        }
        // Profiles that leave the clocks to the library.
        (None, Some(name)) if name == "default" || name == "system_settings" => None,
        (None, Some(name)) => vote(&backend, policy(name)?),
        (None, None) => vote(&backend, PerfPolicy::default()),
    };
    Ok(ActiveBackend { backend, _vote })
}

/// A vote that no flag requested: a failure is logged and ignored.
fn vote(backend: &Arc<Backend>, policy: PerfPolicy) -> Option<PowerVote> {
    match PowerVote::cast(backend, policy) {
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

fn policy(name: &str) -> Result<PerfPolicy> {
    PerfPolicy::from_name(name).ok_or_else(|| {
        let names: Vec<&str> = PerfPolicy::ALL.iter().map(|policy| policy.name()).collect();
        UserError::error(
            format!("unknown performance profile `{name}` in the backend extension config"),
            format!("use one of {}; `--perf` overrides it", names.join(", ")),
        )
    })
}

/// Qualcomm's number of a SoC given by name or number.
fn soc_id(name: &str) -> Result<u32> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    let named = Soc::by_name(name).ok_or_else(|| {
        UserError::error(
            format!("unknown SoC `{name}`"),
            "use a name such as `sm8650` or Qualcomm's number, for example 57",
        )
    })?;
    named.id.ok_or_else(|| {
        let hint =
            format!("its DSP is V{}; the HTP backend needs V{} or later", named.dsp_arch, qnn_api::soc::FIRST_HTP_ARCH);
        UserError::error(format!("SoC `{name}` has no HTP"), hint)
    })
}
