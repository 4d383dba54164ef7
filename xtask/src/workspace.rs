//! Where things are in this repository, and how a child process is run.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

/// The repository's root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies one level below the root").to_owned()
}

/// Runs a command in the root and fails with its name when it fails.
pub fn sh(program: &str, args: &[&str], env: &[(&str, &str)]) -> Result<()> {
    eprintln!("$ {program} {}", args.join(" "));
    let status = Command::new(program)
        .args(args)
        .envs(env.iter().copied())
        .current_dir(root())
        .status()
        .with_context(|| format!("cannot start `{program}`"))?;
    ensure!(status.success(), "`{program} {}` failed: {status}", args.join(" "));
    Ok(())
}

/// Builds a program of this checkout and returns its file.
///
/// `--tests` gives dependencies the features that `cargo test --workspace` gives them. With others most of the workspace would be built
/// a second time; and `libqnn_host.so`, whose file has one name whatever the features, would make each build undo the other's.
pub fn program(name: &str) -> Result<PathBuf> {
    sh("cargo", &["build", "--quiet", "--workspace", "--tests", "--bin", name], &[])?;
    Ok(root().join("target/debug").join(name))
}

/// Builds this checkout's `genie` and runs it in the root.
pub fn genie(args: &[&str]) -> Result<()> {
    sh(&program("genie")?.display().to_string(), args, &[])
}

/// All files below `dir` with the extension, in a stable order; build output and hidden folders are left out.
pub fn files(dir: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let mut found = all_files(dir)?;
    found.retain(|path| path.extension().is_some_and(|e| e == extension));
    Ok(found)
}

/// All files below `dir`, in a stable order; build output and hidden folders are left out.
pub fn all_files(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut todo = vec![dir.to_owned()];
    while let Some(dir) = todo.pop() {
        for entry in std::fs::read_dir(&dir).with_context(|| format!("cannot list `{}`", dir.display()))? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() {
                if name != "target" && !name.starts_with('.') {
                    todo.push(path);
                }
            } else {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}
