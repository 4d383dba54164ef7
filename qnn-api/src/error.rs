//! What can go wrong with a QNN library: errors that name the call, the thing and what was found.

use std::path::PathBuf;

use thiserror::Error;

/// Result of this crate.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// A call that returned an error number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QnnError {
    /// The slot that was called, as QNN spells it.
    pub call: &'static str,
    /// The number.
    pub code: u64,
    /// The library's own message, if any: its error lines in the log, else its text for the number.
    pub library_message: Option<String>,
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

    /// What the number usually means, where its name does not.
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
        write!(f, "`{}` returned {} (`{}`, {})", self.call, self.code, self.name(), self.component())?;
        match (self.meaning(), &self.library_message) {
            // A library that names its call gives the reason itself: the number's usual meaning would contradict it.
            (_, Some(message)) if own_words(message).is_some() => {
                write!(f, ": {}", own_words(message).unwrap_or(message))
            }
            // A number without a reason means nothing beside the library's own words.
            (_, Some(message)) if self.code == u64::from(qnn_sys::QNN_COMMON_ERROR_GENERAL) => write!(f, ": {message}"),
            (Some(meaning), Some(message)) => write!(f, ": {meaning}; the library reports: {message}"),
            (Some(meaning), None) => write!(f, ": {meaning}"),
            (None, Some(message)) => write!(f, "; the library reports: {message}"),
            (None, None) => Ok(()),
        }
    }
}

impl core::error::Error for QnnError {}

/// What follows the name of a call, as the host backend writes its messages: `QnnGraph_retrieve: no such graph`.
fn own_words(message: &str) -> Option<&str> {
    let (call, words) = message.split_once(": ")?;
    let is_name = call.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    (call.starts_with("Qnn") && call.contains('_') && is_name).then_some(words)
}

