//! `cargo xtask tidy`: the rules of the house that rustfmt and clippy do not know.
//!
//! * every Rust file opens with `//!` (build output and generated tables too);
//! * no file passes 600 lines unless its head says why with the word `lines`;
//! * a crate depends only on the crates that the design allows (ARCHITECTURE.md, "Layers");
//! * `#![forbid(unsafe_code)]` stands in every crate that may not be unsafe; one file of conformance is let off a `deny`;
//! * every library has a README of at most 60 lines and a runnable example in `lib.rs`.

use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::workspace::{LIBRARIES, MAY_BE_UNSAFE, UNSAFE_ROOM, files, root};

/// Longest file that needs no excuse.
const MAX_LINES: usize = 600;
/// A README is a screen.
const MAX_README_LINES: usize = 60;

/// Who may depend on whom; dev-dependencies are free.
const LAYERS: [(&str, &[&str]); 14] = [
    ("genie-types", &[]),
    ("genie-bundle", &["genie-types"]),
    ("qnn-sys", &[]),
    ("qnn-api", &["qnn-sys", "genie-types"]),
    ("qnn-host", &["qnn-sys"]),
    ("nsp-graph", &["genie-types"]),
    ("kvmanager", &["genie-types"]),
    ("engine", &["genie-types", "qnn-api", "nsp-graph", "kvmanager"]),
    ("compiler", &["genie-types", "genie-bundle", "qnn-api"]),
    ("dialog", &["genie-types", "genie-bundle", "engine"]),
    ("doctor", &["genie-types", "genie-bundle", "qnn-api", "nsp-graph"]),
    (
        "genie-cli",
        &[
            "genie-types",
            "genie-bundle",
            "qnn-api",
            "qnn-host",
            "nsp-graph",
            "kvmanager",
            "engine",
            "compiler",
            "dialog",
            "doctor",
        ],
    ),
    // For the names of a bundle's files only.
    ("xtask", &["genie-bundle"]),
    ("conformance", &LIBRARIES),
];

/// Checks everything and lists all that is wrong.
pub fn run() -> Result<()> {
    let root = root();
    let mut faults = Vec::new();
    for file in files(&root, "rs")? {
        let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read `{}`", file.display()))?;
        check_file(file.strip_prefix(&root).unwrap_or(&file), &text, &mut faults);
    }
    for (name, allowed) in LAYERS {
        let manifest = std::fs::read_to_string(root.join(name).join("Cargo.toml"))
            .with_context(|| format!("crate `{name}` of the design is missing"))?;
        check_layers(name, allowed, &manifest, &mut faults);
        let entry = ["lib.rs", "main.rs"].map(|f| root.join(name).join("src").join(f)).into_iter().find(|p| p.exists());
        let text = std::fs::read_to_string(entry.with_context(|| format!("crate `{name}` has no lib.rs or main.rs"))?)?;
        check_entry(name, &text, &mut faults);
    }
    for name in LIBRARIES {
        match std::fs::read_to_string(root.join(name).join("README.md")) {
            Ok(text) if text.lines().count() > MAX_README_LINES => {
                faults
                    .push(format!("{name}/README.md: {} lines, a screen is {MAX_README_LINES}", text.lines().count()));
            }
            Ok(_) => {}
            Err(_) => faults.push(format!("{name}/README.md: missing")),
        }
    }
    if faults.is_empty() {
        eprintln!("tidy: clean");
        return Ok(());
    }
    for fault in &faults {
        eprintln!("tidy: {fault}");
    }
    bail!("{} house rules broken", faults.len())
}

