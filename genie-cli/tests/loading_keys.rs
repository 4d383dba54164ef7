//! Keys of `QnnHtp` and of the engine that say how a model is loaded: `allow-async-init`, `data-alignment-size`, `batching`.

use std::path::Path;
use std::process::Output;

use serde_json::{Value, json};

use crate::program::{command, compiled};

fn genie(folder: &Path, args: &[&str]) -> Output {
    command(folder, args).env("GENIE_LOG", "warn,open_genie=debug").output().unwrap()
}

/// A run of the bundle with that value at that place of its config: its record, if it ran, and what was said.
fn run(folder: &Path, pointer: &str, key: &str, value: Value) -> (Option<Value>, String) {
    let path = folder.join("bundle/genie_config.json");
    let original = std::fs::read(&path).unwrap();
    let mut config: Value = serde_json::from_slice(&original).unwrap();
    config.pointer_mut(pointer).unwrap()[key] = value;
    std::fs::write(&path, config.to_string()).unwrap();
    let args = ["run", "-c", "bundle", "--prompt-tokens", "3,5,9,8", "-n", "8", "--greedy", "--json"];
    let output = genie(folder, &args);
    std::fs::write(&path, original).unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout));
    let record = output.status.success().then(|| serde_json::from_slice::<Value>(&output.stdout).unwrap());
    (record, said)
}

#[test]
fn loading_keys_act_and_change_no_token() {
    let folder = compiled(&["--ar", "1,8", "--cl", "64"]);
    let folder = folder.path();
    let htp = "/dialog/engine/backend/QnnHtp";
    let (plain, said) = run(folder, htp, "allow-async-init", json!(false));
    let plain = plain.unwrap();
    let beside = "tokenizer read beside the graphs";
    assert!(!said.contains(beside), "{said}");
    let (record, said) = run(folder, htp, "allow-async-init", json!(true));
    assert_eq!(record.unwrap()["tokens"], plain["tokens"]);
    assert!(said.contains(beside) && !said.contains("ignored"), "{said}");
    for alignment in [1, 100, 4096] {
        let (record, said) = run(folder, htp, "data-alignment-size", json!(alignment));
        assert_eq!(record.unwrap()["tokens"], plain["tokens"], "{alignment}");
        assert!(!said.contains("ignored"), "{said}");
    }
    let (record, said) = run(folder, htp, "data-alignment-size", json!(4 << 20));
    let want = "QnnHtp/data-alignment-size: expected at most 2097152 bytes, found 4194304";
    assert!(record.is_none() && said.contains(want), "{said}");
    // The types of its five keys are checked, whatever reads them.
    let batching = json!({"max-slots": 4, "prefill-chunk-size": 64, "mixed-prefill-decode": true, "coalesce-window-us": 50,
        "prefill-only": false});
    assert_eq!(run(folder, "/dialog/engine", "batching", batching).0.unwrap()["tokens"], plain["tokens"]);
    let (record, said) = run(folder, "/dialog/engine", "batching", json!({"max-slots": "four"}));
    assert!(record.is_none() && said.contains("/dialog/engine/batching/max-slots"), "{said}");

    // What is wrong with a tokenizer is said alike.
    std::fs::write(folder.join("bundle/tokenizer.json"), "{").unwrap();
    let (_, plain) = run(folder, htp, "allow-async-init", json!(false));
    let (record, said) = run(folder, htp, "allow-async-init", json!(true));
    let last = |text: &str| text.lines().rev().find(|line| line.contains("error")).map(str::to_owned);
    assert!(record.is_none() && last(&said).is_some() && last(&said) == last(&plain), "{plain}\n{said}");
}
