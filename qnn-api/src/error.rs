//! What can go wrong between us and a QNN library, in words that name the call, the thing, and what was found.

use std::path::{Path, PathBuf};

use thiserror::Error;

/// Result of this crate.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// A call that the library answered with an error number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QnnError {
    /// The slot that was called, as QNN spells it.
    pub call: &'static str,
    /// The answer.
    pub code: u64,
    /// What the library itself said about it (its error lines in the log, or its message for the number), if anything.
    pub said: Option<String>,
}

impl QnnError {
    /// The number's name in the headers, e.g. `QNN_CONTEXT_ERROR_CREATE_FROM_BINARY`.
    pub fn name(&self) -> &'static str {
        qnn_sys::error::name(self.code)
    }

    /// The part of QNN whose range the number lies in, e.g. `context`.
    pub fn component(&self) -> &'static str {
        qnn_sys::error::component(self.code)
    }

    /// What the number usually means, where its name does not say it.
    pub fn meaning(&self) -> Option<&'static str> {
        qnn_sys::error::meaning(self.code)
    }

    /// True when the library just does not offer the call on this platform.
    pub fn is_unsupported(&self) -> bool {
        self.code == qnn_sys::stub::NOT_SUPPORTED
    }
}

impl core::fmt::Display for QnnError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "`{}` answered {} (`{}`, {})", self.call, self.code, self.name(), self.component())?;
        if let Some(meaning) = self.meaning() {
            write!(f, ": {meaning}")?;
        }
        if let Some(said) = &self.said {
            write!(f, "; the library said: {said}")?;
        }
        Ok(())
    }
}

impl core::error::Error for QnnError {}

/// Errors of this crate.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The dynamic loader refused the file.
    #[error("cannot load library `{}`", path.display())]
    Open {
        /// The file, as it was asked for.
        path: PathBuf,
        /// The loader's words.
        source: libloading::Error,
    },
    /// No file of that name in any of the places where QNN libraries are looked for.
    #[error("no `{name}` found; looked for {}; {why}", shown(places))]
    NotFound {
        /// The file name.
        name: String,
        /// The files that were looked for, in order.
        places: Vec<PathBuf>,
        /// What came of the last resort.
        why: String,
    },
    /// The file is a library, but not of QNN.
    #[error("library `{library}` has no symbol `{symbol}`: it is not a QNN library of that kind")]
    Symbol {
        /// Where the library came from.
        library: String,
        /// The entry point that every backend exports.
        symbol: &'static str,
    },
    /// The library offers no interface at all.
    #[error("library `{library}` offers no interface provider")]
    NoProvider {
        /// Where the library came from.
        library: String,
    },
    /// The library's interface is too old, or of another major version.
    #[error("library `{library}`: {interface} API {}.{}.{} found, {}.{} or a later {}.x needed", found.0, found.1, found.2, need.0, need.1, need.0)]
    Version {
        /// Where the library came from.
        library: String,
        /// `core` or `system`.
        interface: &'static str,
        /// What it offers: major, minor, patch.
        found: (u32, u32, u32),
        /// The oldest we can read: major, minor.
        need: (u32, u32),
    },
    /// The library's version lacks the call, or its slot is empty.
    #[error("library `{library}` does not offer `{call}`")]
    Missing {
        /// Where the library came from.
        library: String,
        /// The slot, as QNN spells it.
        call: &'static str,
    },
    /// No system library was found, so context binaries cannot be described.
    #[error("no QNN system library beside `{library}`: cannot read what a context binary holds")]
    NoSystem {
        /// Where the backend library came from.
        library: String,
        /// What was tried.
        tried: Vec<String>,
    },
    /// The library answered with an error number.
    #[error("cannot {doing}")]
    Qnn {
        /// What was attempted, with the names of the things, e.g. "finalize graph `ar1_cl512_1_of_1`".
        doing: String,
        /// The call and its answer.
        source: QnnError,
    },
    /// A name that cannot be told to C.
    #[error("name {name:?} holds a zero byte")]
    Name {
        /// The name.
        name: String,
    },
    /// The context has no graph of that name.
    #[error("no graph `{name}` in this context")]
    NoGraph {
        /// The name asked for.
        name: String,
        /// The names there are.
        known: Vec<String>,
    },
    /// A client buffer does not fit its tensor.
    #[error("graph `{graph}`: tensor `{tensor}` takes {expected} bytes, the buffer has {found}")]
    BufferSize {
        /// The graph.
        graph: String,
        /// The tensor.
        tensor: String,
        /// Bytes of the tensor.
        expected: usize,
        /// Bytes of the buffer.
        found: usize,
    },
    /// An input or output index beyond the graph's lists.
    #[error("graph `{graph}` has {n} {what}s, no {what} {index}")]
    Index {
        /// The graph.
        graph: String,
        /// `input` or `output`.
        what: &'static str,
        /// The index asked for.
        index: usize,
        /// How many there are.
        n: usize,
    },
    /// A session was run before all of its tensors had a buffer.
    #[error("graph `{graph}`: {what} `{tensor}` has no buffer")]
    Unbound {
        /// The graph.
        graph: String,
        /// `input` or `output`.
        what: &'static str,
        /// The tensor.
        tensor: String,
    },
    /// A tensor that was made by one graph builder was given to another.
    #[error("graph `{graph}`, node `{node}`: a tensor of another graph was given")]
    ForeignTensor {
        /// The graph.
        graph: String,
        /// The node.
        node: String,
    },
    /// Something this crate cannot express in the C structs.
    #[error("{what}: expected {expected}, found {found}")]
    Invalid {
        /// The thing, with its name.
        what: String,
        /// What it must be.
        expected: String,
        /// What it is.
        found: String,
    },
    /// The library described something in a form that we do not know.
    #[error("{what}: the library's description is not understood: {why}")]
    Description {
        /// The thing described.
        what: String,
        /// What is odd about it.
        why: String,
    },
    /// A file could not be read or written.
    #[error("cannot {doing} `{}`", path.display())]
    Io {
        /// The verb, e.g. "open".
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's words.
        source: std::io::Error,
    },
}

