//! `--quiet`, `--verbose`: how much goes to stderr.

/// How much goes to stderr.
#[derive(clap::Args, Clone, Copy)]
pub struct Verbosity {
    /// Print errors only.
    #[arg(long, short, global = true, conflicts_with = "verbose", display_order = 900)]
    pub quiet: bool,
    /// Log more: `-v` info, `-vv` debug, `-vvv` trace. `GENIE_LOG` overrides it.
    #[arg(long, short, global = true, action = clap::ArgAction::Count, display_order = 900)]
    pub verbose: u8,
}
