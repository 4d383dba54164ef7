//! One file per command; each takes its flags and the printer and says how it went.

mod bench;
pub mod compile;
mod doctor;
mod inspect;
mod perplexity;
pub mod plan;
mod run;
mod verify;

use std::process::ExitCode;

use anyhow::Result;

use crate::cli::Command;
use crate::printer::Printer;

/// How a command ended when nothing broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitStatus {
    /// Did what was asked: 0.
    Done,
    /// Ran to its end and the answer is no: 1.
    Failed,
    /// The question made no sense, as a bad flag does: 2.
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

/// Hands the flags to their command.
pub fn run(command: Command, printer: &Printer) -> Result<ExitStatus> {
    match command {
        Command::Run(args) => run::run(&args, printer),
        Command::Compile(args) => compile::run(&args, printer),
        Command::Inspect(args) => inspect::run(&args, printer),
        Command::Plan(args) => plan::run(&args, printer),
        Command::Bench(args) => bench::run(&args, printer),
        Command::Verify(args) => verify::run(&args, printer),
        Command::Perplexity(args) => perplexity::run(&args, printer),
        Command::Doctor(args) => doctor::run(&args, printer),
    }
}
