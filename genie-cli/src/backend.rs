//! From `--backend` and its kin to a QNN backend that is up.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use dialog::config::{BackendSettings, HtpExtensions};
use qnn_api::library::runtime;
use qnn_api::{Backend, BackendOptions, Library, PerfPolicy, PowerVote, Soc};

use crate::cli::{BackendArgs, ChipArgs, NO_VOTE};
use crate::failure::Hinted;
use crate::threads::Threads;

/// The library that the flags name: the embedded one, Qualcomm's, or a file.
pub fn library(args: &BackendArgs) -> Result<Arc<Library>> {
    let file = match (&args.backend_lib, args.backend.as_str()) {
        (Some(file), _) => file.clone(),
        (None, "host") => return embedded(),
        (None, "htp") => match &args.system_lib {
            // By its name the loader may still find it.
            Some(_) => runtime::find(runtime::HTP).unwrap_or_else(|| PathBuf::from(runtime::HTP)),
            None => return Library::open_by_name(runtime::HTP).context("cannot load backend `htp`"),
        },
        (None, path) if path.contains(['/', '\\', '.']) => PathBuf::from(path),
        (None, unknown) => {
            return Err(Hinted::error(
                format!("unknown backend `{unknown}`: expected `host`, `htp` or the path of a QNN library"),
                "`--backend host` runs on this machine, `--backend htp` finds Qualcomm's `libQnnHtp.so`",
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

/// Opens it and sets it up; `threads` is for the embedded backend.
pub fn open(args: &BackendArgs, threads: &Threads) -> Result<Arc<Backend>> {
    open_for(args, threads, None)
}

fn open_for(args: &BackendArgs, threads: &Threads, soc: Option<u32>) -> Result<Arc<Backend>> {
    let library = library(args)?;
    // Other libraries do not know the option, and some refuse what they do not know.
    let ours = library.provider().starts_with("HOST_");
    if !threads.pin().is_empty() && !ours {
        return Err(Hinted::error(
            format!("`--pin` is for the embedded backend, found `{}`", library.provider()),
            "leave it out, or use `--backend host`",
        ));
    }
    let platform = threads.platform().filter(|_| ours);
    let backend = Backend::new(&library, &BackendOptions { platform, soc, ..BackendOptions::default() });
    let backend = backend.with_context(|| format!("cannot start backend `{}`", library.display_name()))?;
    tell(&library);
    Ok(backend)
}

/// Says which library it is and which file everything came from.
fn tell(library: &Library) {
    let (core, own) = (library.core_version(), library.backend_version());
    let build = library.build_id().unwrap_or_else(|_| "unknown".to_owned());
    tracing::info!("backend {}: core API {core}, backend API {own}, build {build}", library.provider());
    for file in library.files() {
        tracing::info!("loaded {}", file.display());
    }
    if let Some((shown, version)) = library.system() {
        tracing::info!("context binaries are described by {shown}, system API {version}");
    }
}

/// A backend at work, with a vote for the chip's clocks that stands as long as this lives.
pub struct Running {
    /// The backend.
    pub backend: Arc<Backend>,
    _vote: Option<PowerVote>,
}

/// Opens a backend for a bundle: its config's extensions name chip and clocks, flags overrule them.
pub fn start(args: &BackendArgs, chip: &ChipArgs, config: &BackendSettings, threads: &Threads) -> Result<Running> {
    let extensions = HtpExtensions::from_files(&config.extensions)?;
    let soc = match &chip.soc {
        Some(name) => Some(soc(name)?),
        None => extensions.soc,
    };
    let backend = open_for(args, threads, soc)?;
    let _vote = match (&chip.perf, &extensions.perf_profile) {
        (Some(name), _) if name == NO_VOTE => None,
        // Asked for in so many words: a library that cannot do it is an error.
        (Some(name), _) => {
            Some(PowerVote::cast(&backend, policy(name)?).map_err(|error| match error.is_unsupported() {
                false => error.into(),
                true => Hinted::error(
                    format!("backend `{}` has no clocks to vote for, but `--perf {name}` asks for it", args.backend),
                    "leave `--perf` out; it is for HTP backends",
                ),
            })?)
        }
        // What these two mean is the library's own business.
        (None, Some(name)) if name == "default" || name == "system_settings" => None,
        (None, Some(name)) => vote(&backend, policy(name)?),
        (None, None) => vote(&backend, PerfPolicy::default()),
    };
    Ok(Running { backend, _vote })
}

/// A vote that nobody asked for by flag: done without where it cannot be had.
fn vote(backend: &Arc<Backend>, policy: PerfPolicy) -> Option<PowerVote> {
    match PowerVote::cast(backend, policy) {
        Ok(vote) => {
            tracing::info!("performance policy {}", policy.name());
            Some(vote)
        }
        Err(error) if error.is_unsupported() => None,
        Err(error) => {
            tracing::warn!("no vote for performance policy {}: {error}", policy.name());
            None
        }
    }
}

fn policy(name: &str) -> Result<PerfPolicy> {
    PerfPolicy::from_name(name).ok_or_else(|| {
        let names: Vec<&str> = PerfPolicy::ALL.iter().map(|policy| policy.name()).collect();
        Hinted::error(
            format!("unknown performance profile `{name}` in the backend extension config"),
            format!("it knows {}; `--perf` overrules it", names.join(", ")),
        )
    })
}

/// A chip by name or number.
fn soc(name: &str) -> Result<u32> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    let named = Soc::by_name(name).ok_or_else(|| {
        Hinted::error(format!("unknown chip `{name}`"), "give a name such as `sm8650` or Qualcomm's number, 57 for it")
    })?;
    named.id.ok_or_else(|| {
        let hint = format!("its DSP is V{}; HTP begins with V{}", named.dsp_arch, qnn_api::soc::FIRST_HTP_ARCH);
        Hinted::error(format!("no HTP library serves `{name}`"), hint)
    })
}
