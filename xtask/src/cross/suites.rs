//! The test suites for another machine: programs are built once, then run under the emulator, one per core at a time.
//!
//! An emulated program is some ten times slower than the machine, so the properties are given fewer cases (`--cases`); this machine's own
//! `cargo test` runs all of them.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;
use serde_json::Value;

use super::toolchain::{EMULATOR, Toolchain};
use super::{borrowed, decode};
use crate::workspace::root;

/// Crates without kernels; the emulated CPU does not matter to them.
const LIBRARIES: [&str; 4] = ["qnn-sys", "nsp-graph", "kvmanager", "session-store"];
/// The crate with kernels.
const HOST: &str = "qnn-host";
/// Cases of a property of the SME kernels: the emulator computes their products in software.
const SME_CASES: &str = "6";

/// A part of `cargo xtask test`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Step {
    /// The suites of qnn-sys, nsp-graph, kvmanager and session-store.
    Libraries,
    /// The suite of qnn-host on a CPU with everything.
    HostMax,
    /// The suite of qnn-host on a CPU without the dot product and matrix extensions.
    HostA53,
    /// The tests of qnn-host's SME kernels, with few cases, on a CPU that has SME: elsewhere they test nothing.
    HostSme,
    /// Qualcomm's own system library reads our binaries; its HTP library reports why it cannot start.
    Decode,
}

impl Step {
    const ALL: [Self; 5] = [Self::HostMax, Self::HostA53, Self::HostSme, Self::Libraries, Self::Decode];

    fn packages(self) -> &'static [&'static str] {
        match self {
            Self::Libraries => &LIBRARIES,
            Self::HostMax | Self::HostA53 | Self::HostSme => &[HOST],
            Self::Decode => &[],
        }
    }

    /// Parts of the names of the crate's own tests that run, and no program of `tests/`; all where there are none.
    fn names(self) -> &'static [&'static str] {
        match self {
            Self::HostSme => &["kernels::linear::wide", "kernels::simd::sme", "kernels::roofline"],
            _ => &[],
        }
    }

    /// What its tests find in the environment besides.
    fn env(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::HostSme => &[("GENIE_SME", "1"), ("PROPTEST_CASES", SME_CASES)],
            _ => &[],
        }
    }

    /// The emulated CPU, and the vector unit that the backend must find on it.
    fn cpu(self) -> (&'static str, Option<&'static str>) {
        match self {
            Self::HostMax => ("max", Some("neoni8mm")),
            // Its streaming vectors have 256 bits at first, as on Linux: the kernels ask for 512.
            Self::HostSme => ("max", Some("sme")),
            Self::HostA53 => ("cortex-a53", Some("neon")),
            Self::Libraries | Self::Decode => ("max", None),
        }
    }
}

/// Runs the steps (none: all); fails with the names of the programs that failed.
pub fn run(toolchain: &Toolchain, target: &str, cases: Option<u32>, only: &[Step]) -> Result<()> {
    let steps: Vec<Step> = Step::ALL.into_iter().filter(|step| only.is_empty() || only.contains(step)).collect();
    let mut packages: Vec<&str> = steps.iter().flat_map(|step| step.packages()).copied().collect();
    packages.dedup();
    if !packages.is_empty() {
        let programs = build(toolchain, target, &packages)?;
        let mut jobs = Vec::new();
        for step in &steps {
            jobs.extend(step_jobs(toolchain, *step, &programs, cases)?);
        }
        run_all(jobs)?;
    }
    if steps.contains(&Step::Decode) {
        decode::run(toolchain, target)?;
    }
    Ok(())
}

/// A test program.
struct Program {
    package: String,
    /// Folder of its crate, which it is started in.
    folder: PathBuf,
    /// The crate's own tests, or a file of `tests/`.
    name: String,
    is_lib: bool,
    file: PathBuf,
}

/// Builds the test programs of some packages.
fn build(toolchain: &Toolchain, target: &str, packages: &[&str]) -> Result<Vec<Program>> {
    let names = packages.iter().flat_map(|name| ["--package", name]);
    let args: Vec<&str> = ["test", "--no-run", "--target", target, "--message-format", "json-render-diagnostics"]
        .into_iter()
        .chain(names)
        .collect();
    eprintln!("$ cargo {}", args.join(" "));
    let mut command = Command::new("cargo");
    command.args(&args).envs(borrowed(toolchain.env())).current_dir(root()).stderr(std::process::Stdio::inherit());
    let out = command.output().context("cannot start `cargo`")?;
    ensure!(out.status.success(), "`cargo {}` failed: {}", args.join(" "), out.status);
    let messages = String::from_utf8(out.stdout).context("cargo's messages are no UTF-8")?;
    Ok(messages.lines().filter_map(|line| program(&serde_json::from_str(line).ok()?)).collect())
}