fn check_file(path: &Path, text: &str, faults: &mut Vec<String>) {
    let shown = path.display();
    if !text.starts_with("//!") {
        faults.push(format!("{shown}: does not open with `//!`"));
    }
    let let_off = ["allow", "expect"].iter().any(|word| text.contains(&format!("{word}(unsafe_code")));
    if let_off && path != Path::new(UNSAFE_ROOM.1) && !path.starts_with("xtask") {
        faults.push(format!("{shown}: lets `unsafe` in; only `{}` may", UNSAFE_ROOM.1));
    }
    let n_lines = text.lines().count();
    let head = text.lines().take_while(|line| line.starts_with("//!")).collect::<String>();
    let excused = head.contains("lines") || head.contains("enerated");
    if n_lines > MAX_LINES && !excused {
        faults.push(format!(
            "{shown}: {n_lines} lines, over {MAX_LINES}; cut it, or say in its `//!` why it has so many lines"
        ));
    }
}

fn check_layers(name: &str, allowed: &[&str], manifest: &str, faults: &mut Vec<String>) {
    let mut section = "";
    for line in manifest.lines().map(str::trim) {
        if line.starts_with('[') {
            section = line;
            continue;
        }
        if section != "[dependencies]" {
            continue;
        }
        let dependency = line.split(['.', '=', ' ']).next().unwrap_or_default();
        let ours = LAYERS.iter().any(|(crate_name, _)| *crate_name == dependency);
        if ours && !allowed.contains(&dependency) {
            faults.push(format!("{name}/Cargo.toml: may not depend on `{dependency}` (see ARCHITECTURE.md, Layers)"));
        }
    }
}

fn check_entry(name: &str, text: &str, faults: &mut Vec<String>) {
    let law = if name == UNSAFE_ROOM.0 { "#![deny(unsafe_code)]" } else { "#![forbid(unsafe_code)]" };
    if !MAY_BE_UNSAFE.contains(&name) && !text.contains(law) {
        faults.push(format!("{name}: lacks `{law}`"));
    }
    if LIBRARIES.contains(&name) && name != "conformance" && !text.contains("//! ```") {
        faults.push(format!("{name}/src/lib.rs: has no example"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_a_head_is_named() {
        let mut faults = Vec::new();
        check_file(Path::new("a/b.rs"), "fn main() {}\n", &mut faults);
        assert_eq!(faults, ["a/b.rs: does not open with `//!`"]);
    }

    #[test]
    fn a_long_file_needs_a_reason() {
        let long = |head: &str| format!("//! {head}\n{}", "\n".repeat(700));
        let mut faults = Vec::new();
        check_file(Path::new("a.rs"), &long("A table of 700 lines, one row an op."), &mut faults);
        assert!(faults.is_empty());
        check_file(Path::new("a.rs"), &long("Things."), &mut faults);
        assert_eq!(faults.len(), 1);
    }

    #[test]
    fn an_arrow_that_the_design_lacks_is_refused() {
        let mut faults = Vec::new();
        check_layers(
            "nsp-graph",
            &["genie-types"],
            "[dependencies]\nqnn-api.workspace = true\n[dev-dependencies]\nengine = 1\n",
            &mut faults,
        );
        assert_eq!(faults, ["nsp-graph/Cargo.toml: may not depend on `qnn-api` (see ARCHITECTURE.md, Layers)"]);
    }

    #[test]
    fn unsafe_has_one_room_beyond_its_crates() {
        let text = "//! Head.\n#![expect(unsafe_code, reason = \"calls C\")]\n";
        let mut faults = Vec::new();
        check_file(Path::new(UNSAFE_ROOM.1), text, &mut faults);
        assert!(faults.is_empty());
        check_file(Path::new("engine/src/engine.rs"), text, &mut faults);
        assert_eq!(faults, ["engine/src/engine.rs: lets `unsafe` in; only `conformance/src/genie/ffi.rs` may"]);
    }

    #[test]
    fn crates_that_may_not_be_unsafe_must_say_so() {
        let mut faults = Vec::new();
        check_entry("engine", "//! ```\n", &mut faults);
        check_entry("qnn-api", "//! ```\n", &mut faults);
        check_entry("conformance", "#![forbid(safe_code)]\n", &mut faults);
        assert_eq!(faults, ["engine: lacks `#![forbid(unsafe_code)]`", "conformance: lacks `#![deny(unsafe_code)]`"]);
    }
}
