//! A crate that links its tests as one program lists them by hand (`autotests = false`): no file of `tests/` may be missing there,
//! as its tests would never run.

use std::path::{Path, PathBuf};

/// The modules of the one program.
const PROGRAM: &str = "tests/main.rs";

/// Checks each crate that lists its tests; paths are relative to the root.
pub fn check(texts: &[(PathBuf, String)], faults: &mut Vec<String>) {
    let find = |path: &Path| texts.iter().find(|(other, _)| other == path).map(|(_, text)| text.as_str());
    let lists_its_tests = |(path, text): &&(PathBuf, String)| {
        path.ends_with("Cargo.toml") && text.lines().any(|line| line == "autotests = false")
    };
    for (manifest, text) in texts.iter().filter(lists_its_tests) {
        let folder = manifest.parent().unwrap_or(Path::new(""));
        let program = find(&folder.join(PROGRAM)).unwrap_or_default();
        let files = texts.iter().filter_map(|(path, _)| path.strip_prefix(folder).ok());
        for file in files.filter(|file| is_file_of_tests(file)) {
            let name = file.file_stem().unwrap_or_default().to_string_lossy();
            let is_module = program.lines().any(|line| line == format!("mod {name};"));
            let is_program = has_program(text, &name);
            if is_module == is_program {
                let shown = folder.join(file);
                let both = if is_module { "both" } else { "neither" };
                faults.push(format!(
                    "{}: {both} a module of {PROGRAM} and a `[[test]]` of Cargo.toml; its tests run once if it is one of them",
                    shown.display()
                ));
            }
        }
    }
}

/// Right in `tests/`, and not the program of the others.
fn is_file_of_tests(file: &Path) -> bool {
    file.parent() == Some(Path::new("tests"))
        && file != Path::new(PROGRAM)
        && file.extension().is_some_and(|extension| extension == "rs")
}

/// Whether a manifest has `[[test]]` with this name.
fn has_program(manifest: &str, name: &str) -> bool {
    let mut sections = manifest.split("[[test]]").skip(1);
    sections.any(|section| section.trim_start().lines().next() == Some(&format!("name = \"{name}\"")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(program: &str) -> Vec<String> {
        let manifest = "[package]\nname = \"a\"\nautotests = false\n\n[[test]]\nname = \"tests\"\npath = \"tests/main.rs\"\n\n\
                        [[test]]\nname = \"memory\"\n";
        let other = "[package]\nname = \"b\"\n";
        let texts = [
            ("a/Cargo.toml", manifest),
            ("a/tests/main.rs", program),
            ("a/tests/memory.rs", ""),
            ("a/tests/serve.rs", ""),
            ("a/tests/common/mod.rs", ""),
            ("b/Cargo.toml", other),
            ("b/tests/free.rs", ""),
        ];
        let mut faults = Vec::new();
        check(&texts.map(|(path, text)| (path.into(), text.to_owned())), &mut faults);
        faults
    }

    #[test]
    fn each_file_is_a_module_or_a_program() {
        assert_eq!(faults("mod common;\n\nmod serve;\n"), Vec::<String>::new());
    }

    #[test]
    fn a_file_that_is_forgotten_or_doubled_is_named() {
        let found = faults("mod memory;\n");
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("a/tests/memory.rs: both"), "{found:?}");
        assert!(found[1].starts_with("a/tests/serve.rs: neither"), "{found:?}");
    }
}
