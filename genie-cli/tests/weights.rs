//! Weights that are checked, prefix caches that are locked, sessions that do not fit: what `genie` says and how it exits.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use assert_cmd::cargo::CommandCargoExt;
use serde_json::Value;

/// `genie` with its own cache folder.
fn run(cache: &Path, args: &[&str]) -> Output {
    let mut command = Command::cargo_bin("genie").unwrap();
    command.env("GENIE_CACHE", cache).env_remove("GENIE_LOG").args(args).stdin(Stdio::null()).output().unwrap()
}

fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or_else(|| panic!("killed: {}", stderr(output)))
}

fn done(output: Output) -> Output {
    assert_eq!(code(&output), 0, "{}", stderr(&output));
    output
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Row 16: the run went on for ever, before the first token, without a word.
#[test]
fn a_prefix_cache_whose_lock_is_held_is_left_aside_with_one_warning() {
    let cache = tempfile::tempdir().unwrap();
    let folder = cache.path().join("prefixes");
    let tokens: Vec<String> = (0..90).map(|i| (i * 5 % 60 + 4).to_string()).collect();
    let plain = ["run", "--prompt-tokens", &tokens.join(","), "-n", "4", "--greedy"];
    let plain_output = done(run(cache.path(), &plain)); // compiles the demo as well
    fs::create_dir(&folder).unwrap();
    let lock = File::create(folder.join(".lock")).unwrap();
    lock.lock().unwrap();
    // Three prefixes would be stored: 32, 64 and all.
    let args = [&plain[..], &["--prefix-cache", text(&folder), "--prefix-min-tokens", "32"]].concat();
    let began = Instant::now();
    let output = done(run(cache.path(), &args));
    assert!(began.elapsed() < Duration::from_secs(60), "it went on");
    assert_eq!(output.stdout, plain_output.stdout);
    let said = stderr(&output);
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.starts_with("warning: the prompt's prefixes cannot be stored in the prefix cache: "), "{said}");
    assert!(said.contains(".lock` for 1 s; the run goes on without it"), "{said}");
    drop(lock);
    assert_eq!(stderr(&done(run(cache.path(), &args))), "");
    assert!(fs::read_dir(&folder).unwrap().count() > 1, "stored once the lock is free");
}

/// Section 3: a changed token left the snapshot silently; a damaged snapshot had no hint. Section 4: other weights by number.
#[test]
fn a_session_that_was_damaged_or_is_of_other_weights_is_told_in_words() {
    let cache = tempfile::tempdir().unwrap();
    let there = cache.path().join("session");
    let first = ["run", "--prompt-tokens", "12,7,9", "-n", "5", "--greedy", "--json"];
    done(run(cache.path(), &[&first[..], &["--save", text(&there)]].concat()));
    let again = ["run", "--prompt-tokens", "3,4", "-n", "5", "--greedy", "--json", "--restore", text(&there)];
    let tokens = |output: &Output| serde_json::from_slice::<Value>(&output.stdout).unwrap()["tokens"].clone();
    let expected = tokens(&done(run(cache.path(), &again)));

    let history = there.join("token-history-slot-0");
    let mut bytes = fs::read(&history).unwrap();
    bytes[8] ^= 1;
    fs::write(&history, &bytes).unwrap();
    let output = done(run(cache.path(), &again));
    assert_eq!(tokens(&output), expected);
    let said = stderr(&output);
    assert!(said.starts_with("warning: `token-history-slot-0` is damaged and left aside: it has token"), "{said}");
    assert!(said.ends_with("restored 9 tokens from the snapshot\n"), "{said}");
    bytes[8] ^= 1;
    fs::write(&history, &bytes).unwrap();

    let snapshot = there.join("open-genie.kvs");
    let good = fs::read(&snapshot).unwrap();
    let mut bad = good.clone();
    *bad.last_mut().unwrap() ^= 1;
    fs::write(&snapshot, &bad).unwrap();
    let output = run(cache.path(), &again);
    assert_eq!(code(&output), 1);
    let said = stderr(&output);
    assert!(said.contains("corrupt snapshot: checksum of section"), "{said}");
    let hint = format!("have no checksums: remove `{}` to continue from them", snapshot.display());
    assert!(said.contains(&hint), "{said}");
    fs::remove_file(&snapshot).unwrap();
    let output = done(run(cache.path(), &again));
    assert!(stderr(&output).contains("restored 9 tokens from Genie's files"), "{}", stderr(&output));
    fs::write(&snapshot, &good).unwrap();

    // Another model of the same shape: the demo's bundle with another source in its manifest.
    let demo = fs::read_dir(cache.path()).unwrap().map(|e| e.unwrap().path());
    let demo = demo.into_iter().find(|p| p.join("manifest.json").exists()).unwrap();
    let name = demo.file_name().unwrap().to_str().unwrap().to_owned();
    let other = cache.path().join("other");
    fs::create_dir(&other).unwrap();
    for file in fs::read_dir(&demo).unwrap().map(|e| e.unwrap().path()) {
        fs::copy(&file, other.join(file.file_name().unwrap())).unwrap();
    }
    let mut manifest: Value = serde_json::from_slice(&fs::read(other.join("manifest.json")).unwrap()).unwrap();
    manifest["source"]["sha256"] = "00".repeat(32).into();
    fs::write(other.join("manifest.json"), manifest.to_string()).unwrap();
    let output = run(cache.path(), &[&again[..], &["-c", text(&other)]].concat());
    assert_eq!(code(&output), 1);
    let said = stderr(&output);
    assert!(said.contains(&format!("saved with other weights (bundle `{name}`)")), "{said}");
    assert!(said.contains(&format!("hint: restore with bundle `{name}`")), "{said}");
}

