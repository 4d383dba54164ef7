//! Why there is nothing to examine. What is wrong with what *is* there is a finding, not an error.

use std::path::PathBuf;

/// The question could not be understood.
#[derive(Debug, thiserror::Error)]
pub enum DoctorError {
    /// The subject is not there.
    #[error("`{}` does not exist", .path.display())]
    NoSubject {
        /// What was asked about.
        path: PathBuf,
    },
    /// The folder that should hold QNN's libraries is not there.
    #[error("no folder `{}` to look for libraries in", .path.display())]
    NoLibraries {
        /// What was given.
        path: PathBuf,
    },
    /// The working directory is gone or may not be read.
    #[error("cannot tell the current folder")]
    Cwd {
        /// The system's words.
        source: std::io::Error,
    },
}
