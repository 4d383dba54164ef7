//! The machine: its QNN libraries with their folders, and the search path of its DSP.

use std::path::PathBuf;

use qnn_api::Version;

use super::Build;

/// The machine.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    /// Its architecture, as Rust calls it (`x86_64`, `aarch64`).
    pub arch: String,
    /// The current folder of the process.
    pub cwd: PathBuf,
    /// QNN's libraries in search order; the first of a name is used.
    pub libraries: Vec<LibraryFile>,
    /// The folders that were searched.
    pub searched: Vec<PathBuf>,
    /// API versions of the first `libQnnHtp.so`, or why it cannot be used; `None` if it is for another architecture.
    pub htp: Option<Result<Interfaces, String>>,
    /// Version of the first `libQnnSystem.so`'s interface, or why it cannot be used.
    pub system: Option<Result<Version, String>>,
    /// `ADSP_LIBRARY_PATH`, if it is set.
    pub adsp: Option<AdspPath>,
    /// The default folders of the DSP's loader, with the names of their files.
    pub adsp_defaults: Vec<(PathBuf, Vec<String>)>,
}

/// Versions of a backend library.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interfaces {
    /// The core interface.
    pub core: Version,
    /// The backend's own API.
    pub backend: Version,
}

/// How the folder of a library was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// The request.
    Request,
    /// `QNN_RUNTIME_DIR`, or the runtime that `cargo xtask qnn-runtime` fetched.
    Runtime,
    /// `LD_LIBRARY_PATH`.
    LoaderPath,
    /// A default folder of the system's loader.
    System,
}

impl Place {
    /// Its name in reports.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Request => "as asked",
            Self::Runtime => "runtime folder",
            Self::LoaderPath => "LD_LIBRARY_PATH",
            Self::System => "system folder",
        }
    }
}

/// A library on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LibraryFile {
    /// File name.
    pub name: String,
    /// Where it lies.
    pub path: PathBuf,
    /// How that folder was found.
    pub place: Place,
    /// Its length.
    pub bytes: u64,
    /// True if this machine's processor runs it.
    pub native: bool,
    /// The build id in it, if any.
    pub build: Option<Build>,
}

/// `ADSP_LIBRARY_PATH` as the DSP's loader splits it: at `;` only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdspPath {
    /// The variable's value.
    pub raw: String,
    /// Its folders with the names of their files; `None` for a folder that does not exist.
    pub folders: Vec<(PathBuf, Option<Vec<String>>)>,
}

impl Machine {
    /// The used copy of a library.
    pub fn library(&self, name: &str) -> Option<&LibraryFile> {
        self.libraries.iter().find(|library| library.name == name)
    }

    /// True if the HTP library runs on a DSP, not on the x86 emulator.
    pub fn has_dsp(&self) -> bool {
        self.library(qnn_api::library::runtime::HTP).is_some_and(|library| !library.native || self.arch != "x86_64")
    }

    /// Build of the used HTP library.
    pub fn htp_build(&self) -> Option<Build> {
        self.library(qnn_api::library::runtime::HTP)?.build
    }
}
