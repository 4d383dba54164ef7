//! What holds for a crate as a whole: its dependencies, its attribute on `unsafe`, its README, its example, its metadata.

use std::path::Path;

use anyhow::{Context, Result};

use super::crates::{CRATES, Crate, Unsafe};

/// Libraries of tests, which no registry would hold.
const TEST_ONLY: [&str; 2] = ["conformance", "testkit"];
/// What a registry shows of a crate.
const METADATA: [&str; 3] = ["description = ", "keywords = ", "categories = "];
/// A README is a screen.
const MAX_README_LINES: usize = 60;

/// Checks every crate of the table, and that the table has every crate of the workspace.
pub fn check(root: &Path, faults: &mut Vec<String>) -> Result<()> {
    let workspace = read(&root.join("Cargo.toml"))?;
    for name in members(&workspace) {
        if !CRATES.iter().any(|row| row.name == name) {
            faults.push(format!("Cargo.toml: crate `{name}` has no row in xtask/src/tidy/crates.rs"));
        }
    }
    for row in CRATES {
        let folder = root.join(row.name);
        let manifest = read(&folder.join("Cargo.toml"))?;
        check_dependencies(row, &manifest, faults);
        check_metadata(row, &manifest, faults);
        let entry = ["lib.rs", "main.rs"].map(|name| folder.join("src").join(name)).into_iter().find(|p| p.exists());
        check_entry(row, &read(&entry.with_context(|| format!("`{}` has no lib.rs or main.rs", row.name))?)?, faults);
        if row.library {
            check_readme(row.name, std::fs::read_to_string(folder.join("README.md")).ok().as_deref(), faults);
        }
    }
    Ok(())
}

/// Folders in the workspace's `members`.
fn members(manifest: &str) -> Vec<&str> {
    let list =
        manifest.split_once("members = [").and_then(|(_, rest)| rest.split_once(']')).map_or("", |(list, _)| list);
    list.split('"').skip(1).step_by(2).collect()
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read `{}`", path.display()))
}

fn check_dependencies(row: &Crate, manifest: &str, faults: &mut Vec<String>) {
    let name = row.name;
    let mut section = "";
    for line in manifest.lines().map(str::trim) {
        if line.starts_with('[') {
            section = line;
        } else if section == "[dependencies]" {
            let dependency = line.split(['.', '=', ' ']).next().unwrap_or_default();
            let ours = CRATES.iter().any(|row| row.name == dependency);
            if ours && !row.may_use.contains(&dependency) {
                faults.push(format!("{name}/Cargo.toml: may not depend on `{dependency}` (xtask/src/tidy/crates.rs)"));
            }
        }
    }
}

fn check_metadata(row: &Crate, manifest: &str, faults: &mut Vec<String>) {
    let wanted = METADATA.iter().filter(|_| row.library && !TEST_ONLY.contains(&row.name));
    for key in wanted.filter(|key| !manifest.lines().any(|line| line.starts_with(**key))) {
        faults.push(format!("{}/Cargo.toml: has no `{}`", row.name, key.trim_end_matches(" = ")));
    }
}

fn check_entry(row: &Crate, text: &str, faults: &mut Vec<String>) {
    let attribute = match row.unsafe_code {
        Unsafe::Forbidden => "#![forbid(unsafe_code)]",
        Unsafe::OneFile(_) => "#![deny(unsafe_code)]",
        Unsafe::Allowed => "",
    };
    if !text.contains(attribute) {
        faults.push(format!("{}: lacks `{attribute}`", row.name));
    }
    if row.library && !TEST_ONLY.contains(&row.name) && !text.contains("//! ```") {
        faults.push(format!("{}/src/lib.rs: has no example", row.name));
    }
}

fn check_readme(name: &str, text: Option<&str>, faults: &mut Vec<String>) {
    match text.map(|text| text.lines().count()) {
        None => faults.push(format!("{name}/README.md: missing")),
        Some(lines) if lines > MAX_README_LINES => {
            faults.push(format!("{name}/README.md: {lines} lines, a screen is {MAX_README_LINES}"));
        }
        Some(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::super::crates::find;
    use super::*;

    #[test]
    fn an_arrow_that_the_design_lacks_is_refused() {
        let mut faults = Vec::new();
        check_dependencies(
            find("nsp-graph").unwrap(),
            "[dependencies]\nqnn-api.workspace = true\n[dev-dependencies]\nengine = 1\n",
            &mut faults,
        );
        assert_eq!(faults, ["nsp-graph/Cargo.toml: may not depend on `qnn-api` (xtask/src/tidy/crates.rs)"]);
    }

    #[test]
    fn a_library_has_what_a_registry_shows() {
        let mut faults = Vec::new();
        check_metadata(find("engine").unwrap(), "description = \"x\"\nkeywords = []\n", &mut faults);
        check_metadata(find("xtask").unwrap(), "", &mut faults);
        assert_eq!(faults, ["engine/Cargo.toml: has no `categories`"]);
    }

    #[test]
    fn crates_that_may_not_be_unsafe_must_say_so() {
        let mut faults = Vec::new();
        check_entry(find("engine").unwrap(), "//! ```\n", &mut faults);
        check_entry(find("qnn-api").unwrap(), "//! ```\n", &mut faults);
        check_entry(find("conformance").unwrap(), "#![forbid(safe_code)]\n", &mut faults);
        assert_eq!(faults, ["engine: lacks `#![forbid(unsafe_code)]`", "conformance: lacks `#![deny(unsafe_code)]`"]);
    }

    #[test]
    fn a_library_has_a_readme_of_a_screen() {
        let mut faults = Vec::new();
        check_readme("engine", Some("text\n"), &mut faults);
        assert!(faults.is_empty());
        check_readme("engine", None, &mut faults);
        check_readme("dialog", Some(&"\n".repeat(61)), &mut faults);
        assert_eq!(faults, ["engine/README.md: missing", "dialog/README.md: 61 lines, a screen is 60"]);
    }

    #[test]
    fn members_are_read_over_several_lines() {
        assert_eq!(members("[workspace]\nmembers = [\n  \"a\", \"b\",\n  \"c\",\n]\n"), ["a", "b", "c"]);
    }
}
