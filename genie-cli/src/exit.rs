//! How a command ended, as an exit code. The table is in README.md, `genie --help` and docs/exit-codes.md.

use std::process::ExitCode;

use crate::interrupt::Signal;

/// What `genie --help` says of exit codes.
pub const HELP: &str = "Exit codes:
  0    done; also when the reader of stdout left early (`| head`)
  1    failed, or the result is negative (`verify`, `doctor`); the error says what to do
  2    bad usage
  130  ended by Ctrl-C (SIGINT); 143 by SIGTERM, 129 by SIGHUP";

/// How a command ended when it ran without an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitStatus {
    /// Success: 0.
    Done,
    /// The command ran to its end and the result is negative, or it failed: 1.
    Failed,
    /// A flag's value makes no sense: 2.
    Usage,
    /// A signal ended it: 128 and the signal's number.
    Interrupted(Signal),
}

impl From<ExitStatus> for ExitCode {
    fn from(status: ExitStatus) -> Self {
        match status {
            ExitStatus::Done => Self::SUCCESS,
            ExitStatus::Failed => Self::FAILURE,
            ExitStatus::Usage => Self::from(2),
            ExitStatus::Interrupted(signal) => Self::from(signal.exit_code()),
        }
    }
}
