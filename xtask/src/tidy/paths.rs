//! Every path of the repository that a document or a comment names must exist.
//!
//! Looked at: links of Markdown outside of code blocks, and what stands between backticks and looks like a path: no blanks, and
//! either an ending such as `.rs`, or a slash at the end or behind a folder of the root. `{a,b}` and `*` are expanded. A path may begin at
//! the root, at the file's own folder, or anywhere below: `lower/mod.rs` is found in any crate.

use std::path::{Component, Path, PathBuf};

/// Endings of files that would lie in the repository.
const ENDINGS: [&str; 7] = [".rs", ".md", ".py", ".toml", ".sh", ".cpp", ".yml"];

/// All files and folders, relative to the root.
pub struct Tree(Vec<String>);

impl Tree {
    /// From the files, relative to the root.
    pub fn new(files: &[PathBuf]) -> Self {
        let mut all: Vec<String> = Vec::new();
        for file in files {
            all.extend(file.ancestors().filter(|p| !p.as_os_str().is_empty()).map(|p| p.display().to_string()));
        }
        all.sort();
        all.dedup();
        Self(all)
    }

    /// Checks one file; `path` is relative to the root.
    pub fn check(&self, path: &Path, text: &str, faults: &mut Vec<String>) {
        let markdown = path.extension().is_some_and(|e| e == "md");
        let mut in_block = false;
        for (index, line) in text.lines().enumerate() {
            if markdown && line.trim_start().starts_with("```") {
                in_block = !in_block;
                continue;
            }
            if in_block || !(markdown || line.trim_start().starts_with("//")) {
                continue;
            }
            let mut fault = |name: &str| {
                faults.push(format!("{}:{}: `{name}` is not in the repository", path.display(), index + 1));
            };
            for link in links(line) {
                if markdown && !self.has(&beside(path, link)) {
                    fault(link);
                }
            }
            for span in line.split('`').skip(1).step_by(2).filter(|span| self.is_path(span)) {
                for name in expand(span) {
                    if !self.finds(path, &name) {
                        fault(&name);
                    }
                }
            }
        }
    }

    /// Whether a text between backticks means a file or folder of the repository.
    fn is_path(&self, span: &str) -> bool {
        let plain = span.chars().all(|c| c.is_ascii_alphanumeric() || "_-./{},*".contains(c));
        let ending =
            ENDINGS.iter().any(|e| span.ends_with(e) && span.len() > e.len() && !span.ends_with(&format!("/{e}")));
        let first = span.split('/').next().unwrap_or_default();
        let below_root = span.contains('/') && (first == ".." || span.ends_with('/') || self.has(first));
        let elsewhere = span.starts_with(['/', '.', '-', '*']) && first != "..";
        plain && !elsewhere && first != "target" && (ending || below_root)
    }

    fn finds(&self, file: &Path, name: &str) -> bool {
        let name = name.trim_end_matches('/');
        let below = |path: &String| {
            let tail = if path.len() > name.len() || name.contains('*') { Some(path.as_str()) } else { None };
            tail.is_some_and(|path| path.match_indices('/').any(|(at, _)| wild(name, &path[at + 1..])))
        };
        self.0.iter().any(|path| wild(name, path)) || self.has(&beside(file, name)) || self.0.iter().any(below)
    }

    fn has(&self, path: &str) -> bool {
        self.0.binary_search_by(|one| one.as_str().cmp(path)).is_ok()
    }
}

/// Targets of `[text](target)` that are files: no address, no anchor alone.
fn links(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| rest.split(')').next()).filter_map(|target| {
        let file = target.split('#').next().unwrap_or_default();
        (!file.is_empty() && !file.contains(':') && !file.contains(' ')).then(|| file.trim_end_matches('/'))
    })
}

/// A path that begins at a file's folder, as it is called from the root.
fn beside(file: &Path, name: &str) -> String {
    let mut path = PathBuf::new();
    for part in file.parent().unwrap_or(Path::new("")).join(name).components() {
        match part {
            Component::ParentDir if path.pop() => {}
            other => path.push(other),
        }
    }
    path.display().to_string()
}

/// The names that one with `{a,b}` in it stands for.
fn expand(name: &str) -> Vec<String> {
    let Some((head, rest)) = name.split_once('{') else { return vec![name.to_owned()] };
    let Some((list, tail)) = rest.split_once('}') else { return vec![name.to_owned()] };
    list.split(',').flat_map(|one| expand(&format!("{head}{one}{tail}"))).collect()
}

/// Whether `*` of the pattern can stand for parts of a path.
fn wild(pattern: &str, path: &str) -> bool {
    let Some((head, tail)) = pattern.split_once('*') else { return pattern == path };
    let Some(rest) = path.strip_prefix(head) else { return false };
    (0..=rest.len()).filter(|at| rest.is_char_boundary(*at)).any(|at| wild(tail, &rest[at..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(file: &str, text: &str) -> Vec<String> {
        let tree =
            Tree::new(&["docs/ops.md", "engine/src/run.rs", "engine/tests/a_htp.rs", "README.md"].map(PathBuf::from));
        let mut faults = Vec::new();
        tree.check(Path::new(file), text, &mut faults);
        faults
    }

    #[test]
    fn what_exists_is_found_from_the_root_from_beside_and_from_below() {
        assert!(
            faults("docs/ops.md", "`engine/src/run.rs` `run.rs` `src/run.rs` `engine/tests` [x](../README.md#a)\n")
                .is_empty()
        );
        assert!(
            faults("docs/ops.md", "`engine/{src/run,tests/a_htp}.rs` `engine/tests/*_htp.rs` `engine/src/`\n")
                .is_empty()
        );
        assert!(
            faults(
                "docs/ops.md",
                "`and/or` `model.bin` `--flag` `a b.rs` `x::y.rs` `/etc/x.toml` [x](https://a.b/c)\n"
            )
            .is_empty()
        );
    }

    #[test]
    fn what_does_not_exist_is_named_with_its_line() {
        assert_eq!(
            faults("docs/ops.md", "\n`engine/src/gone.rs`\n"),
            ["docs/ops.md:2: `engine/src/gone.rs` is not in the repository"]
        );
        assert_eq!(faults("engine/src/run.rs", "//! See `facts/ops.md`.\n").len(), 1);
        assert_eq!(
            faults("docs/ops.md", "[x](gone.md) `../shared/golden` `engine/gone` `engine/{src,bin}` `gone/`\n").len(),
            5
        );
    }

    #[test]
    fn code_is_not_read() {
        assert!(faults("engine/src/run.rs", "let a = \"`gone.rs`\";\n").is_empty());
        assert!(faults("docs/ops.md", "```sh\n`gone.rs`\n```\n").is_empty());
    }
}
