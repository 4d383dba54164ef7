//! What a user has of binaries loaded on demand, of dumped tensors and of the times at the end of a run.

use std::process::Output;

use serde_json::{Value, json};

use crate::program::{compiled, done};

/// A folder with a bundle of two splits.
fn bundle() -> tempfile::TempDir {
    compiled(&["--ar", "1,8", "--cl", "64", "--splits", "lut-decoder-lmhead"])
}

const RUN: [&str; 8] = ["run", "-c", "bundle", "--prompt-tokens", "12,7,9,3,1", "-n", "3", "--greedy"];

fn tokens(output: &Output) -> Value {
    serde_json::from_slice::<Value>(&output.stdout).unwrap()["tokens"].clone()
}

#[test]
fn binaries_on_demand_change_no_token() {
    let folder = bundle();
    let kept = done(folder.path(), &[&RUN[..], &["--json"]].concat());
    let freed = done(folder.path(), &[&RUN[..], &["--json", "--dynamic-load"]].concat());
    assert_eq!(tokens(&freed), tokens(&kept));
    assert_eq!(tokens(&kept).as_array().unwrap().len(), 3);
}

#[test]
fn the_debug_block_dumps_tensors_where_the_program_was_started() {
    let folder = bundle();
    let config = folder.path().join("bundle/genie_config.json");
    let mut changed: Value = serde_json::from_slice(&std::fs::read(&config).unwrap()).unwrap();
    changed["dialog"]["debug"] = json!({"path": "out", "dump-tensors": true, "dump-outputs": true, "dump-specs": true});
    let path = folder.path().join("bundle/with_debug.json");
    std::fs::write(&path, changed.to_string()).unwrap();
    let plain = done(folder.path(), &[&RUN[..], &["--json"]].concat());
    let mut args = RUN;
    args[2] = "bundle/with_debug.json";
    let dumped = done(folder.path(), &[&args[..], &["--json"]].concat());
    assert_eq!(tokens(&dumped), tokens(&plain));
    let out = folder.path().join("out/text_primary");
    let first = std::fs::read_dir(&out).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    let names: Vec<String> = first.collect();
    let ids = names.iter().map(|name| out.join(name).join("000_in_input_ids")).find(|path| path.exists());
    let ids = std::fs::read(ids.unwrap_or_else(|| panic!("{names:?}"))).unwrap();
    let record: Value = serde_json::from_slice(&plain.stdout).unwrap();
    let input = record["input"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32);
    let want: Vec<u8> = input.flat_map(u32::to_le_bytes).collect();
    assert_eq!(want.len(), 6 * 4, "BOS and the prompt");
    assert_eq!(ids[..want.len()], want);
    assert!(names.iter().any(|name| name.starts_with("spec.")), "{names:?}");
    assert_eq!(std::fs::read_dir(out.join("logits")).unwrap().count(), 3);
}

#[test]
fn stats_end_with_the_line_of_libgenies_log() {
    let folder = bundle();
    let output = done(folder.path(), &[&RUN[..], &["--stats", "--save", "saved"]].concat());
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let line = text.lines().last().unwrap();
    assert!(line.starts_with("init:[last:") && line.contains("] prompt:[last:"), "{text}");
    assert!(line.contains("(msec) count:1] generate:[last:") && line.contains("]  tps-prompt:"), "{text}");
}
