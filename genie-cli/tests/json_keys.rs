//! `--json`: the keys of every command have one style. Objects in Genie's own words keep them: `kpis`, the bundle's manifest.

use std::path::Path;
use std::process::Output;

use compiler::Family;
use compiler::testmodel::TestModel;
use serde_json::Value;

use crate::program::without_qnn;

/// What has no record: it prints text for people or for shells, or serves until a signal.
const WITHOUT_RECORD: [&str; 5] = ["chat", "serve", "completions", "man", "help"];
/// Objects whose keys are Genie's.
const OF_GENIE: [&str; 2] = ["kpis", "manifest"];

fn genie(place: &Path, args: &[&str]) -> Output {
    let mut genie = without_qnn(place, args);
    genie.env("GENIE_MODELS", place.join("models")).env("GENIE_TOML", place.join("genie.toml")).output().unwrap()
}

/// The keys of a document that are not in `snake_case`, with their places.
fn faults(value: &Value, place: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let place = format!("{place}/{key}");
                let mut letters = key.chars();
                let is_plain = letters.next().is_some_and(|c| c.is_ascii_lowercase())
                    && letters.all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
                if !is_plain {
                    found.push(place.clone());
                }
                if !OF_GENIE.contains(&key.as_str()) {
                    faults(value, &place, found);
                }
            }
        }
        Value::Array(list) => list.iter().for_each(|value| faults(value, place, found)),
        _ => {}
    }
}

/// A row for each command: what follows `genie`, and whether it succeeds.
const ROWS: &[(&str, bool)] = &[
    ("compile model -o other --ar 1,8 --cl 96", true),
    ("list", true),
    ("cache", true),
    ("rm nothing-like-it", false),
    ("run -c bundle --prompt-tokens 1,2,3 -n 4 --logprobs 2 --spec lookup", true),
    ("inspect bundle", true),
    ("plan 5 9 --ar 1,8 --cl 96", true),
    ("bench -c bundle --pp 8 --tg 2 --reps 1", true),
    ("verify bundle -n 4 --lengths 3", true),
    ("explain -c bundle -p hello -n 4", true),
    ("perplexity -c bundle text --max-windows 1", true),
    ("tokenize bundle hello", true),
    ("embed -c bundle hello", false),
    ("make-prefix -c bundle --tokens 1,2,3", true),
    ("config check bundle/genie_config.json", true),
    ("doctor bundle", true),
    ("deploy --to adb:none:/nowhere bundle --adb /no/adb", false),
    ("runtime find", false),
];

#[test]
fn every_command_has_keys_of_one_style() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path();
    TestModel { max_positions: 96, ..TestModel::tiny(Family::Llama) }.write(&place.join("model")).unwrap();
    std::fs::write(place.join("text"), "some words to be read ".repeat(20)).unwrap();
    std::fs::write(place.join("genie.toml"), "").unwrap();
    let made = genie(place, &["compile", "model", "-o", "bundle", "--ar", "1,8", "--cl", "96"]);
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    for (line, succeeds) in ROWS {
        let args: Vec<&str> = line.split(' ').chain(["--json"]).collect();
        let output = genie(place, &args);
        let (text, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.success(), *succeeds, "{line}: {text}{said}");
        let documents: Vec<Value> = text.lines().map(|l| serde_json::from_str(l).expect(line)).collect();
        assert!(documents.iter().any(Value::is_object), "{line}: {text}");
        let mut found = Vec::new();
        documents.iter().for_each(|document| faults(document, "", &mut found));
        assert_eq!(found, Vec::<String>::new(), "{line}");
    }
    // A command without a record is in the list of those; one without a row has the flag.
    let help = genie(place, &["help"]);
    let help = String::from_utf8(help.stdout).unwrap();
    let list = help.split_once("Commands:\n").unwrap().1.split_once("\n\n").unwrap().0;
    let names = list.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    for name in names.filter_map(|line| line.split_whitespace().next()) {
        let is_tried = ROWS.iter().any(|(line, _)| line.split(' ').next() == Some(name));
        let has_flag = || String::from_utf8_lossy(&genie(place, &[name, "--help"]).stdout).contains("--json");
        assert!(
            is_tried || WITHOUT_RECORD.contains(&name) || has_flag(),
            "`{name}` has no `--json`, and no reason is given"
        );
    }
}

#[test]
fn other_styles_are_found() {
    let document = serde_json::json!({"a_b": [{"top-logprobs": 1}], "Name": 1, "kpis": {"num-tokens": 1}});
    let mut found = Vec::new();
    faults(&document, "", &mut found);
    found.sort();
    assert_eq!(found, ["/Name", "/a_b/top-logprobs"]);
}
