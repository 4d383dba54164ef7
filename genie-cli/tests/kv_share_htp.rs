//! `kv-share` across backends: the prompt by Qualcomm's library, the reply by the embedded backend.

use std::path::Path;

use compiler::Family;
use compiler::testmodel::TestModel;
use serde_json::{Value, json};

use crate::program::with_users_cache;

fn genie(folder: &Path, args: &[&str]) -> Value {
    let output = with_users_cache(args).current_dir(folder).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{args:?}: {said}");
    serde_json::from_slice(&output.stdout).unwrap_or(Value::Null)
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn the_htp_takes_the_prompt_and_the_cpu_replies() {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    TestModel::tiny(Family::Llama).write(&place.path().join("model")).unwrap();
    genie(place.path(), &["compile", "model", "-o", "npu", "--ar", "1,8", "--cl", "64", "--soc", "sm8650"]);
    genie(place.path(), &["compile", "model", "-o", "cpu", "--ar", "1", "--cl", "128", "--precision", "f32"]);
    let read = |bundle: &str| -> Value {
        let text = std::fs::read(Path::new(&path(bundle)).join("genie_config.json")).unwrap();
        serde_json::from_slice(&text).unwrap()
    };
    let engine = |bundle: &str, role: &str| {
        let mut engine = read(bundle)["dialog"]["engine"].clone();
        engine["role"] = json!(role);
        for bin in engine["model"]["binary"]["ctx-bins"].as_array_mut().unwrap() {
            *bin = json!(format!("{}/{}", path(bundle), bin.as_str().unwrap()));
        }
        if let Some(extensions) = engine["backend"].get("extensions").and_then(Value::as_str) {
            engine["backend"]["extensions"] = json!(format!("{}/{extensions}", path(bundle)));
        }
        engine
    };
    let mut config = read("npu");
    let dialog = &mut config["dialog"];
    dialog["engine"] = json!([engine("npu", "primary"), engine("cpu", "secondary")]);
    dialog["type"] = json!("kv-share");
    dialog["tokenizer"]["path"] = json!(format!("{}/{}", path("npu"), dialog["tokenizer"]["path"].as_str().unwrap()));
    for in_memory in [true, false] {
        config["dialog"]["kv-share"] = json!({"enable-in-memory-kv-share": in_memory});
        std::fs::write(place.path().join("shared.json"), config.to_string()).unwrap();
        let mut same = 0;
        for prompt in ["40,41,42,43,44", "7,300,12", "100,90,80,70,60,50,40,30,20,10"] {
            let ask = |bundle: &str| {
                let flags = ["run", "-c", bundle, "--prompt-tokens", prompt, "-n", "8", "--greedy", "--json"];
                let record = genie(place.path(), &flags);
                let tokens: Vec<u64> = serde_json::from_value(record["tokens"].clone()).unwrap();
                (tokens, record["executed"].clone())
            };
            let (shared, alone) = (ask("shared.json"), ask("cpu"));
            // The NPU ran the prompt and nothing else.
            let wide = shared.1.as_array().unwrap();
            assert!(wide.iter().all(|run| run[0] == "ar8_cl64_1_of_1"), "{wide:?}");
            same += shared.0.iter().zip(&alone.0).take_while(|(a, b)| a == b).count();
        }
        assert!(same >= 20, "{same} of 24 tokens are those of the CPU alone");
    }
}
