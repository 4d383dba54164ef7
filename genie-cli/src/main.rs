//! `genie`: generates text from compiled graphs, on an NPU or on this machine's CPU. Flags, printing and exit codes; no more.
//!
//! stdout carries data, stderr everything else. Exit codes: 0 done, 1 failed in a way that the user can fix, 2 bad usage.
#![forbid(unsafe_code)]

mod args;
mod cli;
mod commands;
mod escape;
mod exit;
mod failure;
mod file_limit;
mod hints;
mod log_format;
mod outfile;
mod printer;
mod prompt_text;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let cli = match cli::Cli::try_parse() {
        Ok(cli) => cli,
        // A mistake is quoted; help is clap's own text.
        Err(error) if error.use_stderr() => {
            eprint!("{}", escape::escape(&error.render().to_string()));
            return ExitCode::from(2);
        }
        Err(help) => help.exit(),
    };
    let printer = printer::Printer::new(cli.verbosity);
    printer.start_log();
    file_limit::take_signal();
    match cli.command.run(&printer) {
        Ok(status) => status.into(),
        Err(error) if failure::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            printer.failure(&error);
            ExitCode::FAILURE
        }
    }
}
