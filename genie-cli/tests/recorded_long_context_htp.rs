//! Long context with Qualcomm's library: what libGenie was recorded to say for windows, cache groups and scattered caches,
//! through `genie run -c` and nothing else.

use std::path::Path;
use std::process::Output;

use serde_json::Value;

use crate::program::with_users_cache;
use crate::recordings;

fn json(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn tokens(list: &Value) -> Vec<u64> {
    list.as_array().into_iter().flatten().map(|id| id.as_u64().unwrap()).collect()
}

/// The graphs of a log of `["exec NAME", times]`, as `genie run --json` counts them; `None` where none was recorded.
fn graphs(log: &Value) -> Option<Vec<(String, u64)>> {
    let mut runs: Vec<(String, u64)> = Vec::new();
    for line in log.as_array()? {
        let Some(name) = line[0].as_str().and_then(|text| text.strip_prefix("exec ")) else { continue };
        let n = line[1].as_u64().unwrap();
        match runs.last_mut() {
            Some((last, sum)) if last == name => *sum += n,
            _ => runs.push((name.to_owned(), n)),
        }
    }
    Some(runs)
}

fn genie(args: &[&str]) -> Output {
    // Some recorded configs have dumps on, which go into the current folder.
    let here = tempfile::tempdir().unwrap();
    with_users_cache(args).current_dir(here.path()).output().unwrap()
}

/// A bundle of the recordings with another config, in a folder of its own.
fn bundle_with(config: &Value, dir: &Path) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|ext| ext != "json") || path.ends_with("tokenizer.json") {
            std::os::unix::fs::symlink(&path, folder.path().join(path.file_name().unwrap())).unwrap();
        }
    }
    std::fs::write(folder.path().join("genie_config.json"), config.to_string()).unwrap();
    folder
}

/// Whether a config has long context or cache groups.
fn concerns(config: &Value) -> bool {
    let engine = &config["dialog"]["engine"];
    engine.get("longcontext").is_some() || engine.get("cache-groups").is_some()
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn every_recording_of_windows_groups_and_scatter_is_repeated() {
    let mut n_cases = 0;
    for entry in std::fs::read_dir(recordings::folder()).unwrap() {
        let dir = entry.unwrap().path();
        let (cases, own) = (dir.join("cases.json"), dir.join("genie_config.json"));
        if !cases.is_file() || !own.is_file() {
            continue;
        }
        let own = json(&own);
        let scatters = dir.to_string_lossy().contains("scatter");
        for case in json(&cases).as_array().unwrap() {
            let config = if case["config"].is_object() { &case["config"] } else { &own };
            if !(scatters || concerns(config)) {
                continue;
            }
            let what = format!("{}, {}", dir.display(), case["case"]);
            let bundle = bundle_with(config, &dir);
            let path = bundle.path().join("genie_config.json");
            let prompt = tokens(&case["prompt"]).iter().map(u64::to_string).collect::<Vec<_>>().join(",");
            let args = ["run", "-c", path.to_str().unwrap(), "--prompt-tokens", &prompt, "--policy", "genie", "--json"];
            let output = genie(&args);
            let said = String::from_utf8_lossy(&output.stderr);
            let record: Value =
                serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{what}: {e}: {said}"));
            assert_eq!(tokens(&record["tokens"]), tokens(&case["tokens"]), "{what}: {said}");
            if tokens(&case["tokens"]).is_empty() {
                assert_eq!((output.status.code(), case["rc"].as_i64()), (Some(1), Some(4)), "{what}: {said}");
            } else {
                assert_eq!(record["status"], case["rc"], "{what}: {said}");
                if let Some(graphs) = graphs(&case["executed"]) {
                    assert_eq!(record["executed"], serde_json::json!(graphs), "{what}");
                }
            }
            n_cases += 1;
        }
    }
    assert!(n_cases >= 8, "{n_cases} cases of windows, groups and scatter");
}
