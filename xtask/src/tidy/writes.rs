//! Files are written by `file-io`: any other way leaves half a file when the disk is full, or replaces a device.
//!
//! Tests, benches, examples, `xtask`, `fuzz-targets` (bad files are its work), and `conformance` (which is tests) write as they like.

use std::path::Path;

/// What is refused, and what to use instead.
const REFUSED: [(&str, &str); 5] = [
    ("fs::write(", "file_io::write_bytes"),
    ("File::create(", "file_io::write, or file_io::NewFile"),
    ("File::create_new(", "file_io::write, or file_io::NewFile"),
    ("fs::copy(", "file_io::write"),
    ("fs::rename(", "file_io::FileSet, or its folders"),
];

/// Checks one Rust file; `path` is relative to the root.
pub fn check(path: &Path, text: &str, faults: &mut Vec<String>) {
    if may_write(path) {
        return;
    }
    // Unit tests stand at a file's end.
    let code = text.split("\n#[cfg(test)]\nmod ").next().unwrap_or_default();
    let imports = code.lines().any(|line| line.starts_with("use std::fs"));
    for (number, line) in code.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//")) {
        for (refused, instead) in REFUSED.iter().filter(|(refused, _)| is_called(line, refused, imports)) {
            let name = refused.trim_end_matches('(');
            faults.push(format!("{}:{}: `{name}`: use `{instead}`", path.display(), number + 1));
        }
    }
}

/// Whether the line calls the standard library's function, not one of the same name in a module of ours.
fn is_called(line: &str, name: &str, imports: bool) -> bool {
    line.match_indices(name).any(|(at, _)| match &line[..at] {
        before if before.ends_with("std::") || before.ends_with("std::fs::") => true,
        before => imports && !before.ends_with(|c: char| c.is_alphanumeric() || c == ':' || c == '_'),
    })
}

fn may_write(path: &Path) -> bool {
    let free = ["file-io", "xtask", "fuzz-targets", "conformance", "tests", "benches", "examples"];
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    // `testing.rs` and `damage_tests.rs` are modules of tests.
    path.iter().any(|part| free.iter().any(|name| part == *name)) || stem.contains("test")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(path: &str, text: &str) -> Vec<String> {
        let mut faults = Vec::new();
        check(Path::new(path), text, &mut faults);
        faults
    }

    #[test]
    fn a_write_past_file_io_is_named() {
        let text = "//! Head.\nfn f() {\n    std::fs::write(path, bytes);\n}\n";
        assert_eq!(faults("engine/src/a.rs", text), ["engine/src/a.rs:3: `fs::write`: use `file_io::write_bytes`"]);
        let imported =
            "//! Head.\nuse std::fs::{self, File};\nfn f() {\n    let f = (File::create(p), NewFile::create(p));\n}\n";
        let named = "engine/src/a.rs:4: `File::create`: use `file_io::write, or file_io::NewFile`";
        assert_eq!(faults("engine/src/a.rs", imported), [named]);
        let own = "//! Head.\nuse crate::fs;\nfn f() {\n    fs::write(path, bytes)\n}\n";
        assert_eq!(faults("compiler/src/a.rs", own), [""; 0]);
        for place in ["file-io/src/a.rs", "engine/tests/a.rs", "engine/src/tests/a.rs", "compiler/src/testing.rs"] {
            assert_eq!(faults(place, text), [""; 0], "{place}");
        }
    }

    #[test]
    fn unit_tests_and_comments_are_left_alone() {
        let text = "//! Not by fs::write(.\n#[cfg(test)]\nmod tests {\n    std::fs::write(path, bytes);\n}\n";
        assert_eq!(faults("engine/src/a.rs", text), [""; 0]);
    }
}
