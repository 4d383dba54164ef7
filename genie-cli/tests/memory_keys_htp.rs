//! Keys that save memory on a chip, with Qualcomm's library: the emulator refuses them, so the binaries are loaded without, and a
//! warning names the key. libGenie ends there.

use serde_json::{Value, json};

use crate::program::with_users_cache;
use crate::recordings;

/// The tokens of a run with those keys of `QnnHtp`, and what was said.
fn run(keys: &Value) -> (Value, String) {
    let (dir, folder) = (recordings::folder().join("fp16_split2"), tempfile::tempdir().unwrap());
    let mut config: Value =
        serde_json::from_str(&std::fs::read_to_string(dir.join("genie_config.json")).unwrap()).unwrap();
    for file in ["decoder.bin", "lmhead.bin", "tokenizer.json"] {
        std::os::unix::fs::symlink(dir.join(file), folder.path().join(file)).unwrap();
    }
    for (key, value) in keys.as_object().unwrap() {
        config["dialog"]["engine"]["backend"]["QnnHtp"][key] = value.clone();
    }
    std::fs::write(folder.path().join("genie_config.json"), config.to_string()).unwrap();
    let mut command = with_users_cache(&["run", "--prompt-tokens", "94,47,33", "-n", "6", "--greedy", "--json", "-c"]);
    let output = command.arg(folder.path()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let record: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {said}"));
    (record["tokens"].clone(), said)
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn what_the_library_refuses_is_left_out_with_a_warning() {
    let (plain, said) = run(&json!({}));
    assert!(!said.contains("loaded without"), "{said}");
    for (keys, named) in [
        (json!({"spill-fill-bufsize": 1_000_000}), "`spill-fill-bufsize`"),
        (json!({"enable-graph-switching": true}), "`enable-graph-switching`"),
        (
            json!({"enable-graph-switching": true, "graph-retention-order": ["ar1_cl128_1_of_2"]}),
            "`enable-graph-switching`, `graph-retention-order`",
        ),
    ] {
        let (tokens, said) = run(&keys);
        assert_eq!(tokens, plain, "{keys}");
        assert!(said.contains(&format!("decoder.bin: loaded without {named}: ")), "{keys}: {said}");
    }
}
