//! `genie run --spec lade` and `--spec ssd`, and `genie make-prefix`, on the demo model: the reply stays the same.

use std::process::Output;

use serde_json::{Value, json};

use crate::program::with_cache as run;

fn record(output: &Output) -> Value {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {stderr}"))
}

#[test]
fn replies_by_trees_are_those_without() {
    let cache = tempfile::tempdir().unwrap();
    let words = ["run", "--prompt", "ROMEO: ROMEO: ROMEO:", "-n", "40", "--greedy", "--json"];
    let plain = record(&run(cache.path(), &words));
    let demo = std::fs::read_dir(cache.path()).unwrap().map(|entry| entry.unwrap().path());
    let demo = demo.into_iter().find(|path| path.join("genie_config.json").is_file()).expect("the demo's bundle");
    // The last two entries of the vocabulary are taken for forecast tokens.
    let mut config: Value = serde_json::from_slice(&std::fs::read(demo.join("genie_config.json")).unwrap()).unwrap();
    let n_vocab = config["dialog"]["context"]["n-vocab"].as_u64().unwrap();
    config["dialog"]["context"]["n-vocab"] = json!(n_vocab - 2);
    let with_forecasts = demo.join("with_forecasts.json");
    std::fs::write(&with_forecasts, config.to_string()).unwrap();
    let with_forecasts = with_forecasts.to_str().unwrap();

    let missing = run(cache.path(), &[&words[..], &["-c", with_forecasts, "--spec", "ssd"]].concat());
    let said = String::from_utf8_lossy(&missing.stdout);
    assert!(missing.status.code() != Some(0) && said.contains("kv-cache.primary.qnn-htp"), "{said}");
    let make = ["make-prefix", "-c", with_forecasts, "--tokens", "1,2,3,4", "--json"];
    assert_eq!(record(&run(cache.path(), &make))["forecast_prefix"], json!(4));

    let lade = ["--spec", "lade"];
    let small = ["--spec", "lade:4,2,2"];
    let ssd = ["-c", with_forecasts, "--spec", "ssd"];
    for more in [&lade[..], &small, &ssd] {
        let reply = record(&run(cache.path(), &[&words[..], more].concat()));
        for key in ["tokens", "text", "stop"] {
            assert_eq!(reply[key], plain[key], "{more:?}");
        }
        let n = |key: &str| reply["speculation"][key].as_u64().unwrap();
        assert!(n("rounds") > 0 && n("accepted") <= n("drafted"), "{more:?}: {}", reply["speculation"]);
    }
    // A prompt that a prefix cache keeps: the forecast prefix is not one of its tokens, and stands beside what is restored.
    let folder = tempfile::tempdir().unwrap();
    let kept = ["--prefix-cache", folder.path().to_str().unwrap(), "--prefix-min-tokens", "4"];
    for (at, more) in [&ssd[..], &ssd, &[], &ssd].into_iter().enumerate() {
        let reply = record(&run(cache.path(), &[&words[..], more, &kept].concat()));
        assert_eq!(reply["tokens"], plain["tokens"], "run {at}");
        let n_restored = reply["kpis"]["num-restored-tokens"].as_u64().unwrap();
        assert_eq!(n_restored > 0, at > 0, "run {at}: {n_restored} tokens were restored");
    }
}
