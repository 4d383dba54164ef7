//! `genie train`, with the cargo feature `train`: a text becomes a model that runs; what cannot be trained is refused.
#![cfg(feature = "train")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use assert_cmd::cargo::CommandCargoExt;
use serde_json::Value;

fn genie(place: &Path, args: &[&str]) -> Output {
    let mut genie = Command::cargo_bin("genie").unwrap();
    genie.env("GENIE_CACHE", place.join("cache")).env_remove("GENIE_LOG").current_dir(place).stdin(Stdio::null());
    genie.args(args).output().unwrap()
}

#[test]
fn a_text_becomes_a_model_that_runs_and_a_refusal_says_what_to_do() {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("text.txt"), "One fox. Two foxes. Three foxes and one more fox.\n".repeat(12)).unwrap();
    let small = ["--layers", "1", "--width", "32", "--heads", "2", "--context", "32", "--epochs", "8", "--batch", "2"];
    for family in ["gpt2", "llama"] {
        let train = |more: &[&str]| {
            let args = [&["train", "text.txt", "-o", family, "--family", family], &small[..], more].concat();
            genie(place.path(), &args)
        };
        let done = train(&["--json"]);
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        let result: Value = serde_json::from_slice(&done.stdout).unwrap();
        assert!(result["steps"].as_u64().unwrap() >= 8 && result["held_out_loss"].is_number(), "{result}");
        let reply = genie(place.path(), &["run", family, "-p", "One", "-n", "8", "--greedy"]);
        assert!(reply.status.success(), "{}", String::from_utf8_lossy(&reply.stderr));

        let again = train(&[]);
        let said = String::from_utf8(again.stderr).unwrap();
        assert_eq!(again.status.code(), Some(1));
        assert!(
            said.contains(&format!("error: `{family}` exists\n")) && said.contains("hint: choose another folder"),
            "{said}"
        );
    }
    let refused = genie(place.path(), &["train", "text.txt", "-o", "none", "--context", "4000", "--json"]);
    let error: Value = serde_json::from_slice(&refused.stdout).unwrap();
    assert_eq!(error["error"]["code"], "invalid-argument", "{error}");
    assert!(!place.path().join("none").exists());
}
