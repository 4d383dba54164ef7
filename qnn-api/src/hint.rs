//! What can be done about an error: a value, so that a program may word it in terms of its own flags and commands.

use std::path::Path;

use crate::error::{Error, QnnError};
use crate::library::{machine_of, runtime};

/// What can be done about an [`Error`]. `Display` words it without reference to any program.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Hint {
    /// The file is a library for another processor.
    OtherMachine {
        /// The processor that the library is for, as Rust names it.
        library: &'static str,
        /// The processor of this program.
        program: &'static str,
    },
    /// The library was built for a newer C library than this system has.
    NewerSystem,
    /// Install Qualcomm's libraries, or name their folder in `QNN_RUNTIME_DIR`.
    InstallRuntime,
    /// The file is no backend: name one.
    NameBackend,
    /// The library is too old.
    NewerLibrary,
    /// The system library is missing.
    AddSystemLibrary {
        /// The files that were tried.
        tried: Vec<String>,
    },
    /// The graphs that the context has.
    KnownGraphs(Vec<String>),
    /// The system starts no more threads.
    MoreThreads,
    /// The system gives no more memory.
    MoreMemory,
    /// The binary was made by another version of the library.
    CompileAgain,
    /// The aarch64 library found no Hexagon DSP on this machine.
    NoDsp,
    /// The DSP's part of the library was not found.
    SkelFolder,
    /// The emulator holds a context with another VTCM size.
    OneVtcmSize,
    /// The binary is damaged, or was made for another backend.
    DamagedBinary,
    /// The binary may have been made for another SoC.
    CheckSoc,
}

impl Error {
    /// What can be done about it, apart from the text.
    pub fn hint(&self) -> Option<Hint> {
        Hint::of(self)
    }
}

impl Hint {
    fn of(error: &Error) -> Option<Self> {
        match error {
            Error::Open { path, source } => {
                let newer = || source.to_string().contains("GLIBC").then_some(Self::NewerSystem);
                other_machine(path).or_else(newer)
            }
            Error::Io { source, .. } if source.kind() == std::io::ErrorKind::OutOfMemory => Some(Self::MoreMemory),
            Error::NotFound { .. } => Some(Self::InstallRuntime),
            Error::Symbol { .. } => Some(Self::NameBackend),
            Error::Version { found, need, .. } if found.0 == need.0 => Some(Self::NewerLibrary),
            Error::NoSystem { tried, .. } => Some(Self::AddSystemLibrary { tried: tried.clone() }),
            Error::NoGraph { known, .. } => Some(Self::KnownGraphs(known.clone())),
            Error::Qnn { source, .. } => Self::of_call(source),
            _ => None,
        }
    }

    fn of_call(error: &QnnError) -> Option<Self> {
        let mentions = |text| error.library_message.as_ref().is_some_and(|message| message.contains(text));
        match error.code {
            5004 | 1008 => Some(Self::CompileAgain),
            4000 => Some(Self::NoDsp),
            1003 if mentions("cannot start a thread") => Some(Self::MoreThreads),
            _ if mentions("the system gives none") => Some(Self::MoreMemory),
            1003 if cfg!(not(target_arch = "x86_64")) => Some(Self::SkelFolder),
            1100 if mentions("VTCM pointer") => Some(Self::OneVtcmSize),
            30010 => Some(Self::DamagedBinary),
            5005 | 1009 => Some(Self::CheckSoc),
            _ => None,
        }
    }
}

/// The loader reports a library for another processor as a missing file.
fn other_machine(path: &Path) -> Option<Hint> {
    let (library, program) = (machine_of(path)?, std::env::consts::ARCH);
    (library != program).then_some(Hint::OtherMachine { library, program })
}

impl core::fmt::Display for Hint {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::OtherMachine { library, program } => {
                return write!(f, "it is a library for {library}, this program is for {program}");
            }
            Self::NewerSystem => "the library was built for a newer system than this one",
            Self::InstallRuntime => {
                return write!(f, "install Qualcomm's libraries, or set {} to their folder", runtime::DIR_VARIABLE);
            }
            Self::NameBackend => "give the backend itself, e.g. `libQnnHtp.so` or `libQnnHost.so`",
            Self::NewerLibrary => "use a newer QAIRT release",
            Self::AddSystemLibrary { tried } => {
                return write!(f, "put `libQnnSystem.so` beside it; tried: {}", tried.join(", "));
            }
            Self::KnownGraphs(known) => return write!(f, "it has: {}", known.join(", ")),
            Self::MoreThreads => "the system starts no more threads: raise the limit (`ulimit -u`), or use fewer threads",
            Self::MoreMemory => {
                "the system gives no more memory: raise the limit (`ulimit -v`), end other programs, or use a shorter context"
            }
            Self::CompileAgain => "compile the bundle again with this library, or use the library it was made with",
            Self::NoDsp => {
                "no Hexagon DSP was found: run on a Snapdragon, with the x86-64 library (an emulator), or on the host backend"
            }
            Self::SkelFolder => {
                "ADSP_LIBRARY_PATH must name the folder of the `libQnnHtpV..Skel.so` of this chip; separate several \
                 folders by `;`"
            }
            Self::OneVtcmSize => {
                "the emulator cannot hold graphs of different VTCM sizes at the same time: drop one context first"
            }
            Self::DamagedBinary => "the file is damaged: copy it again, or compile it again",
            Self::CheckSoc => "check that the binary was compiled for this SoC",
        })
    }
}
