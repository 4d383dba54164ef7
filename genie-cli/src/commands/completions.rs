//! `genie completions`: the completion script of a shell.

use anyhow::Result;
use clap::Command;
use clap_complete::{Shell, generate};

use crate::exit::ExitStatus;
use crate::printer::Printer;

/// Flags of `genie completions`.
#[derive(clap::Args)]
pub struct Args {
    /// The shell.
    #[arg(value_enum)]
    pub shell: Shell,
}

/// Prints the script of a command line.
pub fn run(args: &Args, mut whole: Command, printer: &Printer) -> Result<ExitStatus> {
    let mut script = Vec::new();
    generate(args.shell, &mut whole, "genie", &mut script);
    printer.raw(&script)?;
    Ok(ExitStatus::Done)
}
