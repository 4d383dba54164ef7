//! `cargo xtask kills`: kills `genie` at random moments of compiling, saving and its first run, many times
//! (`genie-cli/tests/kills.rs`). `cargo test` does the same a few times.

use anyhow::Result;

use crate::workspace::sh;

/// How many kills, and when.
#[derive(clap::Args)]
pub struct KillsArgs {
    /// Kills of each of the four subjects.
    #[arg(short, long, value_name = "KILLS", default_value_t = 200)]
    n: u32,
    /// Seed of the moments [default: from the clock].
    #[arg(long, value_name = "SEED")]
    seed: Option<u64>,
}

/// Runs the test with that many kills.
pub fn run(args: &KillsArgs) -> Result<()> {
    let (n, seed) = (args.n.to_string(), args.seed.map(|seed| seed.to_string()));
    let seed = seed.as_deref().map(|seed| ("GENIE_KILLS_SEED", seed));
    let env: Vec<_> = [("GENIE_KILLS", &*n)].into_iter().chain(seed).collect();
    // One after the other: each measures its own uninterrupted run first.
    let test = ["test", "--workspace", "--test", "tests", "kills::", "--", "--nocapture", "--test-threads", "1"];
    sh("cargo", &test, &env)
}
