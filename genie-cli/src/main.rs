//! `genie`: generates text from compiled graphs, on an NPU or on this machine's CPU. Flags, printing and exit codes; no more.
//!
//! stdout carries data, stderr everything else. Exit codes are those of [`exit`].
#![forbid(unsafe_code)]

mod args;
mod cli;
mod commands;
mod counted;
mod defaults;
mod escape;
mod exit;
mod failure;
mod file_limit;
mod hints;
mod interrupt;
mod log_format;
mod other_spellings;
mod outfile;
mod printer;
mod prompt_text;
mod unknown_flag;
mod usage;
mod user_error;
mod version;

use std::process::ExitCode;

use clap::CommandFactory;

use exit::ExitStatus;

fn main() -> ExitCode {
    let cli = match usage::parse() {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    let printer = printer::Printer::new(cli.verbosity, cli.command.json());
    printer.start_log();
    file_limit::take_signal();
    printer.start_signals();
    let done = cli.command.run(cli::Cli::command(), &printer);
    let status = match (done, printer.interrupt().received()) {
        (Ok(_), Some(signal)) => ExitStatus::Interrupted(signal),
        (Ok(status), None) => status,
        (Err(error), Some(signal)) if failure::is_stop(&error) => {
            printer.interrupted(signal, error);
            ExitStatus::Interrupted(signal)
        }
        (Err(error), _) => {
            printer.failure(&error);
            ExitStatus::Failed
        }
    };
    status.into()
}