fn shown(places: &[PathBuf]) -> String {
    places.iter().map(|place| format!("`{}`", place.display())).collect::<Vec<_>>().join(", ")
}

impl Error {
    /// What the user can do about it, apart from the text.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Open { path, source } => {
                let newer = "the library was built for a newer system than this one";
                foreign(path).or_else(|| source.to_string().contains("GLIBC").then(|| newer.to_owned()))
            }
            Self::NotFound { .. } => Some(
                "`cargo xtask qnn-runtime` fetches Qualcomm's libraries into target/; or set QNN_RUNTIME_DIR to their \
                 folder, or give the file with `--backend-lib`"
                    .into(),
            ),
            Self::Symbol { .. } => Some("give the backend itself, e.g. `libQnnHtp.so` or `libQnnHost.so`".into()),
            Self::Version { found, need, .. } if found.0 == need.0 => Some("use a newer QAIRT release".into()),
            Self::NoSystem { tried, .. } => {
                Some(format!("put `libQnnSystem.so` beside it; tried: {}", tried.join(", ")))
            }
            Self::NoGraph { known, .. } => Some(format!("it has: {}", known.join(", "))),
            Self::Qnn { source, .. } => match source.code {
                5004 | 1008 => {
                    Some("compile the bundle again with this library, or use the library it was made with".into())
                }
                // The aarch64 library on another machine: starting the backend answers so.
                4000 => Some(
                    "no Hexagon chip answers here: run on a Snapdragon, with the x86-64 library (an emulator), or on the \
                     host backend"
                        .into(),
                ),
                1003 if cfg!(not(target_arch = "x86_64")) => Some(
                    "ADSP_LIBRARY_PATH must name the folder of the `libQnnHtpV..Skel.so` of this chip; several folders \
                     are parted by `;`"
                        .into(),
                ),
                1100 if source.said.as_ref().is_some_and(|said| said.contains("VTCM pointer")) => Some(
                    "the emulator cannot run graphs of different VTCM sizes while both are there: drop one context first"
                        .into(),
                ),
                30010 => Some(
                    "made for another backend? `--backend htp` reads Qualcomm's binaries, `--backend host` ours".into(),
                ),
                5005 | 1009 => Some("check that the binary was compiled for this SoC".into()),
                _ => None,
            },
            _ => None,
        }
    }

    /// The library's answer, if this is one.
    pub fn qnn(&self) -> Option<&QnnError> {
        match self {
            Self::Qnn { source, .. } => Some(source),
            _ => None,
        }
    }

    /// True when the library just does not offer what was asked, by version, by an empty slot, or by its answer.
    pub fn is_unsupported(&self) -> bool {
        matches!(self, Self::Missing { .. }) || self.qnn().is_some_and(QnnError::is_unsupported)
    }
}

