//! The systemd unit and the container file of `dist/`: their command lines are ones that `genie serve` takes.

#![cfg(all(unix, feature = "server"))]

use std::path::Path;
use std::process::Command;

use crate::program::{self, with_users_cache};

fn dist(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../dist").join(name)).unwrap()
}

/// What `genie` says to these words with a folder of models that is empty: it has read all flags before it looks there.
fn refused(words: &[String]) -> String {
    let empty = tempfile::tempdir().unwrap();
    let output = with_users_cache(&[]).args(words).arg("--models").arg(empty.path()).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{words:?}: {text}");
    text
}

/// The words behind the program, without the model.
fn words(line: &str) -> Vec<String> {
    let words = line.split([' ', ',', '[', ']']).map(|word| word.trim_matches('"')).filter(|word| !word.is_empty());
    words.skip(1).filter(|word| !word.starts_with("${")).map(str::to_owned).collect()
}

#[test]
fn the_command_lines_of_unit_and_container_are_taken() {
    let unit = dist("systemd/genie-serve.service");
    let line = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
    let container = dist("container/Containerfile");
    let entry = container.lines().find_map(|line| line.strip_prefix("ENTRYPOINT ")).unwrap();
    for line in [line, entry] {
        let words = words(line);
        assert!(words[0] == "serve" && words.iter().any(|word| word == "--api-key-file"), "{words:?}");
        assert!(refused(&words).contains("no model in"), "{line}");
    }
    // The unit waits longer than the server drains.
    let number = |text: &str, key: &str| -> u64 {
        text.split(key).nth(1).and_then(|rest| rest.split_whitespace().next()).unwrap().parse().unwrap()
    };
    assert!(number(&unit, "\nTimeoutStopSec=") > number(line, "--drain "));
    // A flag that is not there is found by this test.
    let unknown = with_users_cache(&["serve", "--no-such-flag"]).output().unwrap();
    assert_eq!(unknown.status.code(), Some(2));
}

#[test]
#[ignore = "needs systemd-analyze"]
fn systemd_takes_the_unit() {
    let folder = tempfile::tempdir().unwrap();
    let program = program::path();
    let text = dist("systemd/genie-serve.service").replace("/usr/bin/genie", program.to_str().unwrap());
    let path = folder.path().join("genie-serve.service");
    std::fs::write(&path, text).unwrap();
    let output = Command::new("systemd-analyze").arg("verify").arg(&path).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && !text.contains("genie-serve.service:"), "{text}");
}
