//! The machine: which QNN libraries it has, from where, and where its DSP looks for code.

use std::path::PathBuf;

use qnn_api::Version;

use super::Build;

/// What is known of the machine.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    /// Its architecture, as Rust calls it (`x86_64`, `aarch64`).
    pub arch: String,
    /// The folder from which the program was started.
    pub cwd: PathBuf,
    /// QNN's libraries, in the order in which folders are searched; the first of a name is the one that is used.
    pub libraries: Vec<LibraryFile>,
    /// The folders that were searched.
    pub searched: Vec<PathBuf>,
    /// What the first `libQnnHtp.so` offers, or why it cannot be used; nothing where it is for another architecture.
    pub htp: Option<Result<Interfaces, String>>,
    /// Version of the first `libQnnSystem.so`'s interface, or why it cannot be used.
    pub system: Option<Result<Version, String>>,
    /// `ADSP_LIBRARY_PATH`, if it is set.
    pub adsp: Option<AdspPath>,
    /// Where the DSP's loader looks besides, and what is there.
    pub adsp_defaults: Vec<(PathBuf, Vec<String>)>,
}

/// Versions of a backend library.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interfaces {
    /// The core interface.
    pub core: Version,
    /// The backend's own additions.
    pub backend: Version,
}

/// Who named the folder of a library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// The user, by flag.
    Flag,
    /// `QNN_RUNTIME_DIR`, or the runtime that `cargo xtask qnn-runtime` fetched.
    Runtime,
    /// `LD_LIBRARY_PATH`.
    LoaderPath,
    /// A folder that the system's loader knows.
    System,
}

impl Place {
    /// How a report calls it.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Flag => "as asked",
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
    /// Who named that folder.
    pub place: Place,
    /// Its length.
    pub bytes: u64,
    /// True if this machine's processor runs it.
    pub native: bool,
    /// The build id inside it, where there is one.
    pub build: Option<Build>,
}

/// `ADSP_LIBRARY_PATH` as the DSP's loader takes it apart: at `;`, and nowhere else.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdspPath {
    /// The variable's value.
    pub raw: String,
    /// Its folders, and the names of the files there; nothing for a folder that is not there.
    pub folders: Vec<(PathBuf, Option<Vec<String>>)>,
}

impl Machine {
    /// The copy of a library that is used.
    pub fn library(&self, name: &str) -> Option<&LibraryFile> {
        self.libraries.iter().find(|library| library.name == name)
    }

    /// True if the HTP library drives a real DSP: all but the emulator for x86 do.
    pub fn has_dsp(&self) -> bool {
        self.library(qnn_api::library::runtime::HTP).is_some_and(|library| !library.native || self.arch != "x86_64")
    }

    /// Build of the HTP library that is used.
    pub fn htp_build(&self) -> Option<Build> {
        self.library(qnn_api::library::runtime::HTP)?.build
    }
}
