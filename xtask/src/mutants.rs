//! `cargo xtask mutants`: changes the file layer and the planner in small ways, one at a time, and runs their tests: a
//! change that no test notices is a gap. Installs `cargo-mutants` below target/tools; its results stay in `target/mutants`.
//!
//! *Left out*: what `.cargo/mutants.toml` names, changes that make no difference a test could see.
//! *Trap*: a changed file layer may remove what it should keep, so `TMPDIR` is a folder of this task's own.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::workspace::{root, sh};

/// Version of cargo-mutants that is installed.
const CARGO_MUTANTS: &str = "27.1.0";

/// What is changed, and the tests that have to notice.
struct Scope {
    name: &'static str,
    args: &'static [&'static str],
}

/// Arguments after `--cargo-arg` choose tests: doctests and slow suites of other parts would run for each change.
const SCOPES: [Scope; 2] = [
    Scope { name: "files", args: &["-p", "file-io", "--cargo-arg=--tests"] },
    Scope {
        name: "planner",
        args: &[
            "-p",
            "kvmanager",
            "-f",
            "kvmanager/src/plan/**",
            "--cargo-arg=--lib",
            "--cargo-arg=--test=scheduling",
            // Building takes longer than testing.
            "--cargo-arg=--config=profile.dev.package.kvmanager.opt-level=1",
        ],
    },
];

#[derive(clap::Args)]
pub struct MutantsArgs {
    /// `files` or `planner`; both if none is given.
    scopes: Vec<String>,
    /// Only changes whose name matches this regular expression, as in `space.rs` or `replace sweep`.
    #[arg(long, value_name = "REGEX")]
    re: Option<String>,
    /// Seconds after which tests that still run count as having noticed a change.
    #[arg(long, default_value_t = 120)]
    timeout: u32,
}

/// Runs the scopes one after the other; fails if a change of any of them went unnoticed.
pub fn run(args: &MutantsArgs) -> Result<()> {
    if let Some(unknown) = args.scopes.iter().find(|name| SCOPES.iter().all(|scope| scope.name != **name)) {
        bail!("no scope `{unknown}`: expected one of {}", SCOPES.map(|scope| scope.name).join(", "));
    }
    let tools = root().join("target/tools");
    if !tools.join("bin/cargo-mutants").exists() {
        let (tools, version) = (tools.display().to_string(), format!("cargo-mutants@{CARGO_MUTANTS}"));
        sh("cargo", &["install", "--quiet", "--locked", "--root", &tools, &version], &[])?;
    }
    let mut missed = Vec::new();
    for scope in SCOPES.iter().filter(|scope| args.scopes.is_empty() || args.scopes.iter().any(|a| a == scope.name)) {
        missed.extend(survivors(scope, args, &tools)?);
    }
    ensure!(missed.is_empty(), "no test noticed these changes:\n{}", missed.join("\n"));
    Ok(())
}

/// The changes of a scope that no test noticed.
fn survivors(scope: &Scope, args: &MutantsArgs, tools: &Path) -> Result<Vec<String>> {
    let out = root().join("target/mutants").join(scope.name);
    let temporary = out.join("tmp");
    fs::create_dir_all(&temporary).with_context(|| format!("cannot create `{}`", temporary.display()))?;
    let mut command = Command::new(tools.join("bin/cargo-mutants"));
    command.arg("mutants").args(scope.args).arg("--output").arg(&out).env("TMPDIR", &temporary);
    command.args(["--jobs", "1", "--no-shuffle", "--timeout", &args.timeout.to_string()]);
    if let Some(re) = &args.re {
        command.args(["--re", re]);
    }
    let status = command.current_dir(root()).status().context("cannot start `cargo-mutants`")?;
    // 2: some survived; 3: some ran until the timeout.
    ensure!(matches!(status.code(), Some(0 | 2 | 3)), "`cargo-mutants` failed: {status}");
    let list = out.join("mutants.out/missed.txt");
    let text = fs::read_to_string(&list).with_context(|| format!("cannot read `{}`", list.display()))?;
    Ok(text.lines().map(str::to_owned).collect())
}