/// Errors of this crate.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The dynamic loader refused the file.
    #[error("cannot load library `{}`", path.display())]
    Open {
        /// The file, as it was asked for.
        path: PathBuf,
        /// The loader's message.
        source: libloading::Error,
    },
    /// No file of that name in any of the places where QNN libraries are looked for.
    #[error("no `{name}` found; looked for {}; {why}", list_of(places))]
    NotFound {
        /// The file name.
        name: String,
        /// The files that were looked for, in order.
        places: Vec<PathBuf>,
        /// Why the system's loader did not find it either.
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
        /// The oldest that is supported: major, minor.
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
    /// A call returned an error number.
    #[error("cannot {operation}")]
    Qnn {
        /// What was attempted, with the names of the things, e.g. "finalize graph `ar1_cl512_1_of_1`".
        operation: String,
        /// The call and its error number.
        source: QnnError,
    },
    /// A name that no C string can hold.
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
    /// The library described something in an unknown form.
    #[error("{what}: the library's description is not understood: {why}")]
    Description {
        /// The thing described.
        what: String,
        /// What is not understood.
        why: String,
    },
    /// A file could not be read or written.
    #[error("cannot {operation} `{}`", path.display())]
    Io {
        /// The verb, e.g. "open".
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// Who watched a context being saved wanted an end ([`SaveWatch`](crate::SaveWatch)).
    #[error("`{}` is not written: stopped on request", path.display())]
    Stopped {
        /// The file that would have been.
        path: PathBuf,
    },
    /// Who watched a constant being declared wanted an end ([`GraphBuilder::constant_watched`](crate::GraphBuilder::constant_watched)).
    #[error("graph `{graph}`: tensor `{tensor}` is not declared: stopped on request")]
    ConstantStopped {
        /// The graph.
        graph: String,
        /// The tensor.
        tensor: String,
    },
    /// A context binary could not be written.
    #[error("{0}")] // not transparent: hints look for the cause by its type
    File(#[from] file_io::FileError),
}

fn list_of(places: &[PathBuf]) -> String {
    places.iter().map(|place| format!("`{}`", place.display())).collect::<Vec<_>>().join(", ")
}

impl Error {
    /// The failed call, if this is one.
    pub fn qnn(&self) -> Option<&QnnError> {
        match self {
            Self::Qnn { source, .. } => Some(source),
            _ => None,
        }
    }

    /// True when the library just does not offer what was asked, by version, by an empty slot, or by the number it returned.
    pub fn is_unsupported(&self) -> bool {
        matches!(self, Self::Missing { .. }) || self.qnn().is_some_and(QnnError::is_unsupported)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Hint;

    #[test]
    fn a_library_for_another_machine_is_recognised() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("libQnnHtp.so");
        let mut file = [0; 64];
        file[..4].copy_from_slice(b"\x7fELF");
        file[18] = 164;
        std::fs::write(&path, file).unwrap();
        let error = crate::Library::open(&path).unwrap_err();
        let hint = error.hint().unwrap().to_string();
        assert!(hint.starts_with("it is a library for hexagon, this program is for "), "{error}: {hint}");
        // A file that is no library at all is left to the loader's own message.
        std::fs::write(&path, "text, and more than twenty bytes of it").unwrap();
        assert_eq!(crate::Library::open(&path).unwrap_err().hint(), None);
    }

    #[test]
    fn a_missing_chip_is_recognised() {
        let source =
            QnnError { call: "backendCreate", code: 4000, library_message: Some("No Snapdragon SOC detected".into()) };
        let error = Error::Qnn { operation: "start backend `HTP_QTI_AISW`".into(), source };
        assert!(error.hint().unwrap().to_string().contains("run on a Snapdragon"));
        assert!(error.qnn().unwrap().to_string().contains("No Snapdragon SOC detected"));
    }

    #[test]
    fn an_error_number_comes_with_name_component_and_meaning() {
        let error =
            QnnError { call: "contextCreateFromBinary", code: 5005, library_message: Some("no such graph".into()) };
        let text = error.to_string();
        for part in [
            "`contextCreateFromBinary` returned 5005",
            "QNN_CONTEXT_ERROR_CREATE_FROM_BINARY",
            ", context)",
            "could not be loaded",
            "the library reports: no such graph",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }

    /// Section 4: a missing thread was explained by a skel library, missing memory by the hardware's ops.
    #[test]
    fn a_librarys_own_reason_takes_the_place_of_the_usual_meaning() {
        for (code, message, want, hint) in [
            (
                1003,
                "QnnGraph_retrieve: cannot start a thread: Resource temporarily unavailable (os error 11)",
                "`graphRetrieve` returned 1003 (`QNN_COMMON_ERROR_SYSTEM`, common): cannot start a thread: Resource \
                 temporarily unavailable (os error 11)",
                Some(Hint::MoreThreads),
            ),
            (
                6022,
                "QnnGraph_retrieve: graph `g` cannot be finalized: a run needs 545 kB of memory, the system gives none",
                "`graphRetrieve` returned 6022 (`QNN_GRAPH_ERROR_FINALIZE_FAILED`, graph): graph `g` cannot be \
                 finalized: a run needs 545 kB of memory, the system gives none",
                Some(Hint::MoreMemory),
            ),
            (
                5005,
                "no such graph: x",
                "`graphRetrieve` returned 5005 (`QNN_CONTEXT_ERROR_CREATE_FROM_BINARY`, context): the binary could not be \
                 loaded: other SoC, more VTCM than there is, or no memory to map it; the library reports: no such graph: x",
                Some(Hint::CheckSoc),
            ),
        ] {
            let source = QnnError { call: "graphRetrieve", code, library_message: Some(message.into()) };
            assert_eq!(source.to_string(), want);
            assert_eq!(Error::Qnn { operation: String::new(), source }.hint(), hint);
        }
    }

    #[test]
    fn a_message_takes_the_place_of_no_reason() {
        let message = Some("the host backend panicked: index out of bounds".into());
        let error = QnnError { call: "graphExecute", code: 1100, library_message: message };
        let text = "`graphExecute` returned 1100 (`QNN_COMMON_ERROR_GENERAL`, common): the host backend panicked: \
                    index out of bounds";
        assert_eq!(error.to_string(), text);
        assert!(
            QnnError { library_message: None, ..error }
                .to_string()
                .ends_with("the library gives no reason; its log may")
        );
    }

    #[test]
    fn a_library_that_is_nowhere_names_every_place() {
        let error = Error::NotFound {
            name: "libQnnHtp.so".into(),
            places: vec!["/a/libQnnHtp.so".into(), "/b/libQnnHtp.so".into()],
            why: "the system's loader: no".into(),
        };
        let text = "no `libQnnHtp.so` found; looked for `/a/libQnnHtp.so`, `/b/libQnnHtp.so`; the system's loader: no";
        assert_eq!(error.to_string(), text);
        assert_eq!(error.hint(), Some(Hint::InstallRuntime));
        assert!(Hint::InstallRuntime.to_string().contains("QNN_RUNTIME_DIR"));
    }

    #[test]
    fn an_unknown_number_is_named_so() {
        let text = QnnError { call: "graphExecute", code: 77, library_message: None }.to_string();
        assert_eq!(text, "`graphExecute` returned 77 (`unknown error`, unknown)");
    }
}
