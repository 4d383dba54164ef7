//! Sets `GENIE_VERSION` (version, commit, target) and `GENIE_COMMIT` for the program: the variable of that name, else the commit that git reports. Without git or
//! outside of a repository it stays unset; that is no failure.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-env-changed=GENIE_COMMIT");
    let commit = std::env::var("GENIE_COMMIT").ok().filter(|commit| !commit.is_empty()).or_else(ask_git);
    let version = std::env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let target = std::env::var("TARGET").unwrap_or_default();
    let of = commit.as_ref().map_or_else(|| target.clone(), |commit| format!("{commit}, {target}"));
    println!("cargo::rustc-env=GENIE_VERSION={version} ({of})");
    if let Some(commit) = commit {
        println!("cargo::rustc-env=GENIE_COMMIT={commit}");
    }
}

/// The commit, with `-changed` appended if a tracked file differs.
fn ask_git() -> Option<String> {
    // A commit appends a line to this log; a change of a source can change the suffix.
    let log = git(&["rev-parse", "--git-path", "logs/HEAD"])?;
    if Path::new(&log).exists() {
        println!("cargo::rerun-if-changed={log}");
    }
    for folder in std::fs::read_dir("..").ok()?.flatten() {
        let sources = folder.path().join("src");
        if sources.is_dir() {
            println!("cargo::rerun-if-changed={}", sources.display());
        }
    }
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    let changed = !git(&["status", "--porcelain", "--untracked-files=no"])?.is_empty();
    Some(if changed { commit + "-changed" } else { commit })
}

fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
