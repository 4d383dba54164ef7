//! Dialogs of type `kv-share` with Qualcomm's library, under policy `genie`.
//!
//! libGenie 1.21 fails at the switch with two HTP engines: an empty cache file, or no cache specification. Up to there the recording
//! is repeated: the prompt's execution and the first token. From there on ours goes on, and is held against `basic`.

use std::path::Path;

use open_genie::{BackendChoice, Options, PolicyChoice, SentenceCode, Session};
use serde_json::{Value, json};

use crate::program::with_users_cache;
use crate::recordings::{self, bundle};

fn cases() -> Vec<Value> {
    let text = std::fs::read_to_string(recordings::folder().join("dialogs").join("kvshare.json")).unwrap();
    serde_json::from_str::<Value>(&text).unwrap()["cases"].as_array().unwrap().clone()
}

/// In a process of its own: files go to the working folder.
fn run(folder: &Path, prompt: &str, flags: &[&str]) -> Value {
    let mut genie = with_users_cache(&["run", "--policy", "genie", "--json", "--backend", "htp", "-c"]);
    let output = genie.arg(folder).args(["--prompt", prompt]).args(flags).current_dir(folder).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {said}"))
}

/// The same dialog with another second engine: the first one's model.
fn with_own_second(config: &Value, in_memory: bool) -> Value {
    let mut config = config.clone();
    let dialog = &mut config["dialog"];
    dialog["engine"][1]["model"] = dialog["engine"][0]["model"].clone();
    dialog["kv-share"] = json!({"enable-in-memory-kv-share": in_memory});
    config
}

