//! Text encoders with Qualcomm's library: what libGenie was recorded to give, through `genie embed`.

use serde_json::Value;

use crate::program::with_users_cache;
use crate::recordings;

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn every_recorded_embedding_is_repeated() {
    let recorded: Value =
        serde_json::from_slice(&std::fs::read(recordings::folder().join("dialogs").join("embedding.json")).unwrap())
            .unwrap();
    let here = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(recordings::folder().join("dialogs").join("models"), here.path().join("models"))
        .unwrap();
    let cases = recorded["cases"].as_array().unwrap();
    assert!(cases.len() >= 8, "{}", cases.len());
    for case in cases {
        let name = case["name"].as_str().unwrap();
        let config = here.path().join(format!("{name}.json"));
        std::fs::write(&config, case["config"].to_string()).unwrap();
        let args = ["embed", "-c", config.to_str().unwrap(), "--json", case["text"].as_str().unwrap()];
        let output = with_users_cache(&args).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        let result = &case["result"];
        let works = result["create_rc"] == 0 && result["rc"] == 0;
        assert_eq!(output.status.success(), works, "{name}: {said}");
        if !works {
            continue;
        }
        let found: Value = serde_json::from_slice(&output.stdout).unwrap();
        let wanted = &result["callbacks"][0];
        assert_eq!(found["dims"], wanted["dims"], "{name}");
        // Recorded values are rounded, and of several vectors the first alone is there.
        for (i, want) in wanted["values"].as_array().unwrap().iter().enumerate() {
            let (value, want) = (found["values"][i].as_f64().unwrap(), want.as_f64().unwrap());
            assert!((value - want).abs() < 1e-6, "{name}: value {i} is {value}, recorded {want}");
        }
        let ids = case["inputs"][0]["input_ids"].as_array().unwrap();
        let tokens = found["tokens"].as_array().unwrap();
        assert_eq!(ids[ids.len() - tokens.len()..], tokens[..], "{name}");
    }
}
