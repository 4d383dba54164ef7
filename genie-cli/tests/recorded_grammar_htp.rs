//! Grammars with Qualcomm's library: what libGenie was recorded to say under a grammar, through `genie run -c` and nothing else.
//!
//! Where a recording is marked as what a correct engine says, tokens and executed graphs are equal. Elsewhere libGenie has lost
//! the token before a jump, or refuses; the text up to there is equal, and the rest follows the grammar.

use std::path::Path;
use std::process::Output;

use serde_json::Value;

use crate::program::with_users_cache;
use crate::recordings;

fn genie(args: &[String]) -> Output {
    with_users_cache(&[]).args(args).output().unwrap()
}

fn ids(list: &Value) -> Vec<u64> {
    list.as_array().into_iter().flatten().map(|id| id.as_u64().unwrap()).collect()
}

/// The graphs of recorded executions, as `genie run --json` counts them: names without the context, runs in a row.
fn graphs(executions: &Value) -> Vec<(String, u64)> {
    let mut runs: Vec<(String, u64)> = Vec::new();
    for execution in executions.as_array().unwrap() {
        let name = execution["graph"].as_str().unwrap();
        let name = name.split_once(':').map_or(name, |(_, name)| name);
        match runs.last_mut() {
            Some((last, n)) if last == name => *n += 1,
            _ => runs.push((name.to_owned(), 1)),
        }
    }
    runs
}

/// A step's prompt as flags, if it is a query.
fn prompt(step: &Value) -> Option<[String; 2]> {
    match step[0].as_str()? {
        "tokens" => {
            let list = ids(&step[1]).iter().map(u64::to_string).collect::<Vec<_>>().join(",");
            Some(["--prompt-tokens".into(), list])
        }
        "query" => Some(["--prompt".into(), step[1].as_str()?.into()]),
        _ => None,
    }
}

fn run(config: &Path, prompt: &[String], more: &[String]) -> (Output, Value) {
    let config = config.join("genie_config.json").to_str().unwrap().to_owned();
    let fixed = ["run", "-c", &config, "--policy", "genie", "--json"].map(str::to_owned);
    let output = genie(&[&fixed[..], prompt, more].concat());
    let record = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| {
        panic!("{}: {e}: {}", config, String::from_utf8_lossy(&output.stderr));
    });
    (output, record)
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn recorded_replies_under_a_grammar_are_repeated() {
    let dialogs = recordings::folder().join("dialogs");
    let text = std::fs::read_to_string(dialogs.join("grammar.json")).unwrap();
    let document: Value = serde_json::from_str(&text).unwrap();
    let (mut n_equal, mut n_refused) = (0, 0);
    for case in document["cases"].as_array().unwrap() {
        let name = case["name"].as_str().unwrap();
        let config = recordings::bundle(&case["config"]);
        if case["create_error"].is_string() {
            let (output, record) = run(config.path(), &["--prompt".into(), "a".into()], &[]);
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "{name}: {said}");
            assert!(said.contains("malformed at line 1, column "), "{name}: {said}");
            assert_eq!(record["code"], Value::Null, "{name}");
            n_refused += 1;
            continue;
        }
        // A grammar that is set between queries is the flag of another run; the first query of a recording is a run of its own.
        let Some(step) = case["steps"].as_array().unwrap().iter().find(|step| prompt(&step["step"]).is_some()) else {
            panic!("{name}: no query")
        };
        let set = case["steps"][0]["step"].as_array().filter(|step| step[0] == "grammar");
        let more: Vec<String> = set
            .map(|step| {
                assert_eq!(step[1], "ebnf", "{name}");
                let file = dialogs.join(step[2].as_str().unwrap());
                vec!["--grammar-file".to_owned(), file.to_str().unwrap().to_owned()]
            })
            .unwrap_or_default();
        let (output, record) = run(config.path(), &prompt(&step["step"]).unwrap(), &more);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(record["status"], step["rc"], "{name}: {said}");
        let jumps = step["log"].as_array().unwrap().iter().any(|line| line.as_str().unwrap().contains("[JumpForward]"));
        if step["tokens"].is_array() {
            // The tokens themselves are what the grammar and the likeliest tokens leave; up to a jump they are certain.
            assert_eq!(ids(&record["tokens"]), ids(&step["tokens"]), "{name}: {said}");
        } else {
            let recorded: String =
                step["text"].as_array().unwrap().iter().map(|piece| piece.as_str().unwrap()).collect();
            let n = if name == "json_schema" { "{\n\t \n\t\t\t\t \"name".len() } else { recorded.len() };
            let said = record["text"].as_str().unwrap();
            assert_eq!(said.get(..n), recorded.get(..n), "{name}");
        }
        if !jumps {
            assert_eq!(record["executed"], serde_json::json!(graphs(&step["executions"])), "{name}");
            assert_eq!(
                case["matches_a_correct_engine"], true,
                "{name}: libGenie loses no token where it does not jump"
            );
        }
        n_equal += 1;
    }
    assert!(n_equal >= 15 && n_refused >= 4, "{n_equal} replies, {n_refused} refusals");
}
