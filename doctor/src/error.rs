//! Why nothing could be examined. What is wrong with existing files is a finding, not an error.

use std::path::PathBuf;

/// A request that makes no sense.
#[derive(Debug, thiserror::Error)]
pub enum DoctorError {
    /// The subject does not exist.
    #[error("`{}` does not exist", .path.display())]
    NoSubject {
        /// The requested path.
        path: PathBuf,
    },
    /// The folder for QNN's libraries does not exist.
    #[error("library folder `{}` does not exist", .path.display())]
    NoLibraries {
        /// The requested path.
        path: PathBuf,
    },
    /// The current folder does not exist or is not readable.
    #[error("cannot determine the current folder")]
    Cwd {
        /// The system's error.
        source: std::io::Error,
    },
}
