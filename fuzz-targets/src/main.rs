//! `fuzz-driver`: feeds targets with mutated seeds on a stable compiler, each target in a child process with bounded memory.
//!
//! ```text
//! cargo run -p fuzz-targets --bin fuzz-driver -- --seconds 60                 # every target
//! cargo run -p fuzz-targets --bin fuzz-driver -- --seconds 600 gguf snapshot
//! cargo run -p fuzz-targets --bin fuzz-driver -- --replay FILE gguf           # one input again
//! cargo run -p fuzz-targets --bin fuzz-driver -- --write-seeds                # make `seeds/` again
//! ```
//!
//! An input that kills its process, takes longer than ten seconds or asks for more than 4 GiB is kept below
//! `target/fuzz`; the exit code is then 1.
#![forbid(unsafe_code)]

mod child;
mod parent;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Parser;
use fuzz_targets::{TARGETS, Target};

/// Feed the readers of foreign bytes with mutated seeds.
#[derive(Parser)]
struct Args {
    /// Targets; all of them if none is given
    targets: Vec<String>,
    /// Seconds to run each target
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Targets that run at the same time [default: as many as there are cores]
    #[arg(long)]
    jobs: Option<usize>,
    /// Number that all inputs follow from [default: drawn from the clock, and printed]
    #[arg(long)]
    seed: Option<u64>,
    /// Run this one input
    #[arg(long, value_name = "FILE")]
    replay: Option<PathBuf>,
    /// Make the files in `seeds/` again
    #[arg(long)]
    write_seeds: bool,
    /// Run in this process and keep each input in FILE before it is tried (the driver calls itself so)
    #[arg(long, value_name = "FILE", hide = true)]
    child: Option<PathBuf>,
}

fn main() -> Result<ExitCode> {
    let args = Args::parse();
    if args.write_seeds {
        fuzz_targets::seeds::write()?;
        return Ok(ExitCode::SUCCESS);
    }
    let targets = targets(&args.targets)?;
    if let Some(file) = &args.replay {
        let [target] = targets[..] else { bail!("`--replay` takes one target") };
        let input = std::fs::read(file).with_context(|| format!("cannot read `{}`", file.display()))?;
        (target.run)(&input);
        println!("{}: {} bytes, no failure", target.name, input.len());
        return Ok(ExitCode::SUCCESS);
    }
    let clock = || std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(1, |time| time.as_nanos() as u64);
    let seed = args.seed.unwrap_or_else(clock);
    if let Some(current) = &args.child {
        let [target] = targets[..] else { bail!("a child runs one target") };
        child::run(target, seed, args.seconds, current)?;
        return Ok(ExitCode::SUCCESS);
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let failed = parent::run(&targets, seed, args.seconds, args.jobs.unwrap_or(cores).max(1))?;
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn targets(names: &[String]) -> Result<Vec<&'static Target>> {
    if names.is_empty() {
        return Ok(TARGETS.iter().collect());
    }
    let all = || TARGETS.iter().map(|target| target.name).collect::<Vec<_>>().join(", ");
    let find =
        |name: &String| fuzz_targets::find(name).with_context(|| format!("no target `{name}`: one of {}", all()));
    names.iter().map(find).collect()
}
