//! Position kinds from the command line: scaled models compile and run, numbers that cannot be and encodings that do not fit the
//! graphs are refused by their key, and doctor finds them from the files.

use std::path::Path;
use std::process::Output;

use compiler::Family;
use compiler::testmodel::TestModel;
use serde_json::{Value, json};

use crate::program::without_qnn;

const POSITIONS: &str = "/dialog/engine/model/positional-encoding";

fn genie(folder: &Path, args: &[&str]) -> Output {
    without_qnn(folder, args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn done(folder: &Path, args: &[&str]) -> String {
    let output = genie(folder, args);
    assert_eq!(output.status.code(), Some(0), "{args:?}: {}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

/// A folder with `model`, whose config has that scaling, and the bundle `base`.
fn compiled(scaling: Value) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("model");
    TestModel { max_positions: 128, ..TestModel::tiny(Family::Qwen2) }.write(&model).unwrap();
    let mut config: Value = serde_json::from_slice(&std::fs::read(model.join("config.json")).unwrap()).unwrap();
    config["rope_scaling"] = scaling;
    std::fs::write(model.join("config.json"), config.to_string()).unwrap();
    done(folder.path(), &["compile", "model", "-o", "base", "--ar", "1,8", "--cl", "64", "-q"]);
    folder
}

fn config(folder: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(folder.join("base/genie_config.json")).unwrap()).unwrap()
}

/// Writes `base/changed.json` with another positional encoding.
fn change(folder: &Path, encoding: Value) {
    let mut config = config(folder);
    *config.pointer_mut(POSITIONS).unwrap() = encoding;
    std::fs::write(folder.join("base/changed.json"), config.to_string()).unwrap();
}

const RUN: [&str; 7] = ["run", "-p", "a prompt of some length", "-n", "12", "--greedy", "-c"];

fn run(folder: &Path, config: &str) -> String {
    done(folder, &[&RUN[..], &[config]].concat())
}

#[test]
fn scaled_models_compile_run_and_are_in_order() {
    let ones = vec![1.0; 8];
    let sixes = vec![6.0; 8];
    let scalings = [
        json!({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}),
        json!({"type": "longrope", "short_factor": ones, "long_factor": sixes, "original_max_position_embeddings": 32}),
    ];
    for scaling in scalings {
        let folder = compiled(scaling.clone());
        let base = folder.path();
        let written = config(base).pointer(POSITIONS).unwrap().clone();
        let kind = if scaling["type"] == "longrope" { "longrope" } else { "yarnrope" };
        assert_eq!(written["rope-scaling"]["rope-type"], kind);
        let output = run(base, "base/genie_config.json");
        // Without the scaling the same weights say something else.
        let mut plain = written.clone();
        plain.as_object_mut().unwrap().remove("rope-scaling");
        change(base, plain);
        assert_ne!(run(base, "base/changed.json"), output, "{kind} has an effect");
        let report = done(base, &["doctor", "base"]);
        assert!(!report.contains("position") && !report.contains("rope") && !report.contains("yarn"), "{report}");
    }
}

#[test]
fn a_dialog_of_short_factors_is_not_restored_with_long_ones() {
    let folder = compiled(json!({"type": "longrope", "short_factor": vec![1.0; 8], "long_factor": vec![6.0; 8],
        "original_max_position_embeddings": 32}));
    let base = folder.path();
    let short = ["base/genie_config.json", "--context-size", "32"];
    let say = ["run", "-p", "ab", "-n", "2", "--greedy", "-c"];
    done(base, &[&say[..], &short, &["--save", "saved"]].concat());
    let restored = |context: &[&str]| genie(base, &[&say[..], context, &["--restore", "saved"]].concat());
    let same = restored(&short);
    assert_eq!(same.status.code(), Some(0), "{}", text(&same.stderr));
    let long = restored(&["base/genie_config.json"]);
    assert_eq!(long.status.code(), Some(1), "{}", text(&long.stdout));
    let said = text(&long.stderr);
    assert!(said.contains("saved with the other factors of `longrope`") && said.contains("--context-size"), "{said}");
}

#[test]
fn what_does_not_fit_is_refused_by_its_key_and_found_by_doctor() {
    let folder = compiled(Value::Null);
    let base = folder.path();
    let rope = |scaling: Value| json!({"type": "rope", "rope-dim": 8, "rope-theta": 10000, "rope-scaling": scaling});
    let cases = [
        (
            rope(json!({"rope-type": "linear", "factor": 0})),
            "rope-scaling/factor: expected a finite number above 0, found 0",
            "config-schema",
        ),
        (
            rope(json!({"rope-type": "longrope", "factor": 4, "original-max-position-embeddings": 32,
                "short-factor": [1], "long-factor": [1]})),
            "rope-scaling/short-factor: expected 8 numbers, one for each angle of `rope-dim`, found 1",
            "config-schema",
        ),
        (
            json!({"type": "absolute"}),
            "the graphs take `position_ids_cos` and `position_ids_sin` of width 8, but no rotary positions are configured",
            "position-inputs",
        ),
        (
            json!([{"type": "rope", "rope-dim": 8}, {"type": "rope", "rope-dim": 8, "prefix": "swa_"}]),
            "positional encoding `rope` is configured, but no graph takes `swa_position_ids_cos`",
            "position-inputs",
        ),
    ];
    for (encoding, error, rule) in cases {
        change(base, encoding.clone());
        let output = genie(base, &[&RUN[..], &["base/changed.json"]].concat());
        assert_eq!(output.status.code(), Some(1), "{encoding}");
        assert!(text(&output.stderr).contains(error), "{encoding}: {}", text(&output.stderr));
        std::fs::copy(base.join("base/genie_config.json"), base.join("kept.json")).unwrap();
        std::fs::copy(base.join("base/changed.json"), base.join("base/genie_config.json")).unwrap();
        let report = text(&genie(base, &["doctor", "base"]).stdout);
        std::fs::copy(base.join("kept.json"), base.join("base/genie_config.json")).unwrap();
        assert!(report.contains(rule), "{encoding}: {report}");
    }
    // Zeros where positions belong, as libGenie feeds them: it runs, and doctor says what is wrong.
    change(base, json!({"type": "none"}));
    run(base, "base/changed.json");
}