fn as_basic(config: &Value) -> Value {
    let mut config = config.clone();
    let dialog = config["dialog"].as_object_mut().unwrap();
    dialog.remove("kv-share");
    dialog.insert("type".into(), "basic".into());
    let mut engine = dialog["engine"][0].clone();
    engine.as_object_mut().unwrap().remove("role");
    dialog.insert("engine".into(), engine);
    config
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn recordings_are_repeated_up_to_the_switch() {
    let mut n = 0;
    for case in cases() {
        let folder = bundle(&case["config"]);
        let in_memory = case["config"]["dialog"]["kv-share"]["enable-in-memory-kv-share"] == true;
        let mut session =
            Session::open(folder.path(), &Options::new().backend(BackendChoice::Htp).policy(PolicyChoice::Genie))
                .unwrap();
        if !in_memory {
            // By files: in a process of its own, below.
            continue;
        }
        for step in case["steps"].as_array().unwrap() {
            let mut said: Vec<(u32, String)> = Vec::new();
            let prompt = step["step"][1].as_str().unwrap();
            let asked = session.dialog_mut().query(prompt, SentenceCode::Complete, |chunk| {
                said.push((chunk.code.number(), chunk.text.to_owned()));
            });
            asked.unwrap();
            assert_eq!(said[0], (1, step["text"][0].as_str().unwrap().to_owned()), "{}", case["name"]);
            let wanted: Vec<&str> =
                step["executions"].as_array().unwrap().iter().map(|e| &e["graph"].as_str().unwrap()[3..]).collect();
            let ran: Vec<String> = session.steps().names().map(str::to_owned).collect();
            assert_eq!(ran, wanted, "the first engine runs the prompt only");
            // libGenie stops here with -6; ours generates on the other engine, one row at a time.
            assert_eq!(said.len(), 9, "8 tokens and the end");
            let second: Vec<&str> = session.second_steps().unwrap().names().collect();
            assert_eq!(second, ["ar1_cl128_1_of_1"; 7]);
            n += 1;
        }
    }
    assert_eq!(n, 1);
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn replies_by_file_and_in_memory_are_those_of_basic() {
    for case in cases() {
        let prompt = case["steps"][0]["step"][1].as_str().unwrap();
        let plain = bundle(&as_basic(&case["config"]));
        let wanted = run(plain.path(), prompt, &["-n", "30"]);
        for in_memory in [false, true] {
            let shared = bundle(&with_own_second(&case["config"], in_memory));
            let found = run(shared.path(), prompt, &["-n", "30"]);
            assert_eq!(found["tokens"], wanted["tokens"], "{}, in memory: {in_memory}", case["name"]);
            let left = shared.path().join("dialog0-kv-share");
            assert_eq!(left.exists(), !in_memory);
            if !in_memory {
                // The prompt's six rows, as libGenie names and writes them.
                let history = std::fs::read(left.join("token-history")).unwrap();
                let ids: Vec<u32> = history.chunks(4).map(|b| u32::from_le_bytes(b.try_into().unwrap())).collect();
                assert_eq!(json!(ids), json!([256, 16, 49, 63, 76, 86]));
                let cache = std::fs::read(left.join("kv-cache.primary.qnn-htp")).unwrap();
                assert_eq!(cache[4..8], 0xC0DEu32.to_le_bytes());
                assert_eq!(cache[14..16], 6u16.to_le_bytes());
            }
        }
    }
}

/// A config over two recorded bundles with the same weights.
fn of_two(primary: &str, secondary: &str, in_memory: bool) -> tempfile::TempDir {
    let read = |name: &str| -> Value {
        let folder = recordings::folder().join(name);
        let mut config: Value =
            serde_json::from_slice(&std::fs::read(folder.join("genie_config.json")).unwrap()).unwrap();
        let dialog = &mut config["dialog"];
        dialog["tokenizer"]["path"] = json!(folder.join(dialog["tokenizer"]["path"].as_str().unwrap()));
        for bin in dialog["engine"]["model"]["binary"]["ctx-bins"].as_array_mut().unwrap() {
            *bin = json!(folder.join(bin.as_str().unwrap()));
        }
        config
    };
    let (mut config, other) = (read(primary), read(secondary));
    let dialog = &mut config["dialog"];
    {
        let (mut first, mut second) = (dialog["engine"].clone(), other["dialog"]["engine"].clone());
        (first["role"], second["role"]) = (json!("primary"), json!("secondary"));
        dialog["engine"] = json!([first, second]);
        dialog["type"] = json!("kv-share");
        dialog["kv-share"] = json!({"enable-in-memory-kv-share": in_memory});
    }
    dialog["sampler"] = json!({"version": 1, "seed": 42, "temp": 0.8, "top-k": 1, "top-p": 0.95});
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("genie_config.json"), config.to_string()).unwrap();
    folder
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn uint8_and_float16_caches_become_each_other() {
    const PROMPT: &str = "\u{10}1?LV";
    let tokens = |folder: &Path| -> Vec<u64> {
        let record = run(folder, PROMPT, &["-n", "16"]);
        record["tokens"].as_array().unwrap().iter().map(|token| token.as_u64().unwrap()).collect()
    };
    let alone = |name: &str| {
        let folder = of_two(name, name, true);
        let mut config: Value =
            serde_json::from_slice(&std::fs::read(folder.path().join("genie_config.json")).unwrap()).unwrap();
        config = as_basic(&config);
        std::fs::write(folder.path().join("genie_config.json"), config.to_string()).unwrap();
        tokens(folder.path())
    };
    let (half, byte) = (alone("fp16_ar1_32_cl128"), alone("w8a16"));
    for in_memory in [true, false] {
        // The same cache on both sides: nothing is lost.
        assert_eq!(tokens(of_two("w8a16", "w8a16", in_memory).path()), byte);
        assert_eq!(tokens(of_two("fp16_ar1_32_cl128", "fp16_ar1_32_cl128", in_memory).path()), half);
        // The secondary continues on a prompt that the other has quantised.
        let (widened, narrowed) = (
            tokens(of_two("w8a16", "fp16_ar1_32_cl128", in_memory).path()),
            tokens(of_two("fp16_ar1_32_cl128", "w8a16", in_memory).path()),
        );
        let same = |a: &[u64], b: &[u64]| a.iter().zip(b).take_while(|(a, b)| a == b).count();
        println!("{half:?}\n{byte:?}\n{widened:?}\n{narrowed:?}");
        assert!(same(&widened, &half) >= 4 || same(&widened, &byte) >= 4, "{widened:?}: {half:?} or {byte:?}");
        assert!(same(&narrowed, &byte) >= 4 || same(&narrowed, &half) >= 4, "{narrowed:?}: {byte:?} or {half:?}");
    }
}
