//! Files that one run leaves for the next: saved dialogs, prefix caches, calibrations.

use std::process::Output;

use serde_json::Value;

use crate::program::{stderr, with_cache as run};

fn done(output: Output) -> Output {
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    output
}

fn record(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", stderr(output)))
}

fn executed(record: &Value) -> u64 {
    record["executed"].as_array().unwrap().iter().map(|run| run[1].as_u64().unwrap()).sum()
}

#[test]
fn a_dialog_is_saved_and_continued() {
    let cache = tempfile::tempdir().unwrap();
    let folder = cache.path().join("there");
    let there = folder.to_str().unwrap();
    let first = ["run", "--prompt-tokens", "12,7,9", "-n", "5", "--greedy", "--json"];
    let reply = record(&done(run(cache.path(), &[&first[..], &["--save", there]].concat())));
    for name in
        ["dialog.json", "token-history-slot-0", "kv-slot-0.primary.qnn-htp", "sampler.primary.rng", "open-genie.kvs"]
    {
        assert!(folder.join(name).exists(), "{name}");
    }
    // The next query starts with the last generated token.
    let second = ["run", "--prompt-tokens", "3,4", "-n", "5", "--greedy", "--json", "--restore", there];
    let output = done(run(cache.path(), &second));
    assert_eq!(stderr(&output), "restored 9 tokens from the snapshot\n");
    let next = record(&output);
    assert_eq!(next["input"][0], reply["tokens"][4]);
    assert!(next["input"].as_array().unwrap().ends_with(&[3.into(), 4.into()]));
    // The whole conversation as prompt: all of it is in the cache, so the reply is the same without running a prompt.
    let rewind =
        ["run", "--prompt-tokens", "0,12,7,9", "-n", "5", "--greedy", "--json", "--restore", there, "--rewind"];
    let again = record(&done(run(cache.path(), &rewind)));
    assert_eq!((&again["tokens"], again["input"].as_array().unwrap().len()), (&reply["tokens"], 0));

    let bytes = std::fs::read(folder.join("open-genie.kvs")).unwrap();
    std::fs::write(folder.join("open-genie.kvs"), &bytes[..bytes.len() / 2]).unwrap();
    let output = run(cache.path(), &second);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("cannot restore the dialog in"), "{}", stderr(&output));
    assert!(stderr(&output).contains("torn snapshot"), "{}", stderr(&output));
}

#[test]
fn a_stored_prefix_is_not_run_again() {
    let cache = tempfile::tempdir().unwrap();
    let folder = cache.path().join("prompts");
    let tokens: Vec<String> = (0..90).map(|i| (i * 5 % 60 + 4).to_string()).collect();
    let prompt = tokens.join(",");
    let args = ["run", "--prompt-tokens", &prompt, "-n", "4", "--greedy", "--json"];
    let plain = record(&done(run(cache.path(), &args)));
    let kept = [&args[..], &["--prefix-cache", folder.to_str().unwrap(), "--prefix-min-tokens", "32"]].concat();
    let first = record(&done(run(cache.path(), &kept)));
    let second = record(&done(run(cache.path(), &kept)));
    assert_eq!((&first["tokens"], &second["tokens"]), (&plain["tokens"], &plain["tokens"]));
    assert!(executed(&first) > executed(&second), "{} then {}", first["executed"], second["executed"]);
    // Each step runs the decoder and the LM head.
    assert_eq!(executed(&second), 2 * 4, "one step per token, with the prompt's last: {}", second["executed"]);
}

#[test]
fn a_prompt_that_does_not_fit_is_reported_with_the_capacity() {
    let cache = tempfile::tempdir().unwrap();
    let prompt = vec!["5"; 600].join(",");
    let output = run(cache.path(), &["run", "--prompt-tokens", &prompt]);
    assert_eq!(output.status.code(), Some(1));
    let message = stderr(&output);
    assert!(message.contains("context limit exceeded: 0 past + 601 new tokens > 512"), "{message}");
    assert!(message.contains("hint: 512 tokens fit; the context ends at 512"), "{message}");
    let output = run(cache.path(), &["run", "-p", "x", "--kv-mode", "smartmask"]);
    assert!(stderr(&output).contains("use one of smart-mask, shift-concat, pointer-shift, native-kv"));
    let output = run(cache.path(), &["run", "-p", "x", "--kv-mode", "native-kv"]);
    assert!(stderr(&output).contains("since the bundle's cache tensors are flat, found `native-kv`"));
    let shifted = ["run", "-p", "ROMEO:", "-n", "40", "--greedy"];
    let plain = done(run(cache.path(), &shifted));
    for mode in ["shift-concat", "pointer-shift"] {
        assert_eq!(
            done(run(cache.path(), &[&shifted[..], &["--kv-mode", mode]].concat())).stdout,
            plain.stdout,
            "{mode}"
        );
    }
}

#[test]
fn a_calibration_is_measured_used_and_rejected_elsewhere() {
    let cache = tempfile::tempdir().unwrap();
    let output = done(run(cache.path(), &["bench", "--calibrate", "--reps", "1", "--threads", "1"]));
    assert!(String::from_utf8_lossy(&output.stdout).contains("variant switch"), "{output:?}");
    let bundle = std::fs::read_dir(cache.path()).unwrap().map(|e| e.unwrap().path());
    let bundle = bundle.into_iter().find(|p| p.join("calibration.json").exists()).expect("it is in the bundle");
    let plan = ["plan", "100", "-c", bundle.to_str().unwrap(), "--policy", "cost", "--json"];
    assert_eq!(stderr(&done(run(cache.path(), &plan))), "", "no warning");
    let file = bundle.join("calibration.json");
    let text = std::fs::read_to_string(&file).unwrap();
    // A free step of the largest variant is chosen for the whole plan.
    let mut costs: Value = serde_json::from_str(&text).unwrap();
    for step in costs["steps"].as_array_mut().unwrap() {
        step["median-us"] = if step["ar"] == 128 && step["cl"] == 512 { 0.1.into() } else { 1e6.into() };
    }
    std::fs::write(&file, costs.to_string()).unwrap();
    let output = done(run(cache.path(), &plan));
    assert_eq!(record(&output)["steps"][0]["graph"], "ar128_cl512");
    assert_eq!(record(&output)["ms"], 0.0001);
    let mut moved = costs.clone();
    moved["machine"]["cpu"] = "another".into();
    std::fs::write(&file, moved.to_string()).unwrap();
    let output = done(run(cache.path(), &plan));
    assert!(stderr(&output).contains("it was measured with another machine"), "{}", stderr(&output));
    assert!(record(&output).get("ms").is_none(), "nominal costs are no times");
    std::fs::remove_file(&file).unwrap();
    let output = done(run(cache.path(), &["run", "-p", "A", "-n", "2", "--policy", "cost"]));
    assert!(stderr(&output).contains("the file does not exist"), "{}", stderr(&output));
    assert!(stderr(&output).contains("genie bench --calibrate"), "{}", stderr(&output));
}
