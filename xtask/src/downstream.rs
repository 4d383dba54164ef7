//! `cargo xtask downstream`: the numbered examples as a program of another workspace, which has none of this one's profiles but the
//! lines that `open-genie/README.md` tells its users to write. Builds in debug mode into `target/downstream` and runs each.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::json;

use crate::workspace::{files, root, sh};

/// Crates whose examples a user of the libraries may copy.
const CRATES: [&str; 5] = ["kvmanager", "qnn-api", "engine", "compiler", "open-genie"];

/// Crates that the examples use besides.
const HELPERS: [&str; 2] = ["genie-types", "qnn-host"];

/// Makes the program in a temporary folder, builds it and runs each example.
pub fn run() -> Result<()> {
    let root = root();
    let place = tempfile::tempdir().context("cannot make a temporary folder")?;
    let names = write_program(&root, place.path())?;
    let manifest = place.path().join("Cargo.toml").display().to_string();
    let (target, cache) = (root.join("target/downstream"), place.path().join("cache"));
    let env = [("CARGO_TARGET_DIR", path(&target)?), ("GENIE_CACHE", path(&cache)?)];
    sh("cargo", &["build", "--examples", "--manifest-path", &manifest], &env)?;
    for name in &names {
        sh(path(&target.join("debug/examples").join(name))?, &[], &env)?;
    }
    eprintln!("downstream: {} examples ran", names.len());
    Ok(())
}

/// Writes manifest, lock file and examples; returns the examples' names.
fn write_program(root: &Path, place: &Path) -> Result<Vec<String>> {
    fs::copy(root.join("Cargo.lock"), place.join("Cargo.lock"))?;
    fs::create_dir_all(place.join("src"))?;
    fs::write(place.join("src/lib.rs"), "")?;
    let (mut text, mut names) = (manifest(root)?, Vec::new());
    for (name, source) in examples(root)? {
        // A folder for each crate: an example may include its neighbour by file name.
        let copy = Path::new("examples").join(source.strip_prefix(root)?);
        fs::create_dir_all(place.join(&copy).parent().context("an example lies in a folder")?)?;
        fs::copy(&source, place.join(&copy))?;
        writeln!(text, "\n[[example]]\nname = {}\npath = {}", json!(name), json!(copy))?;
        names.push(name);
    }
    fs::write(place.join("Cargo.toml"), text)?;
    ensure!(!names.is_empty(), "no crate has a numbered example");
    Ok(names)
}

/// The numbered examples, by the name that each has in the program.
fn examples(root: &Path) -> Result<Vec<(String, PathBuf)>> {
    let mut found = Vec::new();
    for name in CRATES {
        let folder = root.join(name).join("examples");
        for source in if folder.is_dir() { files(&folder, "rs")? } else { Vec::new() } {
            let stem = source.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            if stem.starts_with(|c: char| c.is_ascii_digit()) {
                found.push((format!("{name}_{stem}"), source));
            }
        }
    }
    Ok(found)
}

fn manifest(root: &Path) -> Result<String> {
    let mut text = String::from(
        "[package]\nname = \"downstream\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[workspace]\n\n[dependencies]\ntempfile = \"3\"\n",
    );
    for name in CRATES.iter().chain(&HELPERS) {
        let features: &[&str] = if *name == "open-genie" { &["demo"] } else { &[] };
        // JSON's strings and lists are TOML's, too.
        let (folder, features) = (json!(root.join(name)), json!(features));
        writeln!(text, "{name} = {{ path = {folder}, features = {features} }}")?;
    }
    let readme = fs::read_to_string(root.join("open-genie/README.md"))?;
    Ok(text + "\n" + profile(&readme).context("`open-genie/README.md` has no block of profile lines")?)
}

/// The lines of the README's first block of TOML.
fn profile(readme: &str) -> Option<&str> {
    Some(readme.split_once("```toml\n")?.1.split_once("```")?.0)
}

fn path(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("`{}` is not UTF-8", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_has_the_examples_and_the_profile_lines_of_the_readme() {
        let place = tempfile::tempdir().unwrap();
        let names = write_program(&root(), place.path()).unwrap();
        assert!(names.iter().any(|name| name == "open-genie_01_generate"), "{names:?}");
        let text = fs::read_to_string(place.path().join("Cargo.toml")).unwrap();
        assert!(text.contains("\n[profile.dev.package.qnn-host]\nopt-level = 3\n"), "{text}");
    }
}
