//! The output and exit codes of `genie doctor`.

use std::path::{Path, PathBuf};
use std::process::Output;

use compiler::Family;
use compiler::testmodel::TestModel;
use serde_json::{Value, json};

use crate::program::without_qnn;

/// `genie` in an environment without QNN libraries.
fn genie(folder: &Path, args: &[&str]) -> Output {
    without_qnn(folder, args).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or_else(|| panic!("killed: {}", text(&output.stderr)))
}

/// A compiled bundle in that folder.
fn bundle(folder: &Path) -> PathBuf {
    TestModel::tiny(Family::Llama).write(&folder.join("model")).unwrap();
    let output = genie(folder, &["compile", "model", "-o", "bundle", "--ar", "1,8", "--cl", "32", "-q"]);
    assert_eq!(code(&output), 0, "{}", text(&output.stderr));
    folder.join("bundle")
}

fn edit(bundle: &Path, pointer: &str, value: Value) {
    let path = bundle.join("genie_config.json");
    let mut config: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    *config.pointer_mut(pointer).unwrap() = value;
    std::fs::write(path, config.to_string()).unwrap();
}

fn ids(report: &Value) -> Vec<&str> {
    report["findings"].as_array().unwrap().iter().map(|finding| finding["id"].as_str().unwrap()).collect()
}

#[test]
fn good_bundles_exit_with_0_and_broken_ones_with_1() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = bundle(folder.path());
    for subject in ["bundle", "bundle/genie_config.json", "bundle/model.bin"] {
        let good = genie(folder.path(), &["doctor", subject]);
        assert_eq!((code(&good), text(&good.stderr)), (0, ""), "{subject}: {}", text(&good.stdout));
        assert!(text(&good.stdout).ends_with("\nno problems found\n"), "{}", text(&good.stdout));
    }

    edit(&bundle, "/dialog/context/size", json!(4096));
    let broken = genie(folder.path(), &["doctor", "bundle"]);
    assert_eq!((code(&broken), text(&broken.stderr)), (1, ""));
    let want = "error[context-size] genie_config.json /dialog/context/size: 4096 tokens, but the graphs have CL-32\n";
    assert!(text(&broken.stdout).contains(want), "{}", text(&broken.stdout));
    assert!(text(&broken.stdout).ends_with("\n1 error, 0 warnings\n"), "{}", text(&broken.stdout));
}

#[test]
fn json_is_one_document() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = bundle(folder.path());
    edit(&bundle, "/dialog/engine/backend/QnnHtp/kv-dim", json!(99));
    let output = genie(folder.path(), &["doctor", "bundle", "--json", "--soc", "sm8650", "--genie-api", "1.0"]);
    assert_eq!(code(&output), 1);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(ids(&report), ["config-api", "config-api", "kv-dim"]);
    assert_eq!((&report["errors"], &report["warnings"]), (&json!(2), &json!(1)));
    let device = json!({"name": "SM8650", "soc": 57, "dsp_arch": 75, "vtcm_mb": 8, "here": false});
    assert_eq!((&report["device"], &report["genie_api"]), (&device, &json!("1.0")));
    assert_eq!(
        report["bundle"]["binaries"][0]["graphs"],
        json!(["ar1_cl32_1_of_2", "ar8_cl32_1_of_2", "ar1_cl32_2_of_2", "ar8_cl32_2_of_2"])
    );
    for key in ["id", "severity", "at", "what", "why", "do"] {
        assert!(report["findings"][0][key].as_str().is_some_and(|text| !text.is_empty()), "{key}");
    }

    // A warning alone is no failure without `--strict`.
    let warned = genie(folder.path(), &["doctor", "bundle", "--json"]);
    assert_eq!((code(&warned), ids(&serde_json::from_slice(&warned.stdout).unwrap())), (0, vec!["kv-dim"]));
    assert_eq!(code(&genie(folder.path(), &["doctor", "bundle", "--strict"])), 1);
}

#[test]
fn without_a_bundle_the_machine_is_checked() {
    let folder = tempfile::tempdir().unwrap();
    let output = genie(folder.path(), &["doctor", "--json"]);
    assert_eq!(code(&output), 0, "{}", text(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["bundle"], &report["machine"]["arch"]), (&Value::Null, &json!(std::env::consts::ARCH)));
    assert_eq!(code(&genie(folder.path(), &["doctor", "--soc", "sm8250"])), 1, "V66");
}

#[test]
fn invalid_flags_exit_with_2() {
    let folder = tempfile::tempdir().unwrap();
    for (args, want) in [
        (&["doctor", "nowhere"][..], "nowhere` does not exist"),
        (&["doctor", "--soc", "sm9"], "unknown SoC `sm9`"),
        (&["doctor", "--genie-api", "new"], "`new` is no version of the Genie API"),
        (&["doctor", "--libs", "nowhere"], "nowhere` does not exist"),
        (&["doctor", "--no-such-flag"], "unexpected argument"),
    ] {
        let output = genie(folder.path(), args);
        assert_eq!((code(&output), text(&output.stdout)), (2, ""), "{args:?}");
        assert!(text(&output.stderr).contains(want), "{}", text(&output.stderr));
    }
}
