//! The commands of docs/quickstart.md run, in the page's order; the reference has every command.
#![cfg(unix)]

use std::path::Path;
use std::process::{Command, Stdio};

use crate::program;

/// Lines of the page's shell blocks, but of those behind a comment `not run: REASON`.
fn commands(page: &str) -> Vec<String> {
    let (mut found, mut in_block, mut skipped) = (Vec::new(), false, false);
    for line in page.lines() {
        if line.starts_with("<!-- not run: ") {
            skipped = true;
        } else if line.starts_with("```") {
            (in_block, skipped) = (!in_block && line == "```sh", skipped && !in_block);
        } else if in_block && !skipped {
            found.push(line.to_owned());
        }
    }
    found
}

fn page(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(name)).unwrap()
}

#[test]
fn the_quickstart_runs_line_by_line() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path();
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/demo");
    std::fs::create_dir(place.join("model")).unwrap();
    for name in ["config.json", "generation_config.json", "model.safetensors", "tokenizer.json"] {
        std::fs::copy(demo.join(name), place.join("model").join(name)).unwrap();
    }
    std::fs::write(place.join("book.txt"), "It was the best of times, it was the worst of times. ".repeat(9)).unwrap();
    let genie = program::path();
    let path = std::env::join_paths(
        std::iter::once(genie.parent().unwrap().to_owned())
            .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())),
    )
    .unwrap();
    let commands = commands(&page("quickstart.md"));
    assert!(commands.len() > 15, "{commands:?}");
    for line in commands {
        let output = Command::new("sh")
            .args(["-c", &line])
            .current_dir(place)
            .env("PATH", &path)
            .env("GENIE_CACHE", place.join("cache"))
            .env("GENIE_MODELS", place.join("models"))
            .env("XDG_CONFIG_HOME", place.join("settings"))
            .env_remove("GENIE_LOG")
            .env_remove("GENIE_TOML")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(!output.stdout.is_empty(), "{line} prints nothing");
    }
}

#[test]
fn lines_that_are_not_run_say_so() {
    let text = "```sh\na\n```\n<!-- not run: x -->\n```sh\nb\n```\n```text\nc\n```\n```sh\nd\n```\n";
    assert_eq!(commands(text), ["a", "d"]);
}

#[test]
fn the_reference_has_every_command_with_its_flags() {
    let genie = |args: &[&str]| {
        let output = program::with_users_cache(args).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let reference = genie(&["man", "--markdown"]);
    for heading in ["## genie run\n", "## genie runtime fetch\n", "## genie config check\n", "## genie deploy\n"] {
        assert!(reference.contains(heading), "{heading}");
    }
    for flag in ["--min-p", "--json-schema", "--prefix-cache", "--to <ADDRESS>"] {
        assert!(reference.contains(flag), "{flag}");
    }
    assert_eq!(reference.matches("```text").count() * 2, reference.matches("```").count());
}
