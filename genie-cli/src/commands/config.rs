//! `genie config`: what is to be said of a dialog config, and the same config for another version of Genie's API.

mod check;
mod convert;
mod source;

use anyhow::Result;

use crate::exit::ExitStatus;
use crate::printer::Printer;

/// Flags of `genie config`.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Check a config: problems, what this build does not support, keys without effect, and which versions of Genie's API accept it.
    Check(check::Args),
    /// Write a config for another version of Genie's API: keys are moved and renamed, what it cannot express is refused.
    Convert(convert::Args),
}

impl Args {
    /// Whether it prints JSON.
    pub fn json(&self) -> bool {
        match &self.what {
            What::Check(args) => args.json,
            What::Convert(args) => args.json,
        }
    }
}

/// Runs the subcommand.
pub fn run(args: &Args, printer: &Printer) -> Result<ExitStatus> {
    match &args.what {
        What::Check(args) => check::run(args, printer),
        What::Convert(args) => convert::run(args, printer),
    }
}
