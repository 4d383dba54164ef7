//! `cargo xtask mutants`: changes the file layer and the planner in small ways, one at a time, and runs their tests: a
//! change that no test notices is a gap. Installs `cargo-mutants` below target/tools; its results stay in `target/mutants`.
//!
//! *Left out*: what `.cargo/mutants.toml` names, changes that make no difference a test could see,
//! and what other systems than unix or Linux compile, as nothing runs it here.
//! *Trap*: a changed file layer may remove what it should keep, so `TMPDIR` is a folder of this task's own; it may write
//! without end, and a changed planner plan without end, so files and address spaces are limited.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::workspace::{files, root, sh};

/// Version of cargo-mutants that is installed.
const CARGO_MUTANTS: &str = "27.1.0";

/// Compiling takes longer than testing: little is optimised. No debug information.
const QUICK: [&str; 3] = [
    "--cargo-arg=--config=profile.dev.opt-level=0",
    "--cargo-arg=--config=profile.dev.package.kvmanager.opt-level=1",
    "--cargo-arg=--config=profile.dev.debug=false",
];

/// What a changed file layer may fill and a changed planner may take, in bytes: one file, one process's address space.
const LIMITS: [&str; 2] = ["--fsize=268435456:", "--as=6442450944"];

/// What is changed, and the tests that have to notice.
struct Scope {
    name: &'static str,
    sources: &'static str,
    args: &'static [&'static str],
}

/// Arguments after `--cargo-arg` choose tests: doctests and slow suites of other parts would run for each change.
const SCOPES: [Scope; 2] = [
    Scope { name: "files", sources: "file-io/src", args: &["-p", "file-io", "--cargo-arg=--tests"] },
    Scope {
        name: "planner",
        sources: "kvmanager/src/plan",
        args: &["-p", "kvmanager", "-f", "kvmanager/src/plan/**", "--cargo-arg=--lib", "--cargo-arg=--test=scheduling"],
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
    /// A part of the changes, as in `0/4`: every fourth, from the first on.
    #[arg(long, value_name = "K/N")]
    shard: Option<String>,
    /// Leaves out what the run before it noticed.
    #[arg(long)]
    iterate: bool,
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
    fs::create_dir_all(&out).with_context(|| format!("cannot create `{}`", out.display()))?;
    // In memory, where it can be: the file layer syncs all that it writes.
    let memory = Path::new("/dev/shm");
    let place = if memory.is_dir() { memory } else { &out };
    let temporary = tempfile::Builder::new().prefix("open-genie-mutants-").tempdir_in(place)?;
    open_to_all(temporary.path())?;
    let program = tools.join("bin/cargo-mutants");
    let mut command = if Command::new("prlimit").arg("--version").output().is_ok_and(|o| o.status.success()) {
        let mut limited = Command::new("prlimit");
        limited.args(LIMITS).arg(program);
        limited
    } else {
        Command::new(program)
    };
    command.arg("mutants").args(scope.args).args(QUICK).arg("--output").arg(&out).env("TMPDIR", temporary.path());
    // Dependencies are built once, not for each run.
    command.env("CARGO_TARGET_DIR", root().join("target/mutants/build"));
    // In random order, so that a run which is stopped has tried a sample.
    command.args(["--jobs", "1", "--shuffle", "--timeout", &args.timeout.to_string()]);
    for path in files(&root().join(scope.sources), "rs")? {
        let name = path.strip_prefix(root())?.display().to_string();
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read `{name}`"))?;
        for line in other_systems(&text) {
            command.arg("--exclude-re").arg(format!("^{name}:{line}:"));
        }
    }
    if let Some(re) = &args.re {
        command.args(["--re", re]);
    }
    if let Some(shard) = &args.shard {
        command.args(["--sharding", "round-robin", "--shard", shard]);
    }
    if args.iterate {
        command.arg("--iterate");
    }
    let status = command.current_dir(root()).status().context("cannot start `cargo-mutants`")?;
    // 2: some survived; 3: some ran until the timeout.
    ensure!(matches!(status.code(), Some(0 | 2 | 3)), "`cargo-mutants` failed: {status}");
    let list = out.join("mutants.out/missed.txt");
    let text = fs::read_to_string(&list).with_context(|| format!("cannot read `{}`", list.display()))?;
    Ok(text.lines().map(str::to_owned).collect())
}

/// A test that root runs lets another user look into its folder.
fn open_to_all(folder: &Path) -> Result<()> {
    #[cfg(unix)]
    fs::set_permissions(folder, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    let _ = folder;
    Ok(())
}

/// Numbers of the lines that are compiled for other systems than unix or Linux: what follows a `#[cfg(not(..))]`.
fn other_systems(source: &str) -> Vec<usize> {
    let (mut lines, mut end) = (Vec::new(), None::<String>);
    let mut above = "";
    for (line, number) in source.lines().zip(1..) {
        let indent = &line[..line.len() - line.trim_start().len()];
        if above.trim_start().starts_with("#[cfg(not(") && end.is_none() {
            lines.push(number);
            end = line.ends_with('{').then(|| format!("{indent}}}"));
        } else if let Some(last) = &end {
            lines.push(number);
            if line == last {
                end = None;
            }
        }
        above = line;
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_other_systems_run_is_known_by_its_lines() {
        let source = "#[cfg(unix)]\nfn a() {\n}\n\n#[cfg(not(unix))]\nfn b() {\n    if c {\n    }\n}\nfn d() {\n    \
                      #[cfg(not(target_os = \"linux\"))]\n    {\n        e()\n    }\n    #[cfg(not(unix))]\n    f();\n    g()\n}\n";
        assert_eq!(other_systems(source), [6, 7, 8, 9, 12, 13, 14, 16]);
        let folder = fs::read_to_string(root().join("file-io/src/folder.rs")).unwrap();
        let found = other_systems(&folder).iter().map(|n| folder.lines().nth(n - 1).unwrap()).collect::<Vec<_>>();
        assert!(found.iter().any(|line| line.contains("fn exchange(_a")), "{found:?}");
        assert!(!found.iter().any(|line| line.contains("EXCHANGE")), "{found:?}");
    }
}