/// Section 3: `verify -n 0`, `--tolerance inf` and `nan` passed or blamed the cache; flags without what they work on.
#[test]
fn numbers_that_prove_nothing_and_flags_without_effect_are_bad_usage() {
    let cache = tempfile::tempdir().unwrap();
    let cases: [(&[&str], &str); 9] = [
        (&["verify", "b", "-n", "0"], "at least 1"),
        (&["verify", "b", "--tolerance", "inf"], "a finite number of at least 0"),
        (&["verify", "b", "--tolerance", "nan"], "a finite number of at least 0"),
        (&["verify", "b", "--tolerance", "-0.5"], "a finite number of at least 0"),
        (&["verify", "b", "--tolerance", "1e99"], "a finite number of at least 0"),
        (&["run", "-p", "x", "--rewind"], "--restore"),
        (&["run", "-p", "x", "--prefix-min-tokens", "4"], "--prefix-cache"),
        (&["run", "-p", "x", "--prefix-min", "4"], "--prefix-cache"),
        (&["run", "-p", "x", "--prefix-cache-mib", "4"], "--prefix-cache"),
    ];
    for (args, wanted) in cases {
        let output = run(cache.path(), args);
        assert_eq!(code(&output), 2, "{args:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(wanted), "{args:?}: {}", stderr(&output));
    }
}

/// D11: "prompt 570 tokens, 477508.5 tokens/s" after a hit.
#[test]
fn restored_tokens_are_named_and_are_no_speed() {
    let cache = tempfile::tempdir().unwrap();
    let folder = cache.path().join("prefixes");
    let tokens: Vec<String> = (0..90).map(|i| (i * 5 % 60 + 4).to_string()).collect();
    let prompt = tokens.join(",");
    let args = ["run", "--prompt-tokens", &prompt, "-n", "3", "--greedy", "--json", "--stats"];
    let args = [&args[..], &["--prefix-cache", text(&folder), "--prefix-min-tokens", "16"]].concat();
    let kpis = |output: &Output| serde_json::from_slice::<Value>(&output.stdout).unwrap()["kpis"].clone();
    let first = done(run(cache.path(), &args));
    assert_eq!((&kpis(&first)["num-prompt-tokens"], &kpis(&first)["num-restored-tokens"]), (&91.into(), &0.into()));
    assert!(!stderr(&first).contains("restored"), "{}", stderr(&first));
    let second = done(run(cache.path(), &args));
    let found = kpis(&second);
    assert_eq!((&found["num-prompt-tokens"], &found["num-restored-tokens"]), (&91.into(), &90.into()));
    let rate = found["prompt-processing-rate"].as_f64().unwrap();
    let us = found["time-to-first-token"].as_f64().unwrap();
    assert!((rate * us / 1e6 - 1.0).abs() < 0.01, "one token was processed: {found}");
    let said = stderr(&second);
    assert!(said.contains("restored           90 tokens of 91 from the prefix cache, not processed"), "{said}");
    assert!(said.contains("prompt              1 tokens"), "{said}");
}
