//! `cargo xtask tidy`: the rules of this repository that rustfmt and clippy do not know. One file per rule:
//!
//! * `crates`: the table of crates that the others read;
//! * `layers`: a crate depends on those below it only, has its attribute on `unsafe`, its README, its example;
//! * `files`: every Rust file opens with `//!`, none is over 600 lines without a reason, `unsafe` stays where it may be;
//! * `words`, `phrases`: words that are refused, with what to write instead;
//! * `paths`: every path that a document or a comment names exists;
//! * `circles`, `imports`: files of different folders do not import each other in a circle;
//! * `writes`: files are written by `file-io` only;
//! * `test_files`: a crate that lists its tests by hand forgets none;
//! * `picture`: ARCHITECTURE.md's picture equals the table of crates.

mod circles;
mod crates;
mod files;
mod imports;
mod layers;
mod paths;
mod phrases;
mod picture;
mod test_files;
mod words;
mod writes;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::workspace::{all_files, root};

/// Recorded texts and what other programs wrote: neither words nor paths of ours.
const RECORDED: [&str; 5] = ["testdata", "data", "snapshots", "models", "proptest-regressions"];

/// What to do beyond checking.
#[derive(Args, Default)]
pub struct TidyArgs {
    /// Rewrite what is generated: ARCHITECTURE.md's picture.
    #[arg(long)]
    fix: bool,
}

/// Checks everything and lists all that is wrong.
pub fn run(args: &TidyArgs) -> Result<()> {
    let root = root();
    let mut faults = Vec::new();
    check_picture(&root, args.fix, &mut faults)?;
    layers::check(&root, &mut faults)?;
    let sources = Sources::read(&root)?;
    sources.check_each(&mut faults);
    sources.check_circles(&mut faults);
    test_files::check(&sources.texts, &mut faults);
    if faults.is_empty() {
        eprintln!("tidy: clean");
        return Ok(());
    }
    for fault in &faults {
        eprintln!("tidy: {fault}");
    }
    bail!("{} rules broken", faults.len())
}

fn check_picture(root: &Path, fix: bool, faults: &mut Vec<String>) -> Result<()> {
    let path = root.join("ARCHITECTURE.md");
    let old = std::fs::read_to_string(&path).context("cannot read `ARCHITECTURE.md`")?;
    let new = picture::rewrite(&old).context("`ARCHITECTURE.md` has no block for the picture of layers")?;
    if new != old && fix {
        std::fs::write(&path, new).context("cannot write `ARCHITECTURE.md`")?;
    } else if new != old {
        faults.push("ARCHITECTURE.md: the picture is not that of the table; run `cargo xtask tidy --fix`".to_owned());
    }
    Ok(())
}

/// Texts of the repository.
struct Sources {
    tree: paths::Tree,
    /// Paths relative to the root.
    texts: Vec<(PathBuf, String)>,
}

impl Sources {
    fn read(root: &Path) -> Result<Self> {
        let mut all = all_files(root)?;
        for path in &mut all {
            *path = path.strip_prefix(root).unwrap_or(path).to_owned();
        }
        // Hidden folders are not walked, but documents name these.
        all.extend([".ci/run", ".cargo/config.toml", ".github/workflows/ci.yml"].map(PathBuf::from));
        let mut texts = Vec::new();
        for path in all.iter().filter(|path| path.extension().is_some_and(|e| e == "rs" || e == "md" || e == "toml")) {
            let text = std::fs::read_to_string(root.join(path));
            texts.push((path.clone(), text.with_context(|| format!("cannot read `{}`", path.display()))?));
        }
        Ok(Self { tree: paths::Tree::new(&all), texts })
    }

    fn check_each(&self, faults: &mut Vec<String>) {
        for (path, text) in &self.texts {
            if path.extension().is_some_and(|e| e == "rs") {
                files::check(path, text, faults);
                writes::check(path, text, faults);
            }
            if !path.iter().any(|part| RECORDED.iter().any(|name| part == *name)) {
                phrases::check(path, text, faults);
                self.tree.check(path, text, faults);
            }
        }
    }

    fn check_circles(&self, faults: &mut Vec<String>) {
        for row in crates::CRATES {
            let src = Path::new(row.name).join("src");
            let is_code = |path: &Path| path.extension().is_some_and(|e| e == "rs");
            let files = self.texts.iter().filter(|(path, _)| is_code(path));
            let files: Vec<_> =
                files.filter_map(|(path, text)| Some((path.strip_prefix(&src).ok()?, text.as_str()))).collect();
            circles::check(row.name, &files, faults);
        }
    }
}

#[cfg(test)]
mod tests {
    /// The rules hold for the repository itself, so that `cargo test --workspace` finds what breaks them.
    #[test]
    fn this_repository_keeps_its_rules() {
        super::run(&super::TidyArgs::default()).unwrap();
    }
}
