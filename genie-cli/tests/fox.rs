//! The built-in model `fox`: it completes its sentences from memory, with the cache and without.

use std::path::Path;

use serde_json::Value;

use crate::program::{command, stderr, stdout};

fn genie(place: &Path, args: &[&str]) -> String {
    let output = command(place, args).env("GENIE_MODELS", place.join("models")).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", stderr(&output));
    stdout(&output).to_owned()
}

/// The sentences that it was trained on.
fn sentences() -> String {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../models/fox/fox.txt")).unwrap();
    text.lines().take(3).map(|line| format!("{line}\n")).collect()
}

#[test]
fn the_fox_completes_its_sentences() {
    let place = tempfile::tempdir().unwrap();
    let reply = genie(place.path(), &["run", "fox", "-p", "The quick", "--greedy", "-n", "138"]);
    assert_eq!(format!("The quick{reply}").trim_end(), sentences().trim_end());
    // Compiled once, listed by its word.
    let listed: Value = serde_json::from_str(&genie(place.path(), &["list", "--json"])).unwrap();
    assert!(listed.to_string().contains("\"fox\""), "{listed}");
}

/// In float32, where nothing is rounded away: the same tokens and the same logits, uncut and in three splits, for prompts around
/// the width of a step.
#[test]
fn two_hundred_tokens_are_the_same_in_three_splits() {
    let place = tempfile::tempdir().unwrap();
    let fox = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/fox");
    for splits in ["mono", "lut-decoder-lmhead"] {
        genie(place.path(), &["compile", fox, "-o", splits, "--splits", splits, "--ar", "1,16", "--precision", "f32"]);
        let lengths = ["--lengths", "1,15,16,17,35", "--checkpoint", fox, "--json"];
        let verified = genie(place.path(), &[&["verify", splits, "--naive", "-n", "200"], &lengths[..]].concat());
        let records: Vec<Value> = verified.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(records.len(), 5, "{verified}");
        for record in &records {
            assert_eq!(
                [&record["generated"], &record["wrong_tokens"], &record["ties"]],
                [200, 0, 0],
                "{splits}: {record}"
            );
            assert_eq!(record["max_relative_difference"], 0.0, "{splits}: {record}");
        }
    }
    let files = std::fs::read_dir(place.path().join("lut-decoder-lmhead")).unwrap();
    let binaries = files.filter(|file| file.as_ref().unwrap().path().extension().is_some_and(|kind| kind == "bin"));
    assert_eq!(binaries.count(), 3);
}

#[test]
fn two_hundred_cached_tokens_equal_those_of_graphs_without_a_cache() {
    let place = tempfile::tempdir().unwrap();
    for (lengths, tokens, n) in [("1,32", "200", 2), ("31,33,67", "12", 3)] {
        let args = ["verify", "fox", "--naive", "-n", tokens, "--lengths", lengths, "--json"];
        let verified = genie(place.path(), &args);
        let records: Vec<Value> = verified.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(records.len(), n, "{verified}");
    }
}
