//! `--json`: a failure is one line of JSON on stdout, with a word that does not change. The text stays on stderr.

use std::path::Path;
use std::process::Output;

use compiler::Family;
use compiler::testmodel::TestModel;
use serde_json::Value;

use crate::program::without_qnn;

fn genie(folder: &Path, args: &[&str]) -> Output {
    without_qnn(folder, args).output().unwrap()
}

fn last_line(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().last().unwrap_or_else(|| panic!("nothing: {}", String::from_utf8_lossy(&output.stderr)));
    serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))
}

/// Issue, part 10: every command, and every kind of failure that can be had cheaply.
#[test]
fn every_command_has_the_json_form() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path();
    TestModel::tiny(Family::Llama).write(&place.join("model")).unwrap();
    let made = genie(place, &["compile", "model", "-o", "bundle", "--ar", "1,8", "--cl", "32", "--json"]);
    assert_eq!(made.status.code(), Some(0), "{}", String::from_utf8_lossy(&made.stderr));
    let record = last_line(&made);
    assert_eq!(record["config"], "bundle/genie_config.json");
    assert!(record["manifest"]["files"].as_array().is_some_and(|files| files.len() >= 3), "{record}");
    std::fs::write(place.join("broken.json"), "{").unwrap();
    let long = vec!["1"; 100].join(",");
    let cases: &[(&[&str], i32, &str)] = &[
        (&["run", "--json", "-c", "nowhere", "-p", "x"], 1, "not-found"),
        (&["run", "--json"], 1, "invalid-argument"),
        (&["run", "--json", "-c", "broken.json", "-p", "x"], 1, "invalid-config"),
        (&["run", "--json", "-c", "bundle", "--prompt-tokens", &long], 1, "context-exceeded"),
        (&["run", "--json", "-c", "bundle", "--prompt-tokens", "99999"], 1, "invalid-token"),
        (&["run", "--json", "-c", "bundle", "-f", "nowhere.txt"], 1, "not-found"),
        (&["run", "--json", "-c", "bundle", "-p", "x", "--backend", "gpu"], 1, "backend-missing"),
        (&["run", "--json", "-c", "bundle", "-p", "x", "--no-such-flag"], 2, "usage"),
        (&["run", "--json", "-n", "many"], 2, "usage"),
        (&["rnu", "--json"], 2, "usage"),
        (&["compile", "--json", "nowhere", "-o", "other"], 1, "not-found"),
        (&["compile", "--json", "model", "-o", "model/inside", "--ar", "0"], 2, "usage"),
        (&["compile", "--json", "model", "-o", "other", "--ar", "64", "--cl", "32"], 1, "invalid-argument"),
        (&["compile", "--json", "model", "-o", "broken.json"], 1, "output-refused"),
        (&["inspect", "--json", "nowhere"], 1, "not-found"),
        (&["plan", "--json", "5", "-c", "nowhere"], 1, "not-found"),
        (&["plan", "--json", "5", "--n-past", "600", "--ar", "1", "--cl", "512"], 1, "context-exceeded"),
        (&["bench", "--json", "-c", "nowhere"], 1, "not-found"),
        (&["bench", "--json", "-c", "bundle", "--reps", "0"], 1, "invalid-argument"),
        (&["verify", "--json", "nowhere"], 1, "not-found"),
        (&["verify", "--json", "bundle", "--lengths", "99"], 1, "invalid-argument"),
        (&["perplexity", "--json", "nowhere.txt"], 1, "not-found"),
        (&["doctor", "--json", "nowhere"], 2, "not-found"),
        (&["doctor", "--json", "--soc", "sm9"], 2, "invalid-argument"),
    ];
    for (args, code, word) in cases {
        let output = genie(place, args);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(*code), "{args:?}: {message}");
        let error = &last_line(&output)["error"];
        assert_eq!(error["code"], *word, "{args:?}: {error}");
        let text = error["message"].as_str().unwrap();
        let mut errors = message.lines().filter_map(|line| line.strip_prefix("error: "));
        assert!(
            !text.is_empty() && errors.any(|line| text.starts_with(line)),
            "{args:?}: `{text}` is not in {message}"
        );
        assert!(error["hint"].is_null() || error["hint"].is_string(), "{error}");
        assert!(error["cause"].as_array().unwrap().iter().all(Value::is_string), "{error}");

        // Without the flag stdout is empty.
        let plain: Vec<&str> = args.iter().copied().filter(|arg| *arg != "--json").collect();
        let output = genie(place, &plain);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(*code), 0), "{plain:?}");
    }
    // A prompt is no flag.
    let output = genie(place, &["run", "--no-such-flag", "--", "--json"]);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0));
}

/// The exit codes stand in `genie --help`.
#[test]
fn help_lists_the_exit_codes() {
    let help = genie(Path::new("/"), &["--help"]);
    let text = String::from_utf8_lossy(&help.stdout).into_owned();
    for code in ["0    done", "1    failed", "2    bad usage", "130  ended by Ctrl-C"] {
        assert!(text.contains(code), "{text}");
    }
}
