//! Reads files, environment and libraries into [`Facts`]. Missing or damaged files are facts, not errors.
//!
//! *Traps*: opening `libQnnHtp.so` runs its code, as a later run would; only the first copy is opened, and only if it is
//! for this processor. Other copies are read as files.

mod adsp;
mod bundle;
mod device;
mod files;
mod libraries;

use std::path::{Path, PathBuf};

use genie_bundle::config::GenieApi;
use qnn_api::{Soc, SystemLibrary};

use crate::facts::Device;
use crate::{DoctorError, Facts};

/// What to examine.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// A bundle's folder, a config or a context binary; `None` to examine the machine only.
    pub subject: Option<PathBuf>,
    /// The target device; `None` for this machine's SoC, if it has one.
    pub soc: Option<&'static Soc>,
    /// The Genie API that reads the config; `None` for that of the libraries' release.
    pub genie_api: Option<GenieApi>,
    /// A folder with QNN's libraries that is searched first.
    pub libraries: Option<PathBuf>,
    /// Do not compare the contents of files with the manifest's hashes, which takes long.
    pub skip_hashes: bool,
}

/// What the collector reads from outside the bundle; tests make their own.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// `LD_LIBRARY_PATH`.
    pub loader_path: Option<String>,
    /// `ADSP_LIBRARY_PATH`.
    pub adsp_path: Option<String>,
    /// Folder of the fetched runtime, or the one that `QNN_RUNTIME_DIR` names.
    pub runtime: Option<PathBuf>,
    /// Default folders of the system's loader.
    pub system_folders: Vec<PathBuf>,
    /// Default folders of the DSP's loader.
    pub dsp_folders: Vec<PathBuf>,
    /// Where a Linux kernel reports its SoC.
    pub soc_folder: PathBuf,
    /// The processor, as Rust calls it.
    pub arch: String,
    /// The current folder; `None` for that of the process.
    pub cwd: Option<PathBuf>,
}

impl Environment {
    /// That of this process.
    pub fn current() -> Self {
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

/// Collects all facts. `linked` are system interfaces inside this program; `libQnnSystem.so` is added if it is found.
///
/// # Errors
/// A subject or a library folder that does not exist.
pub fn collect(
    request: &Request,
    environment: &Environment,
    linked: &[(&str, SystemLibrary)],
) -> Result<Facts, DoctorError> {
    let cwd = match &environment.cwd {
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
    let (mut machine, system) = libraries::find(libraries.as_deref(), environment, &cwd);
    machine.adsp = environment.adsp_path.as_deref().map(adsp::split);
    machine.adsp_defaults = adsp::existing(&environment.dsp_folders);
    let soc = request.soc.map(|soc| Device { soc, here: false });
    let device = soc.or_else(|| device::here(&environment.soc_folder).map(|soc| Device { soc, here: true }));
    let release = machine.htp_build().map(|build| build.release);
    let genie_api =
        request.genie_api.or_else(|| release.and_then(|(major, minor, _)| GenieApi::of_release(major, minor)));
    let mut readers: Vec<bundle::Reader<'_>> =
        linked.iter().map(|(name, library)| bundle::Reader { name, library, reads_htp: false }).collect();
    let system_name = system.as_ref().and_then(|s| s.path()).map(|path| path.display().to_string());
    if let Some(library) = &system {
        readers.push(bundle::Reader { name: system_name.as_deref().unwrap_or_default(), library, reads_htp: true });
    }
    let bundle = subject.map(|path| bundle::read(&path, &cwd, &readers, request.skip_hashes));
    Ok(Facts { machine, device, genie_api, bundle })
}
