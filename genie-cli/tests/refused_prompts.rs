//! A prompt that is refused ends `genie run --json` with the record of a reply: no tokens, Genie's status, and the error.

use std::path::Path;
use std::process::Output;

use compiler::Family;
use compiler::testmodel::TestModel;
use serde_json::{Value, json};

use crate::program::without_qnn;

fn genie(folder: &Path, args: &[&str]) -> Output {
    without_qnn(folder, args).output().unwrap()
}

fn only_line(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(text.lines().count(), 1, "{text}{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_str(&text).unwrap()
}

#[test]
fn a_refused_prompt_ends_with_the_record() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path();
    TestModel::tiny(Family::Llama).write(&place.join("model")).unwrap();
    let made = genie(place, &["compile", "model", "-o", "bundle", "--ar", "8", "--cl", "32"]);
    assert_eq!(made.status.code(), Some(0), "{}", String::from_utf8_lossy(&made.stderr));
    std::fs::write(place.join("empty.txt"), "").unwrap();
    std::fs::write(place.join("latin1.txt"), b"caf\xe9").unwrap();
    std::fs::write(place.join("huge.txt"), "a ".repeat(1 << 20)).unwrap();
    let long = vec!["1"; 100].join(",");
    // 27 tokens and BOS: in the context, but behind the last step of 8 tokens that fits; only libGenie's plan ends there.
    let tail = vec!["1"; 27].join(",");
    let run = |more: &[&str]| genie(place, &[&["run", "--json", "-c", "bundle", "-n", "2"], more].concat());
    let cases: &[(&[&str], i32, &str, &str)] = &[
        (&["--prompt-tokens", &long], 4, "context-limit", "context-exceeded"),
        (&["-f", "huge.txt"], 4, "context-limit", "context-exceeded"),
        (&["--prompt-tokens", &tail, "--policy", "genie"], 4, "context-limit", "context-exceeded"),
        (&["--prompt-tokens", "99999"], -6, "failed", "invalid-token"),
        (&["-f", "empty.txt"], -6, "failed", "invalid-argument"),
        (&["-f", "latin1.txt"], -6, "failed", "invalid-argument"),
    ];
    for (args, status, stop, code) in cases {
        let output = run(args);
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        let record = only_line(&output);
        assert_eq!((&record["status"], &record["stop"]), (&json!(status), &json!(stop)), "{args:?}: {record}");
        assert_eq!(record["error"]["code"], *code, "{args:?}: {record}");
        assert_eq!((&record["tokens"], &record["text"]), (&json!([]), &json!("")), "{args:?}: {record}");
        assert!(record["input"].is_array(), "{args:?}: {record}");
        assert_eq!(record["kpis"]["num-generated-tokens"], 0, "{record}");
        assert!(record["executed"].is_array(), "{record}");
    }
    // The same keys as those of a reply, and `error`.
    let keys = |record: &Value| record.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let mut refused = keys(&only_line(&run(&["--prompt-tokens", &long])));
    refused.retain(|key| key != "error");
    assert_eq!(refused, keys(&only_line(&run(&["--prompt-tokens", "1,2"]))));
}
