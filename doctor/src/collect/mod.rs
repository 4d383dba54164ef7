//! Files, environment and libraries to a [`Case`]. What is missing or damaged is written down, not an error.
//!
//! *Traps*: opening `libQnnHtp.so` runs its code, as a later run would; only the first copy is opened, and only if it is
//! for this processor. All others are just looked into.

mod adsp;
mod bundle;
mod device;
mod files;
mod libraries;

use std::path::{Path, PathBuf};

use genie_bundle::config::GenieApi;
use qnn_api::{Soc, SystemLibrary};

use crate::case::Device;
use crate::{Case, DoctorError};

/// What is asked.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// A bundle's folder, a config or a context binary; nothing to examine the machine only.
    pub subject: Option<PathBuf>,
    /// The device that is to run it; where not given, this machine is looked at.
    pub soc: Option<&'static Soc>,
    /// The Genie that is to read the config; where not given, the release of the libraries tells.
    pub genie_api: Option<GenieApi>,
    /// A folder with QNN's libraries, looked into first.
    pub libraries: Option<PathBuf>,
    /// Leave out what takes long: comparing the content of files with the manifest's hashes.
    pub quick: bool,
}

/// What the collector takes from outside the bundle, so that tests can do without it.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// `LD_LIBRARY_PATH`.
    pub loader_path: Option<String>,
    /// `ADSP_LIBRARY_PATH`.
    pub adsp_path: Option<String>,
    /// Folder of the runtime that was fetched, or that `QNN_RUNTIME_DIR` names.
    pub runtime: Option<PathBuf>,
    /// Folders that the system's loader knows.
    pub system_folders: Vec<PathBuf>,
    /// Folders that the DSP's loader knows.
    pub dsp_folders: Vec<PathBuf>,
    /// Where a Linux kernel tells which chip it runs on.
    pub soc_folder: PathBuf,
    /// The processor, as Rust calls it.
    pub arch: String,
    /// The current folder; nothing to ask for it.
    pub cwd: Option<PathBuf>,
}

impl Surroundings {
    /// Those of this process.
    pub fn here() -> Self {
        let arch = std::env::consts::ARCH;
        let folders = |list: &[&str]| list.iter().map(PathBuf::from).collect();
        let runtime = qnn_api::library::runtime::find(qnn_api::library::runtime::HTP);
        Self {
            loader_path: std::env::var("LD_LIBRARY_PATH").ok(),
            adsp_path: std::env::var("ADSP_LIBRARY_PATH").ok(),
            runtime: runtime.and_then(|path| path.parent().map(Path::to_owned)),
            system_folders: [
                folders(&["/vendor/lib64", "/system/vendor/lib64", "/odm/lib64", "/usr/local/lib", "/usr/lib"]),
                vec![PathBuf::from(format!("/usr/lib/{arch}-linux-gnu"))],
            ]
            .concat(),
            dsp_folders: folders(&[
                "/vendor/lib/rfsa/adsp",
                "/vendor/lib/rfsa/dsp/sdk",
                "/vendor/dsp/cdsp",
                "/vendor/dsp",
                "/usr/lib/rfsa/adsp",
                "/usr/lib/dsp/cdsp",
                "/dsp",
            ]),
            soc_folder: PathBuf::from("/sys/devices/soc0"),
            arch: arch.to_owned(),
            cwd: None,
        }
    }
}

/// Looks at everything. `linked` are system interfaces inside this program; `libQnnSystem.so` is added if there is one.
///
/// # Errors
/// A subject or a library folder that does not exist.
pub fn collect(
    request: &Request,
    surroundings: &Surroundings,
    linked: &[(&str, SystemLibrary)],
) -> Result<Case, DoctorError> {
    let cwd = match &surroundings.cwd {
        Some(cwd) => cwd.clone(),
        None => std::env::current_dir().map_err(|source| DoctorError::Cwd { source })?,
    };
    let subject = request.subject.as_ref().map(|path| cwd.join(path));
    if let Some(path) = subject.as_ref().filter(|path| !path.exists()) {
        return Err(DoctorError::NoSubject { path: path.clone() });
    }
    let libraries = request.libraries.as_ref().map(|path| cwd.join(path));
    if let Some(path) = libraries.as_ref().filter(|path| !path.is_dir()) {
        return Err(DoctorError::NoLibraries { path: path.clone() });
    }
    let (mut machine, system) = libraries::find(libraries.as_deref(), surroundings, &cwd);
    machine.adsp = surroundings.adsp_path.as_deref().map(adsp::take_apart);
    machine.adsp_defaults = adsp::existing(&surroundings.dsp_folders);
    let soc = request.soc.map(|soc| Device { soc, here: false });
    let device = soc.or_else(|| device::here(&surroundings.soc_folder).map(|soc| Device { soc, here: true }));
    let release = machine.htp_build().map(|build| build.release);
    let genie_api = request.genie_api.or_else(|| release.and_then(|(a, b, _)| GenieApi::of_release(a, b)));
    let mut readers: Vec<bundle::Reader<'_>> =
        linked.iter().map(|(name, library)| bundle::Reader { name, library, reads_htp: false }).collect();
    let system_name = system.as_ref().and_then(|s| s.path()).map(|path| path.display().to_string());
    if let Some(library) = &system {
        readers.push(bundle::Reader { name: system_name.as_deref().unwrap_or_default(), library, reads_htp: true });
    }
    let bundle = subject.map(|path| bundle::read(&path, &cwd, &readers, request.quick));
    Ok(Case { machine, device, genie_api, bundle })
}