/// Says so when the file is a library for another machine: the loader then claims that there is no such file.
fn foreign(path: &Path) -> Option<String> {
    let mut head = [0; 20];
    std::fs::File::open(path).and_then(|mut file| std::io::Read::read_exact(&mut file, &mut head)).ok()?;
    // ELF: `e_machine` at 18; EM_X86_64, EM_AARCH64, EM_HEXAGON.
    let machine = match (head.starts_with(b"\x7fELF"), u16::from_le_bytes([head[18], head[19]])) {
        (true, 62) => "x86_64",
        (true, 183) => "aarch64",
        (true, 164) => "hexagon",
        _ => return None,
    };
    let ours = std::env::consts::ARCH;
    (machine != ours).then(|| format!("it is a library for {machine}, this program is for {ours}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_for_another_machine_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("libQnnHtp.so");
        let mut file = [0; 64];
        file[..4].copy_from_slice(b"\x7fELF");
        file[18] = 164;
        std::fs::write(&path, file).unwrap();
        let error = crate::Library::open(&path).unwrap_err();
        let hint = error.hint().unwrap();
        assert!(hint.starts_with("it is a library for hexagon, this program is for "), "{error}: {hint}");
        // A file that is no library at all is left to the loader's own words.
        std::fs::write(&path, "text, and more than twenty bytes of it").unwrap();
        assert_eq!(crate::Library::open(&path).unwrap_err().hint(), None);
    }

    #[test]
    fn a_missing_chip_is_told() {
        let source = QnnError { call: "backendCreate", code: 4000, said: Some("No Snapdragon SOC detected".into()) };
        let error = Error::Qnn { doing: "start backend `HTP_QTI_AISW`".into(), source };
        assert!(error.hint().unwrap().contains("run on a Snapdragon"));
        assert!(error.qnn().unwrap().to_string().contains("No Snapdragon SOC detected"));
    }

    #[test]
    fn an_answer_is_told_with_number_name_component_and_meaning() {
        let error = QnnError { call: "contextCreateFromBinary", code: 5005, said: Some("no such graph".into()) };
        let text = error.to_string();
        for part in [
            "`contextCreateFromBinary` answered 5005",
            "QNN_CONTEXT_ERROR_CREATE_FROM_BINARY",
            ", context)",
            "could not be loaded",
            "the library said: no such graph",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn a_library_that_is_nowhere_names_every_place_and_the_way_out() {
        let error = Error::NotFound {
            name: "libQnnHtp.so".into(),
            places: vec!["/a/libQnnHtp.so".into(), "/b/libQnnHtp.so".into()],
            why: "the system's loader: no".into(),
        };
        let text = "no `libQnnHtp.so` found; looked for `/a/libQnnHtp.so`, `/b/libQnnHtp.so`; the system's loader: no";
        assert_eq!(error.to_string(), text);
        assert!(error.hint().unwrap().contains("cargo xtask qnn-runtime"));
    }

    #[test]
    fn an_unknown_number_is_told_as_such() {
        let text = QnnError { call: "graphExecute", code: 77, said: None }.to_string();
        assert_eq!(text, "`graphExecute` answered 77 (`unknown error`, unknown)");
    }
}
