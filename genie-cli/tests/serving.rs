//! `genie bench --serve`: policies side by side on the demo model, traces written and replayed, flags refused.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use assert_cmd::cargo::CommandCargoExt;
use serde_json::Value;

fn serve(cache: &Path, args: &[&str]) -> Output {
    let mut command = Command::cargo_bin("genie").unwrap();
    command.env("GENIE_CACHE", cache).env_remove("GENIE_LOG");
    command.args(["bench", "--serve", "--threads", "1", "--reps", "1"]).args(args);
    command.stdin(Stdio::null()).output().unwrap()
}

fn records(output: &Output) -> Vec<Value> {
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    let all: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    all.into_iter().filter(|record| record["test"] == "serve").collect()
}

/// Each request has the reply that it has alone, under every policy, on the real engine.
#[test]
fn replies_are_the_same_under_every_policy() {
    let cache = tempfile::tempdir().unwrap();
    let (trace, picture) = (cache.path().join("t.jsonl"), cache.path().join("p.svg"));
    let (trace, picture) = (trace.to_str().unwrap(), picture.to_str().unwrap());
    let all = "one,prefill-first,alternating,fused,batched,alternating-batched,prefill-first-batched";
    let args =
        ["--json", "--policies", all, "--requests", "6", "--clients", "3", "--record", trace, "--picture", picture];
    let found = records(&serve(cache.path(), &args));
    assert_eq!(found.len(), 7);
    for record in &found {
        assert_eq!((&record["same_replies"], &record["failed"]), (&6.into(), &0.into()), "{record}");
        let padding = record["padding"].as_f64().unwrap();
        assert!((0.0..1.0).contains(&padding) && record["out_tok_s"].as_f64().unwrap() > 0.0, "{record}");
    }
    let svg = std::fs::read_to_string(picture).unwrap();
    assert!(svg.starts_with("<svg") && svg.contains("prefill-first-batched") && svg.contains("request 5"));
    // The recorded trace, replayed.
    let again = records(&serve(cache.path(), &["--json", "--replay", trace, "--policies", "one,batched"]));
    assert_eq!(again.iter().map(|r| r["same_replies"].clone()).collect::<Vec<_>>(), [Value::from(6), Value::from(6)]);
    assert_eq!(again[0]["requests"], found[0]["requests"]);
}

#[test]
fn prompts_with_a_common_beginning_share_rows() {
    let cache = tempfile::tempdir().unwrap();
    let args = ["--json", "--mix", "agent", "--requests", "4", "--clients", "2", "--policies", "one,batched"];
    let found = records(&serve(cache.path(), &args));
    for record in &found {
        assert!(record["shared_tokens"].as_u64().unwrap() > 0, "{record}");
        assert_eq!(record["same_replies"], 4, "{record}");
    }
}

#[test]
fn bad_flags_are_refused() {
    let cache = tempfile::tempdir().unwrap();
    let error = |args: &[&str]| String::from_utf8(serve(cache.path(), args).stderr).unwrap();
    assert!(error(&["--policies", "sideways"]).contains("expected one of one, prefill-first"));
    assert!(error(&["--rate", "nan"]).contains("`--rate` is no rate"));
    let file = cache.path().join("bad.jsonl");
    std::fs::write(&file, "{\"prompt\":3,\"reply\":2}\n{\"prompt\":0,\"reply\":2}\n").unwrap();
    let text = error(&["--replay", file.to_str().unwrap()]);
    assert!(text.contains("line 2 of the trace"), "{text}");
}
