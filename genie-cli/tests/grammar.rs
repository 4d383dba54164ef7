//! Grammars from the command line: flags, the config's key, faults with their places and codes.

use std::path::Path;
use std::process::Output;

use serde_json::Value;

use crate::program::{stderr, with_cache};

/// `genie run` on the demo model, with its own cache folder.
fn run(cache: &Path, args: &[&str]) -> Output {
    with_cache(cache, &[&["run"], args].concat())
}

#[test]
fn every_flag_constrains_the_reply() {
    let cache = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = cache.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let schema = r#"{"type":"object","properties":{"a":{"enum":["x","y"]}},"required":["a"],"additionalProperties":false,
        "x-guidance":{"whitespace_flexible":false}}"#;
    let rules = "root ::= \"yes\" | \"no\"";
    let (schema_file, rules_file) = (file("s.json", schema), file("r.ebnf", rules));
    let lark_file = file("g.lark", "start: WORD \"!\"\nWORD: /[a-z]{3}/");
    let json = ["{\"a\":\"x\"}", "{\"a\":\"y\"}"];
    let yes_or_no = ["yes", "no"];
    let cases: [(&[&str], &[&str]); 8] = [
        (&["--json-schema", schema], &json),
        (&["-j", &schema_file], &json),
        (&["--json-schema-file", &schema_file], &json),
        (&["--grammar", rules], &yes_or_no),
        (&["--grammar", &rules_file], &yes_or_no),
        (&["--grammar-file", &rules_file], &yes_or_no),
        (&["--regex", "(yes|no)"], &yes_or_no),
        (&["--lark", &lark_file], &[]),
    ];
    for (flags, replies) in cases {
        let output = run(cache.path(), &[&["-p", "ROMEO:", "--json", "--seed", "4"], flags].concat());
        assert_eq!(output.status.code(), Some(0), "{flags:?}: {}", stderr(&output));
        let record: Value = serde_json::from_slice(&output.stdout).unwrap();
        let text = record["text"].as_str().unwrap();
        if replies.is_empty() {
            assert!(text.len() == 4 && text.ends_with('!'), "{flags:?}: {text}");
        } else {
            assert!(replies.contains(&text), "{flags:?}: {text}");
        }
        assert!(["eos", "grammar-end"].contains(&record["stop"].as_str().unwrap()), "{record}");
    }
}

#[test]
fn faults_are_reported_with_place_and_code() {
    let cache = tempfile::tempdir().unwrap();
    let cases: [(&[&str], &str, i32); 6] = [
        (
            &["--grammar", "root ::= foo"],
            "the ebnf grammar is malformed at line 1, column 10: the rule `foo` is not defined",
            1,
        ),
        (&["--regex", "[a-z"], "the regex grammar is malformed at line 1, column 1: unclosed character class", 1),
        (&["--json-schema", "{\"type\":"], "the json-schema grammar is malformed at line 1, column 8: ", 1),
        (&["--json-schema", "{\"type\":\"foo\"}"], "the json-schema grammar cannot be used: ", 1),
        (&["--grammar", "/nonexistent"], "cannot read the grammar `/nonexistent`", 1),
        (&["--regex", "a", "--grammar", "b"], "cannot be used with", 2),
    ];
    for (flags, said, code) in cases {
        let output = run(cache.path(), &[&["-p", "x"], flags].concat());
        assert_eq!(output.status.code(), Some(code), "{flags:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(said), "{flags:?}: {}", stderr(&output));
    }
    let output = run(cache.path(), &["-p", "x", "--json", "--regex", "[a-z"]);
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("invalid-grammar") || {
            String::from_utf8_lossy(&output.stdout).contains("invalid-grammar")
        }
    );
}

/// The demo model knows no JSON: where any white space is allowed it goes on with that. By default it cannot.
#[test]
fn white_space_does_not_fill_a_document() {
    let cache = tempfile::tempdir().unwrap();
    let schema = r#"{"type":"object","properties":{"name":{"type":"string","maxLength":8},"tags":{"type":"array",
        "items":{"enum":["x","y"]},"maxItems":3},"n":{"type":"integer","minimum":0,"maximum":99}},
        "required":["name","tags","n"],"additionalProperties":false}"#;
    let reply = |flags: &[&str]| {
        let words = ["-p", "ROMEO:", "-j", schema, "--json", "-n", "460", "--temp", "1", "--top-p", "1", "--seed"];
        (1..5)
            .map(|seed| {
                let output = run(cache.path(), &[&words[..], &[&seed.to_string()], flags].concat());
                assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
                let record: Value = serde_json::from_slice(&output.stdout).unwrap();
                (record["text"].as_str().unwrap().to_owned(), record["stop"].as_str().unwrap().to_owned())
            })
            .collect::<Vec<_>>()
    };
    for flags in [&[][..], &["--json-white-space", "short"], &["--json-white-space", "none"]] {
        for (text, stop) in reply(flags) {
            let document: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{flags:?}: {e}: {text}"));
            assert!(document["n"].as_u64() < Some(100) && stop != "max-num-tokens", "{text}");
            if flags.contains(&"none") {
                let tight =
                    text.starts_with("{\"name\":\"") && text.contains("\",\"tags\":[") && text.contains("],\"n\":");
                assert!(tight, "no white space outside of strings: {text}");
            } else {
                assert!(!text.contains("  \n") && !text.contains("\n\n"), "{text:?}");
            }
        }
    }
    // As libGenie allows it: some replies are white space to the end.
    let any = [reply(&["--json-white-space", "any"]), reply(&["--policy", "genie"])].concat();
    assert!(any.iter().any(|(text, _)| text.contains("\n\n") || text.contains("  ")), "{any:?}");
    let output = run(cache.path(), &["-p", "x", "--json-white-space", "any"]);
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
}