/// The program that one of cargo's messages is about.
fn program(message: &Value) -> Option<Program> {
    let file = message["executable"].as_str().filter(|_| message["profile"]["test"] == true)?;
    let folder = PathBuf::from(message["manifest_path"].as_str()?).parent()?.to_owned();
    Some(Program {
        package: folder.file_name()?.to_str()?.to_owned(),
        folder,
        name: message["target"]["name"].as_str()?.to_owned(),
        is_lib: message["target"]["src_path"].as_str()?.ends_with("src/lib.rs"),
        file: file.into(),
    })
}

/// One process.
struct Job {
    name: String,
    command: Command,
}

fn step_jobs(toolchain: &Toolchain, step: Step, programs: &[Program], cases: Option<u32>) -> Result<Vec<Job>> {
    let (cpu, unit) = step.cpu();
    let mut env = toolchain.emulate(cpu)?;
    if let Some(cases) = cases {
        env.push(("PROPTEST_CASES".to_owned(), cases.to_string()));
        // The model test of the cache shares its sequences out among 80 combinations.
        env.push(("KV_MODEL_CASES".to_owned(), (cases * 10).to_string()));
    }
    // Last: a step's own number of cases counts.
    env.extend(step.env().iter().map(|&(name, value)| (name.to_owned(), value.to_owned())));
    let emulated = !toolchain.env().is_empty();
    let start = |program: &Program, args: &[&str]| {
        let mut command = if emulated { Command::new(EMULATOR) } else { Command::new(&program.file) };
        if emulated {
            command.arg(&program.file);
        }
        command.args(args).envs(borrowed(&env)).env("CARGO_MANIFEST_DIR", &program.folder).current_dir(&program.folder);
        command
    };
    let mut jobs = Vec::new();
    let names = step.names();
    let is_meant = |program: &&Program| {
        step.packages().contains(&program.package.as_str()) && (names.is_empty() || program.is_lib)
    };
    for program in programs.iter().filter(is_meant) {
        let part = if names.is_empty() { String::new() } else { format!(", {}", names.join(" ")) };
        let name = format!("{}::{} on {cpu}{part}", program.package, program.name);
        if let Some(unit) = unit.filter(|_| program.is_lib) {
            // That the emulated CPU has the vector unit which it stands for.
            let mut command = start(program, &["--ignored", "the_best_unit_is_the_one_that_this_cpu_is_known_to_have"]);
            command.env("QNN_HOST_UNIT", unit);
            jobs.push(Job { name: format!("{name}: its unit is {unit}"), command });
        }
        jobs.push(Job { name, command: start(program, names) });
    }
    Ok(jobs)
}

/// Runs all, one per core at a time, and prints how long each took.
fn run_all(jobs: Vec<Job>) -> Result<()> {
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let queue = Mutex::new(jobs.into_iter());
    let failed = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(mut job) = next(&queue) {
                    let begin = Instant::now();
                    let out = job.command.output();
                    let seconds = begin.elapsed().as_secs_f32();
                    match out {
                        Ok(out) if out.status.success() => {
                            let text = String::from_utf8_lossy(&out.stdout);
                            let results: Vec<_> = text.lines().filter(|line| line.starts_with("test result")).collect();
                            eprintln!("{}: {seconds:.1} s, {}", job.name, results.join("; "));
                        }
                        Ok(out) => {
                            let (out, err) =
                                (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
                            eprintln!("{}: failed after {seconds:.1} s\n{out}{err}", job.name);
                            lock(&failed).push(job.name);
                        }
                        Err(error) => {
                            eprintln!("{}: cannot start: {error}", job.name);
                            lock(&failed).push(job.name);
                        }
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    if failed.is_empty() { Ok(()) } else { bail!("failed: {}", failed.join(", ")) }
}

fn next(queue: &Mutex<std::vec::IntoIter<Job>>) -> Option<Job> {
    lock(queue).next()
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_program_is_found_among_the_messages_of_cargo() {
        let message = serde_json::json!({
            "reason": "compiler-artifact", "executable": "/t/model-1", "profile": {"test": true},
            "manifest_path": "/w/kvmanager/Cargo.toml", "target": {"name": "model", "src_path": "/w/kvmanager/tests/model.rs"},
        });
        let found = program(&message).unwrap();
        assert_eq!((found.package.as_str(), found.name.as_str(), found.is_lib), ("kvmanager", "model", false));
        assert!(program(&serde_json::json!({"executable": "/t/x", "profile": {"test": false}})).is_none());
    }

    #[test]
    fn the_programs_that_failed_are_named() {
        let job = |name: &str| Job { name: name.to_owned(), command: Command::new(name) };
        assert!(run_all(vec![job("true")]).is_ok());
        let error = run_all(vec![job("true"), job("false"), job("/no/such/program")]).unwrap_err().to_string();
        assert!(error.contains("false") && error.contains("/no/such/program"), "{error}");
    }
}
