//! The parent's side: a child for each target, and what became of it.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use anyhow::{Context, Result};
use fuzz_targets::Target;

/// Lines of a failed child's stderr that are shown.
const SHOWN: usize = 12;

/// Runs the targets, `jobs` at a time; returns how many failed.
pub fn run(targets: &[&'static Target], seed: u64, seconds: u64, jobs: usize) -> Result<usize> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/fuzz");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot create `{}`", folder.display()))?;
    println!("seed {seed}, {seconds} s a target, {jobs} at a time");
    let waiting: Mutex<VecDeque<&Target>> = Mutex::new(targets.iter().copied().collect());
    let failures = Mutex::new(0);
    std::thread::scope(|scope| {
        for _ in 0..jobs.min(targets.len()) {
            scope.spawn(|| {
                while let Some(target) = waiting.lock().ok().and_then(|mut list| list.pop_front()) {
                    let report = one(target, seed, seconds, &folder);
                    let failed = !matches!(report, Ok(Outcome::Passed(_)));
                    match report {
                        Ok(Outcome::Passed(tried)) => println!("{:<16} {tried:>9} inputs, no failure", target.name),
                        Ok(Outcome::Failed { input, how }) => {
                            println!("{:<16} FAILED: {how}\n  input kept in `{}`", target.name, input.display());
                        }
                        Err(error) => println!("{:<16} FAILED: {error:#}", target.name),
                    }
                    if let (true, Ok(mut failures)) = (failed, failures.lock()) {
                        *failures += 1;
                    }
                }
            });
        }
    });
    Ok(failures.into_inner().unwrap_or(targets.len()))
}

enum Outcome {
    /// How many inputs were tried.
    Passed(u64),
    Failed {
        input: PathBuf,
        how: String,
    },
}

fn one(target: &Target, seed: u64, seconds: u64, folder: &Path) -> Result<Outcome> {
    let current = folder.join(format!("{}.current", target.name));
    let output = Command::new(std::env::current_exe()?)
        .args([target.name, "--seconds", &seconds.to_string(), "--seed", &seed.to_string(), "--child"])
        .arg(&current)
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::null())
        .output()
        .context("cannot start a child")?;
    let tried = String::from_utf8_lossy(&output.stdout).trim().parse();
    if let (true, Ok(tried)) = (output.status.success(), tried) {
        let _ = std::fs::remove_file(&current);
        return Ok(Outcome::Passed(tried));
    }
    let input = folder.join(format!("{}-failed-{seed}", target.name));
    std::fs::rename(&current, &input).with_context(|| format!("cannot keep `{}`", current.display()))?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = stderr.lines().rev().take(SHOWN).collect();
    let shown: Vec<&str> = lines.into_iter().rev().collect();
    Ok(Outcome::Failed { input, how: format!("{}\n  {}", output.status, shown.join("\n  ")) })
}
