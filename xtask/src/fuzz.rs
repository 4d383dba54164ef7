//! `cargo xtask fuzz`: the targets of `fuzz-targets` under libFuzzer with AddressSanitizer. Needs a nightly
//! compiler; installs `cargo-fuzz` below target/tools. What it found stays in `target/fuzz-corpus`.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use crate::workspace::{root, sh};

/// Version of cargo-fuzz that is installed.
const CARGO_FUZZ: &str = "0.13.2";

#[derive(Args)]
pub struct FuzzArgs {
    /// Targets; all of them if none is given
    targets: Vec<String>,
    /// Minutes for each target
    #[arg(long, default_value_t = 10)]
    minutes: u64,
    /// The nightly toolchain
    #[arg(long, default_value = "nightly")]
    toolchain: String,
}

/// Runs the targets one after the other; fails with the first that fails.
pub fn run(args: &FuzzArgs) -> Result<()> {
    let root = root();
    let known = names(&fs::read_to_string(root.join("fuzz/Cargo.toml")).context("cannot read fuzz/Cargo.toml")?);
    if let Some(unknown) = args.targets.iter().find(|name| !known.contains(name)) {
        bail!("no target `{unknown}`: one of {}", known.join(", "));
    }
    let toolchain = format!("+{}", args.toolchain);
    let nightly = Command::new("cargo").args([&toolchain, "--version"]).output().is_ok_and(|out| out.status.success());
    ensure!(nightly, "no toolchain `{}`: `rustup toolchain install nightly`", args.toolchain);
    let tools = root.join("target/tools");
    let program = tools.join("bin/cargo-fuzz");
    if !program.exists() {
        let (tools, version) = (tools.display().to_string(), format!("cargo-fuzz@{CARGO_FUZZ}"));
        sh("cargo", &["install", "--quiet", "--locked", "--root", &tools, &version], &[])?;
    }
    let seconds = (args.minutes * 60).to_string();
    for target in if args.targets.is_empty() { &known } else { &args.targets } {
        let corpus = root.join("target/fuzz-corpus").join(target);
        fs::create_dir_all(&corpus).with_context(|| format!("cannot create `{}`", corpus.display()))?;
        let seeds = root.join("fuzz-targets/seeds").join(target);
        let mut command = Command::new("cargo");
        command.args([&toolchain, "fuzz", "run", "--fuzz-dir", "fuzz", target]).arg(&corpus);
        if seeds.is_dir() {
            command.arg(&seeds);
        }
        command.args(["--", &format!("-max_total_time={seconds}"), "-timeout=30", "-rss_limit_mb=4096"]);
        let path = std::env::join_paths(
            [tools.join("bin")].into_iter().chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())),
        )?;
        let target_dir = root.join("target/fuzz-build");
        let status = command.current_dir(&root).env("PATH", path).env("CARGO_TARGET_DIR", target_dir).status()?;
        ensure!(status.success(), "target `{target}` failed: its input is in fuzz/artifacts/{target}");
    }
    Ok(())
}

/// The programs that fuzz/Cargo.toml declares.
fn names(manifest: &str) -> Vec<String> {
    let programs = manifest.split("[[bin]]").skip(1);
    programs.filter_map(|text| Some(text.split_once("name = \"")?.1.split_once('"')?.0.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_program_for_each_target() {
        let programs = names(&fs::read_to_string(root().join("fuzz/Cargo.toml")).unwrap());
        let table = fs::read_to_string(root().join("fuzz-targets/src/targets.rs")).unwrap();
        let targets: Vec<&str> =
            table.split("    target(\"").skip(1).filter_map(|text| Some(text.split_once('"')?.0)).collect();
        assert!(!targets.is_empty());
        assert_eq!(programs, targets);
    }
}
