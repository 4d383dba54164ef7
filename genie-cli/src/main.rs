//! `genie`: text from compiled graphs, on an NPU or on this machine. Flags, printing and exit codes; nothing more.
//!
//! stdout is data, stderr is talk. Exit codes: 0 done, 1 failed in a way the user can mend, 2 bad usage.
#![forbid(unsafe_code)]

mod backend;
mod bundle;
mod calibration;
mod cli;
mod commands;
mod compile_hint;
mod demo;
mod failure;
mod printer;
mod threads;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let args = cli::Cli::parse();
    let printer = printer::Printer::new(&args.talk);
    printer.start_log();
    match commands::run(args.command, &printer) {
        Ok(status) => status.into(),
        Err(error) if failure::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            printer.failure(&error);
            ExitCode::FAILURE
        }
    }
}
