//! `genie run --streams`: each reply is what the model says by itself after the prompt and that reply's first token.

use std::path::Path;

use serde_json::{Value, json};

use crate::program::{compiled, genie};

fn bundle() -> tempfile::TempDir {
    compiled(&["--ar", "1,8", "--cl", "64"])
}

fn record(folder: &Path, args: &[&str]) -> Value {
    let output = genie(folder, &[&["run", "-c", "bundle", "--json", "--greedy"], args].concat());
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{args:?}: {e}: {}", String::from_utf8_lossy(&output.stderr)))
}

fn ids(list: &Value) -> Vec<u64> {
    list.as_array().into_iter().flatten().map(|id| id.as_u64().unwrap()).collect()
}

const PROMPT: &str = "12,7,9,3,1";

#[test]
fn each_stream_is_the_reply_after_its_first_token() {
    let folder = bundle();
    let basic = record(folder.path(), &["--prompt-tokens", PROMPT, "-n", "7"]);
    let found = record(folder.path(), &["--prompt-tokens", PROMPT, "-n", "7", "--streams", "3"]);
    let streams = found["streams"].as_array().unwrap();
    assert_eq!(streams.len(), 3);
    assert_eq!(streams[0]["tokens"], basic["tokens"], "the first is the likeliest");
    assert_eq!(found["tokens"], basic["tokens"]);
    for stream in streams {
        let tokens = ids(&stream["tokens"]);
        let alone = format!("{PROMPT},{}", tokens[0]);
        let alone = record(folder.path(), &["--prompt-tokens", &alone, "-n", "6"]);
        assert_eq!(ids(&alone["tokens"]), tokens[1..], "{stream}");
        assert_eq!((tokens.len(), &stream["stop"]), (7, &json!("max-num-tokens")));
    }
    let firsts: Vec<u64> = streams.iter().map(|stream| ids(&stream["tokens"])[0]).collect();
    assert!(firsts[0] != firsts[1] && firsts[1] != firsts[2] && firsts[0] != firsts[2], "{firsts:?}");
    // Three rows at a time: one step of AR 8, of two graphs, for each token.
    assert_eq!(found["kpis"]["num-generated-tokens"], 21);
    let steps: u64 = found["executed"].as_array().unwrap().iter().map(|run| run[1].as_u64().unwrap()).sum();
    assert_eq!(steps, 14, "{}", found["executed"]);
}

#[test]
fn the_config_asks_for_streams_and_unlikely_ones_do_not_run() {
    let folder = bundle();
    let path = folder.path().join("bundle/genie_config.json");
    let mut config: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    config["dialog"]["type"] = json!("multistream");
    config["dialog"]["multistream"] = json!({"version": 1, "n-streams": 2});
    std::fs::write(&path, config.to_string()).unwrap();
    let by_flag = record(folder.path(), &["--prompt-tokens", PROMPT, "-n", "4", "--streams", "2"]);
    assert_eq!(record(folder.path(), &["--prompt-tokens", PROMPT, "-n", "4"])["streams"], by_flag["streams"]);
    let one = record(folder.path(), &["--prompt-tokens", PROMPT, "-n", "4", "--streams", "2", "--p-threshold", "1"]);
    assert_eq!(one["streams"].as_array().unwrap().len(), 1, "{one}");
    for wrong in ["2", "nan", "-0.5"] {
        let threshold = format!("--p-threshold={wrong}");
        let refused =
            genie(folder.path(), &["run", "-c", "bundle", "--prompt-tokens", PROMPT, "--streams", "2", &threshold]);
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(refused.status.code() == Some(2) && said.contains("expected a number from 0 to 1"), "{said}");
    }
    config["dialog"]["multistream"]["n-streams"] = json!(65);
    std::fs::write(&path, config.to_string()).unwrap();
    let refused = genie(folder.path(), &["run", "-c", "bundle", "--prompt-tokens", PROMPT]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.contains("/dialog/multistream/n-streams: expected 1 to 64 streams, found 65"), "{said}");
}

#[test]
fn a_full_context_ends_all_streams_with_what_they_have() {
    let folder = bundle();
    let found = record(folder.path(), &["--prompt-tokens", PROMPT, "--streams", "4", "-n", "60"]);
    let streams = found["streams"].as_array().unwrap();
    assert_eq!((found["stop"].as_str(), found["status"].as_i64()), (Some("context-limit"), Some(4)), "{found}");
    let lengths: Vec<usize> = streams.iter().map(|stream| ids(&stream["tokens"]).len()).collect();
    // Six rows of the prompt; four more with each step while a step of AR 8 fits into 64.
    assert!(lengths.iter().all(|n| *n == lengths[0] && (10..=15).contains(n)), "{lengths:?}");
}

#[test]
fn a_saved_dialog_goes_on_with_the_first_stream() {
    let folder = bundle();
    let text = |args: &[&str]| record(folder.path(), args);
    text(&["--prompt-tokens", PROMPT, "-n", "5", "--save", "plain"]);
    text(&["--prompt-tokens", PROMPT, "-n", "5", "--streams", "3", "--save", "streams"]);
    let next = |saved: &str| text(&["--prompt-tokens", "4,4", "-n", "5", "--restore", saved]);
    let (plain, streams) = (next("plain"), next("streams"));
    assert_eq!((&plain["tokens"], &plain["input"]), (&streams["tokens"], &streams["input"]));
}

#[test]
fn lines_of_streams_are_led_by_their_number() {
    let folder = bundle();
    let output = genie(
        folder.path(),
        &["run", "-c", "bundle", "--greedy", "--prompt-tokens", PROMPT, "-n", "5", "--streams", "2"],
    );
    let found = record(folder.path(), &["--prompt-tokens", PROMPT, "-n", "5", "--streams", "2"]);
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    for (number, stream) in found["streams"].as_array().unwrap().iter().enumerate() {
        for line in stream["text"].as_str().unwrap().lines().filter(|line| !line.is_empty()) {
            assert!(printed.contains(&format!("{}| {line}", number + 1)), "{printed:?} lacks {line:?}");
        }
    }
}
