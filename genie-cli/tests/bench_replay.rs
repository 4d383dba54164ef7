//! `genie bench --serve --replay` of what `genie serve --record` wrote: requests of the same lengths come again.

#![cfg(all(unix, feature = "server"))]

use std::path::Path;
use std::process::Output;

use serde_json::{Value, json};

use crate::program::with_cache;
use crate::served::{Server, leaves_all_idle, recorded, serve};

fn replay(cache: &Path, args: &[&str]) -> Output {
    let common = ["bench", "--serve", "--threads", "1", "--reps", "1", "--policies", "one", "--json"];
    with_cache(cache, &[&common[..], args].concat())
}

/// Tokens of the prompt and of the reply.
fn ask(server: &Server, prompt: &str, n_predict: usize) -> (u64, u64) {
    let reply = server.post("/completion", &json!({"prompt": prompt, "n_predict": n_predict, "temperature": 0}));
    let number = |key: &str| reply[key].as_u64().unwrap_or_else(|| panic!("{key}: {reply}"));
    (number("tokens_evaluated"), number("tokens_predicted"))
}

#[test]
fn recorded_traffic_comes_again_with_its_lengths() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path();
    let (steps, trace) = (cache.join("steps.jsonl"), cache.join("trace.jsonl"));
    let server = Server::start(serve().env("GENIE_CACHE", cache).arg("--record").arg(&steps));
    let asked = [
        ask(&server, "ROMEO:", 5),
        ask(&server, "Now is the winter of our discontent", 1),
        ask(&server, "ROMEO: now", 9),
    ];
    // The last step of the last reply: requests count from 1.
    recorded(&steps, |step| {
        leaves_all_idle(step) && step["rows"].as_array().is_some_and(|rows| rows.iter().any(|row| row["request"] == 3))
    });
    drop(server);
    let output = replay(cache, &["--replay", steps.to_str().unwrap(), "--record", trace.to_str().unwrap()]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("has steps of `genie serve`: 3 requests") && said.contains("of random tokens"), "{said}");
    let record: Value =
        serde_json::from_str(std::str::from_utf8(&output.stdout).unwrap().lines().last().unwrap()).unwrap();
    assert_eq!((&record["requests"], &record["failed"]), (&3.into(), &0.into()), "{record}");
    let text = std::fs::read_to_string(&trace).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let number = |line: &Value, key: &str| line[key].as_u64().unwrap();
    assert_eq!(lines.iter().map(|line| (number(line, "prompt"), number(line, "reply"))).collect::<Vec<_>>(), asked);
    // Requests count from 1; the third began as the first.
    let first = &lines[2]["begins"][0];
    assert_eq!((first["seed"].as_u64(), &lines[0]["begins"][0]["seed"]), (Some(1), &1.into()), "{text}");
    assert!(first["n"].as_u64().is_some_and(|n| n > 0 && n < asked[2].0), "{text}");
    assert!(said.contains(" as in earlier prompts"), "{said}");
    let times: Vec<u64> = lines.iter().map(|line| number(line, "at_ms")).collect();
    assert!(times[0] == 0 && times.is_sorted() && lines.iter().all(|line| line["loop"] == "open"), "{text}");
}

#[test]
fn a_recording_of_another_version_is_refused_with_a_hint() {
    let cache = tempfile::tempdir().unwrap();
    let steps = cache.path().join("steps.jsonl");
    std::fs::write(&steps, "{\"type\":\"engine\",\"version\":9}\n").unwrap();
    let output = replay(cache.path(), &["--replay", steps.to_str().unwrap()]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains("expected version 1, found 9") && said.contains("hint: give what `genie serve --record FILE`"),
        "{said}"
    );
}
