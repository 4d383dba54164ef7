//! `genie bench --serve`: policies side by side on the demo model, traces written and replayed, flags refused.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::program::with_own_cache;

fn command(cache: &Path, args: &[&str]) -> Command {
    with_own_cache(cache, &[&["bench", "--serve", "--threads", "1", "--reps", "1"], args].concat())
}

fn serve(cache: &Path, args: &[&str]) -> Output {
    command(cache, args).output().unwrap()
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

fn requests(file: &str) -> Vec<Value> {
    std::fs::read_to_string(file).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// One client waits for each reply, so there is one request at a time; requests that all come at once are there together. How many
/// steps they take says neither: whether they share some is decided by measured times.
#[test]
fn a_trace_is_replayed_as_it_was_recorded() {
    let cache = tempfile::tempdir().unwrap();
    let (trace, open) = (cache.path().join("closed.jsonl"), cache.path().join("open.jsonl"));
    let (trace, open) = (trace.to_str().unwrap(), open.to_str().unwrap());
    let run = |args: &[&str]| {
        let found = records(&serve(cache.path(), &[&["--json", "--policies", "batched"], args].concat()));
        assert_eq!((found.len(), &found[0]["failed"]), (1, &0.into()), "{found:?}");
        found[0]["most_at_once"].as_u64().unwrap()
    };
    assert_eq!(run(&["--clients", "1", "--requests", "3", "--record", trace]), 1);
    let lines = requests(trace);
    assert!(
        lines.iter().all(|line| line["loop"] == "closed" && line["client"] == 0 && line["at_ms"] == 0),
        "{lines:?}"
    );
    assert_eq!(run(&["--replay", trace]), 1);
    // A file of before: without `loop`.
    let text = std::fs::read_to_string(trace).unwrap();
    std::fs::write(open, text.replace("\"loop\":\"closed\",", "")).unwrap();
    assert_eq!(run(&["--replay", open]), 1);
    std::fs::write(open, text.replace("closed", "open")).unwrap();
    assert_eq!(run(&["--replay", open]), 3);
}

#[test]
fn documents_come_at_random_times() {
    let cache = tempfile::tempdir().unwrap();
    let trace = cache.path().join("t.jsonl");
    let trace = trace.to_str().unwrap();
    let args = ["--json", "--mix", "documents", "--rate", "40", "--requests", "4", "--policies", "batched"];
    let found = records(&serve(cache.path(), &[&args[..], &["--record", trace]].concat()));
    assert_eq!((&found[0]["requests"], &found[0]["failed"]), (&4.into(), &0.into()), "{}", found[0]);
    let lines = requests(trace);
    let of = |key: &str| lines.iter().map(|line| line[key].as_u64().unwrap()).collect::<Vec<_>>();
    assert!(lines.iter().all(|line| line["loop"] == "open"), "{lines:?}");
    assert_eq!(of("client"), [0, 1, 2, 3]);
    let (at, prompts) = (of("at_ms"), of("prompt"));
    assert!(at.is_sorted() && at[3] > at[0], "{at:?}");
    assert!(prompts[3] > 4 * prompts[..3].iter().max().unwrap(), "the fourth is a document: {prompts:?}");
    // No request is served before its time.
    assert!(found[0]["seconds"].as_f64().unwrap() * 1e3 > at[3] as f64, "{}", found[0]);
}

#[test]
fn the_table_has_percentiles_of_the_time_between_tokens() {
    let cache = tempfile::tempdir().unwrap();
    let output = serve(cache.path(), &["--requests", "2", "--clients", "1", "--policies", "one"]);
    let table = String::from_utf8(output.stdout).unwrap();
    let (head, row) = table.trim_end().rsplit_once('\n').unwrap();
    assert!(head.contains("itl p50/p95/p99/max ms"), "{table}");
    // Policy, seed, seconds; two times of the first token; four between tokens; two rates, goodput, padding; replies that are the same.
    let words: Vec<&str> = row.split_whitespace().filter(|word| *word != "/").collect();
    assert_eq!((words.len(), words[0], words[13]), (14, "one", "2/2"), "{row}");
    let times: Vec<f64> = words[5..9].iter().map(|word| word.parse().unwrap()).collect();
    assert!(times.is_sorted(), "{row}");
}

/// Between requests that come seldom there is no step that a signal could stop.
#[cfg(unix)]
#[test]
fn a_signal_ends_the_wait_for_a_request() {
    use std::io::{BufRead, BufReader};
    use std::time::{Duration, Instant};

    let cache = tempfile::tempdir().unwrap();
    let args = ["--json", "--policies", "batched", "--rate", "0.00001", "--requests", "1"];
    let mut command = command(cache.path(), &args);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // The times of steps are printed right before the trace begins.
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::TERM).unwrap();
    let began = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if began.elapsed() > Duration::from_secs(60) {
            child.kill().unwrap();
            panic!("it goes on waiting");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(143), "{text}");
    assert!(text.contains("interrupted by SIGTERM"), "{text}");
}

/// Policies are not measured for a reader that left while steps were: those of this trace would end with an error.
#[test]
fn a_reader_that_leaves_ends_the_policies() {
    let cache = tempfile::tempdir().unwrap();
    let file = cache.path().join("too-long.jsonl");
    std::fs::write(&file, "{\"prompt\":500000,\"reply\":3}\n").unwrap();
    let code = |has_reader: bool| {
        let mut command = command(cache.path(), &["--policies", "batched", "--replay", file.to_str().unwrap()]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        if !has_reader {
            drop(child.stdout.take());
        }
        child.wait_with_output().unwrap().status.code()
    };
    assert_eq!((code(true), code(false)), (Some(1), Some(0)));
}

/// A picture is a file: who reads the table does not matter to it.
#[test]
fn a_picture_is_drawn_though_the_reader_of_the_table_has_left() {
    let cache = tempfile::tempdir().unwrap();
    let picture = cache.path().join("p.svg");
    let args = ["--requests", "2", "--clients", "1", "--seeds", "1,2", "--policies", "one,batched", "--picture"];
    let mut command = command(cache.path(), &[&args[..], &[picture.to_str().unwrap()]].concat());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let svg = std::fs::read_to_string(&picture).unwrap();
    assert!(svg.contains(">one:") && svg.contains(">batched:") && svg.ends_with("</svg>\n"), "{svg}");
}

#[test]
fn bad_flags_are_refused() {
    let cache = tempfile::tempdir().unwrap();
    let error = |args: &[&str]| String::from_utf8(serve(cache.path(), args).stderr).unwrap();
    assert!(error(&["--policies", "sideways"]).contains("expected one of one, prefill-first"));
    assert!(error(&["--rate", "nan"]).contains("expected requests in a second, above 0"));
    for (flag, value) in [("--pp", "3"), ("--tg", "3"), ("--fill", "100"), ("--spec-accept", "0.5")] {
        let text = error(&[flag, value]);
        assert!(text.contains("cannot be used with") && text.contains(flag), "{text}");
    }
    assert!(error(&["--clients", "0"]).contains("expected a whole number from 1"));
    assert!(error(&["--slots", "65"]).contains("expected a whole number from 1 to 64"));
    let file = cache.path().join("bad.jsonl");
    std::fs::write(&file, "{\"prompt\":3,\"reply\":2}\n{\"prompt\":0,\"reply\":2}\n").unwrap();
    let text = error(&["--replay", file.to_str().unwrap()]);
    assert!(text.contains("line 2 of the trace"), "{text}");
    // A trace of which nothing can be served is no measurement.
    std::fs::write(&file, "{\"prompt\":500000,\"reply\":3}\n").unwrap();
    let output = serve(cache.path(), &["--policies", "batched", "--replay", file.to_str().unwrap()]);
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && text.contains("each request of the trace failed"), "{text}");
    let text = error(&["--replay", file.to_str().unwrap(), "--clients", "2"]);
    assert!(text.contains("'--replay <FILE>' cannot be used with '--clients <N>'"), "{text}");
}
