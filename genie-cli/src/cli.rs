//! The command line: global flags, then a command of [`Command`].

use clap::Parser;

use crate::args::Verbosity;
use crate::commands::Command;

/// Generate text from compiled, fixed-shape graphs: on a Hexagon NPU, or on this machine's CPU.
#[derive(Parser)]
#[command(name = "genie", version = crate::version::LINE, propagate_version = true, after_help = crate::exit::HELP)]
pub struct Cli {
    #[command(flatten)]
    pub verbosity: Verbosity,
    #[command(subcommand)]
    pub command: Command,
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::Cli;

    #[test]
    fn flags_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn renamed_flags_keep_their_old_names() {
        for line in [
            "genie compile model -o bundle --target sm8650 --share-weights",
            "genie doctor bundle --quick",
            "genie run -p x --prefix-cache c --prefix-min 32",
            "genie run -p x --policy serve",
        ] {
            assert!(Cli::try_parse_from(line.split(' ')).is_ok(), "{line}");
        }
    }
}
