//! What can go wrong around the real library.

use std::path::PathBuf;

use super::codes::code_name;

/// Why a session did not come to an outcome. A query that the library answers with a code is an outcome.
#[derive(Debug, thiserror::Error)]
pub enum GenieError {
    /// The library cannot be loaded.
    #[error("cannot load `{path}`")]
    Load {
        /// The file.
        path: PathBuf,
        /// What the loader says.
        #[source]
        source: libloading::Error,
    },
    /// A function of the measured interface is not there.
    #[error("`{path}` has no `{symbol}`; Genie 1.13 to 1.21 export it")]
    Symbol {
        /// The file.
        path: PathBuf,
        /// The function.
        symbol: &'static str,
    },
    /// A call before the first query failed.
    #[error("`{call}` answered {code} ({})", code_name(*.code))]
    Call {
        /// The function.
        call: &'static str,
        /// Its status.
        code: i32,
    },
    /// Text with a zero byte cannot be given to C.
    #[error("a zero byte in {what}")]
    ZeroByte {
        /// Which text.
        what: &'static str,
    },
    /// A file of the session cannot be used.
    #[error("cannot use `{path}`")]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: std::io::Error,
    },
    /// Something is not the JSON that it should be.
    #[error("{what} is not the expected JSON")]
    Json {
        /// Which text.
        what: String,
        /// Where it is off.
        #[source]
        source: serde_json::Error,
    },
    /// The program that plays sessions is not built.
    #[error("`{name}` is not beside `{beside}`; `cargo build -p conformance` makes it")]
    NoProgram {
        /// The program.
        name: String,
        /// Where it was looked for.
        beside: PathBuf,
    },
    /// The process ended without an outcome.
    #[error("the process of libGenie ended with {status}; its last output:\n{words}")]
    Died {
        /// Exit code or signal.
        status: String,
        /// The end of what it wrote.
        words: String,
    },
}
