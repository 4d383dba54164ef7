//! What holds for each Rust file: its head, its length, and that it does not let `unsafe` in.

use std::path::Path;

use super::crates::{CRATES, Unsafe};

/// Longest file that needs no reason.
const MAX_LINES: usize = 600;

/// Checks one file; `path` is relative to the root.
pub fn check(path: &Path, text: &str, faults: &mut Vec<String>) {
    let shown = path.display();
    if !text.starts_with("//!") {
        faults.push(format!("{shown}: does not open with `//!`"));
    }
    let lets_unsafe_in = ["allow", "expect"].iter().any(|word| text.contains(&format!("{word}(unsafe_code")));
    let may = |unsafe_code| matches!(unsafe_code, Unsafe::OneFile(file) if path == Path::new(file));
    if lets_unsafe_in && !path.starts_with("xtask") && !CRATES.iter().any(|row| may(row.unsafe_code)) {
        let files: Vec<_> = CRATES.iter().filter_map(|row| one_file(row.unsafe_code)).collect();
        faults.push(format!("{shown}: lets `unsafe` in; only `{}` may", files.join("`, `")));
    }
    let n_lines = text.lines().count();
    let head = text.lines().take_while(|line| line.starts_with("//!")).collect::<String>();
    let has_reason = head.contains("lines") || head.contains("enerated");
    if n_lines > MAX_LINES && !has_reason {
        faults.push(format!(
            "{shown}: {n_lines} lines, over {MAX_LINES}; split it, or give the reason for its many lines in its `//!`"
        ));
    }
}

fn one_file(unsafe_code: Unsafe) -> Option<&'static str> {
    match unsafe_code {
        Unsafe::OneFile(file) => Some(file),
        Unsafe::Forbidden | Unsafe::Allowed => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_a_head_is_named() {
        let mut faults = Vec::new();
        check(Path::new("a/b.rs"), "fn main() {}\n", &mut faults);
        assert_eq!(faults, ["a/b.rs: does not open with `//!`"]);
    }

    #[test]
    fn a_long_file_needs_a_reason() {
        let long = |head: &str| format!("//! {head}\n{}", "\n".repeat(700));
        let mut faults = Vec::new();
        check(Path::new("a.rs"), &long("A table of 700 lines, one row per op."), &mut faults);
        assert!(faults.is_empty());
        check(Path::new("a.rs"), &long("Things."), &mut faults);
        assert_eq!(faults.len(), 1);
    }

    #[test]
    fn unsafe_has_one_file_beyond_its_crates() {
        let text = "//! Head.\n#![expect(unsafe_code, reason = \"calls C\")]\n";
        let mut faults = Vec::new();
        check(Path::new("conformance/src/genie/ffi.rs"), text, &mut faults);
        assert!(faults.is_empty());
        check(Path::new("engine/src/engine.rs"), text, &mut faults);
        assert_eq!(faults, ["engine/src/engine.rs: lets `unsafe` in; only `conformance/src/genie/ffi.rs` may"]);
    }
}
