//! `cargo xtask build` and `cargo xtask test`: the workspace for another machine, and its tests under an emulator.

pub mod debian;
pub mod decode;
mod suites;
pub mod toolchain;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::Args;

use crate::workspace::sh;
use toolchain::{StdFrom, Toolchain};

/// What is built, and for whom.
#[derive(Args, Clone)]
pub struct TargetArgs {
    /// The machine, as rustc calls it.
    #[arg(long, default_value = toolchain::AARCH64)]
    pub target: String,
    /// Where the target's standard library comes from.
    #[arg(long, value_enum, default_value = "auto")]
    pub std: StdFrom,
}

/// `cargo xtask build`.
#[derive(Args)]
pub struct BuildArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// With optimisation, for use on a device.
    #[arg(long)]
    release: bool,
    /// Only this crate [default: the workspace].
    #[arg(long, short, value_name = "CRATE")]
    package: Vec<String>,
}

/// `cargo xtask test`.
#[derive(Args)]
pub struct TestArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// Cases of a property of qnn-host at the most, of those of the libraries that have no number of their own, and, ten times as many, of the
    /// cache's model test [default: as without emulation].
    #[arg(long, value_name = "CASES")]
    cases: Option<u32>,
    /// Only these steps.
    #[arg(long, value_enum, value_name = "STEP")]
    only: Vec<suites::Step>,
}

/// Builds, gives the backend its QNN name, and prints what is there.
pub fn build(args: &BuildArgs) -> Result<()> {
    let toolchain = Toolchain::prepare(&args.target.target, args.target.std)?;
    for path in compile(&toolchain, &args.target.target, args.release, &args.package)? {
        let bytes = fs::metadata(&path)?.len();
        println!("{} {:.1} MB, {}", path.display(), bytes as f64 / 1e6, args.target.target);
    }
    Ok(())
}

/// Builds packages (none: all) and returns the programs and libraries that a device needs.
pub fn compile(toolchain: &Toolchain, target: &str, release: bool, packages: &[String]) -> Result<Vec<PathBuf>> {
    let mut args = vec!["build"];
    let folder = toolchain.out_dir(target)?.join(if release { "release" } else { "debug" });
    if folder.parent().is_some_and(|parent| parent.ends_with(target)) {
        args.extend(["--target", target]);
    }
    args.extend(release.then_some("--release"));
    if packages.is_empty() {
        args.push("--workspace");
    }
    for package in packages {
        args.extend(["--package", package]);
    }
    sh("cargo", &args, &borrowed(toolchain.env()))?;
    let host = folder.join("libqnn_host.so");
    if host.exists() {
        copy(&host, &folder.join("libQnnHost.so"))?;
    }
    Ok(["genie", "libQnnHost.so"].map(|name| folder.join(name)).into_iter().filter(|path| path.exists()).collect())
}

/// Runs the suites.
pub fn test(args: &TestArgs) -> Result<()> {
    let toolchain = Toolchain::prepare(&args.target.target, args.target.std)?;
    suites::run(&toolchain, &args.target.target, args.cases, &args.only)
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to).with_context(|| format!("cannot copy `{}` to `{}`", from.display(), to.display()))?;
    Ok(())
}

/// As `sh` takes them.
fn borrowed(env: &[(String, String)]) -> Vec<(&str, &str)> {
    env.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
}
