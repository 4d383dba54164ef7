//! How a command ended, as an exit code.

use std::process::ExitCode;

/// How a command ended when it ran without an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitStatus {
    /// Success: 0.
    Done,
    /// The command ran to its end and the result is negative: 1.
    Failed,
    /// A flag's value makes no sense: 2.
    Usage,
}

impl From<ExitStatus> for ExitCode {
    fn from(status: ExitStatus) -> Self {
        match status {
            ExitStatus::Done => Self::SUCCESS,
            ExitStatus::Failed => Self::FAILURE,
            ExitStatus::Usage => Self::from(2),
        }
    }
}
