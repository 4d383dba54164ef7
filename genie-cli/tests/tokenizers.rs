//! Hostile and unfit tokenizers, and prompts, through the program: rows 12 and 13 and the rows on prompt texts.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use serde_json::{Value, json};

use crate::program::{with_cache as genie, with_own_cache};

const DEMO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/demo");

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// A model folder that is the demo with another tokenizer.
fn model(place: &Path, damage: impl FnOnce(&mut Value)) -> PathBuf {
    let folder = place.join("model");
    std::fs::create_dir(&folder).unwrap();
    for entry in std::fs::read_dir(DEMO).unwrap().map(|e| e.unwrap()) {
        std::fs::copy(entry.path(), folder.join(entry.file_name())).unwrap();
    }
    damage_file(&folder.join("tokenizer.json"), damage);
    folder
}

fn damage_file(path: &Path, damage: impl FnOnce(&mut Value)) {
    let mut json: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    damage(&mut json);
    std::fs::write(path, json.to_string()).unwrap();
}

fn compile(place: &Path, model: &Path, more: &[&str]) -> Output {
    let bundle = place.join("bundle");
    let mut args =
        vec!["compile", model.to_str().unwrap(), "-o", bundle.to_str().unwrap(), "--ar", "1,32", "--cl", "64"];
    args.extend(more);
    genie(place, &args)
}

type Damage = fn(&mut Value);

/// What the row did, and what is said now.
const DAMAGES: &[(&str, Damage, &str)] = &[
    (
        "row 12: pieces of no characters",
        |t| t["pre_tokenizer"] = json!({"type": "FixedLength", "length": 0}),
        "`/pre_tokenizer/length`: found 0",
    ),
    (
        "row 12: a character map of 12 bytes",
        |t| t["normalizer"] = json!({"type": "Precompiled", "precompiled_charsmap": "AAAA/wECAwQFBgcI"}),
        "`/normalizer/precompiled_charsmap`: found a trie of 4278190080 bytes in a map of 12",
    ),
    (
        "row 12: the prefix \u{e9}",
        |t| t["model"]["continuing_subword_prefix"] = json!("\u{e9}"),
        "begins with the prefix `\u{e9}`",
    ),
    (
        "row 13: an unknown normalizer",
        |t| t["normalizer"] = json!({"type": "Spellcheck"}),
        "`/normalizer/type`: found Spellcheck",
    ),
    ("row 13: an unknown model", |t| t["model"]["type"] = json!("Tiktoken"), "`/model/type`: found Tiktoken"),
    (
        "row 13: a bad expression",
        |t| {
            t["pre_tokenizer"] =
                json!({"type": "Split", "pattern": {"Regex": "(a"}, "behavior": "Isolated", "invert": false})
        },
        "`/pre_tokenizer`: Parsing error",
    ),
    (
        "row 13: merges with unknown parts",
        |t| t["model"]["merges"][3] = json!(["qqq", "zzz"]),
        "`/model/merges/3`: found `qqq` and `zzz`",
    ),
    ("row 13: a negative id", |t| t["model"]["vocab"]["!"] = json!(-2), "the id of `!`: found -2"),
    ("row 13: an id twice", |t| t["model"]["vocab"]["!"] = json!(3), "found id 3 for `!` and for `\""),
    ("row 13: no unknown entry", |t| t["model"]["unk_token"] = json!("<none>"), "`/model/unk_token`: found `<none>`"),
    (
        "row 13: four entries",
        |t| {
            t["model"] = json!({"type": "WordLevel", "vocab": {"a": 0, "b": 1, "c": 2, "d": 3}, "unk_token": "a"});
            t["added_tokens"] = json!([]);
        },
        "it has 4 entries for a model of 2048 rows, expected at least half as many",
    ),
    (
        "row 13: an id without a row",
        |t| t["model"]["vocab"]["~~~~"] = json!(2048),
        "entry `~~~~` has id 2048, but the model's vocabulary has 2048 entries",
    ),
];

/// Row 13: `compile` took them and `run` refused, with a bundle in between; row 12: it was a panic or an abort.
#[test]
fn compile_refuses_what_run_cannot_use() {
    for (name, damage, says) in DAMAGES {
        let place = tempfile::tempdir().unwrap();
        let output = compile(place.path(), &model(place.path(), damage), &[]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{name}: {said}");
        assert!(
            said.contains("model/tokenizer.json` is not a tokenizer that can be used: ") && said.contains(says),
            "{name}: {said}"
        );
        assert!(!said.contains("panicked") && !said.contains(".rs:"), "{name}: {said}");
        let left: Vec<_> = std::fs::read_dir(place.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left, ["model"], "{name}: nothing is left behind");
    }
}

/// Row 12: rc 101 and 134 in `run`, `perplexity` and `doctor`, with the panic's text and path.
#[test]
fn a_bundle_with_a_bad_tokenizer_is_refused_by_every_command() {
    let place = tempfile::tempdir().unwrap();
    let output = compile(place.path(), Path::new(DEMO), &[]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let bundle = place.path().join("bundle");
    let folder = bundle.to_str().unwrap();
    let good = std::fs::read(bundle.join("tokenizer.json")).unwrap();
    let book = place.path().join("book.txt");
    std::fs::write(&book, "to be or not to be").unwrap();
    for (name, damage, says) in DAMAGES {
        std::fs::write(bundle.join("tokenizer.json"), &good).unwrap();
        damage_file(&bundle.join("tokenizer.json"), damage);
        let fits = !says.contains("2048 rows") && !says.contains("2048 entries");
        for args in
            [vec!["run", "-c", folder, "-p", "Hi", "-n", "1"], vec!["perplexity", "-c", folder, book.to_str().unwrap()]]
        {
            let output = genie(place.path(), &args);
            let said = text(&output.stderr);
            assert!(!said.contains("panicked") && !said.contains(".rs:"), "{name}: {said}");
            // A run does not prove what loads; an id without a row fails when a text uses it.
            assert!(!fits || output.status.code() == Some(1) && said.contains(says), "{name}: {args:?}: {said}");
            assert!(output.status.code().is_some_and(|code| code < 2), "{name}: {args:?}: {said}");
        }
        let output = genie(place.path(), &["doctor", folder, "--skip-hashes", "--json"]);
        let found = text(&output.stdout);
        let id = if fits { "tokenizer-unreadable" } else { "tokenizer-" };
        assert!(found.contains(id) && output.status.code() == Some(1), "{name}: {found}");
        assert!(!text(&output.stderr).contains("panicked"), "{name}");
    }
}

/// A run says what `doctor` finds: the tokenizer is not the one that the bundle was made with.
#[test]
fn another_tokenizer_is_warned_of() {
    let place = tempfile::tempdir().unwrap();
    assert_eq!(compile(place.path(), Path::new(DEMO), &[]).status.code(), Some(0));
    let file = place.path().join("bundle/tokenizer.json");
    let said = || {
        let output =
            genie(place.path(), &["run", "-c", place.path().join("bundle").to_str().unwrap(), "-p", "Hi", "-n", "1"]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stderr).to_owned()
    };
    let warning = format!("`{}` is another file than the one that this bundle was made with", file.display());
    assert!(!said().contains("another file"));
    let whole = std::fs::read_to_string(&file).unwrap();
    // Of another length, and of the same.
    let other = whole.replacen('{', "{ ", 1);
    let spaced = whole.replacen("\": ", "\" :", 1);
    assert!(spaced != whole && spaced.len() == whole.len(), "the file has a space to move");
    for changed in [other, spaced] {
        std::fs::write(&file, changed).unwrap();
        let said = said();
        assert_eq!(said.matches(&warning).count(), 1, "{said}");
    }
    std::fs::write(&file, whole).unwrap();
    assert!(!said().contains("another file"));
}

/// The user-experience list: "Ends with a bare path: no size, no `now run ...`".
#[test]
fn compile_tells_what_it_tried_and_how_to_run_it() {
    let place = tempfile::tempdir().unwrap();
    let output = compile(place.path(), Path::new(DEMO), &[]);
    let (said, bundle) = (text(&output.stderr), place.path().join("bundle"));
    assert_eq!(text(&output.stdout), format!("{}\n", bundle.join("genie_config.json").display()), "stdout is the path");
    assert!(
        said.contains("4 graphs in 1 file, ") && said.contains(" MB; tried with steps of 1 and 32 tokens"),
        "{said}"
    );
    assert!(said.ends_with(&format!("next: `genie run -c {} -p \"Once upon a time\"`\n", bundle.display())), "{said}");
    let other = tempfile::tempdir().unwrap();
    let output = compile(other.path(), Path::new(DEMO), &["--skip-check"]);
    assert!(text(&output.stderr).contains("; not tried"), "{}", text(&output.stderr));
}

fn input_of(record: &Output) -> Vec<u64> {
    let record: Value = serde_json::from_slice(&record.stdout).unwrap_or_else(|_| panic!("{}", text(&record.stderr)));
    record["input"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap()).collect()
}

/// "text `<|begin_of_text|>` in a prompt becomes the control token 0; no way to switch that off for foreign text".
#[test]
fn control_tokens_in_foreign_text_may_stay_text() {
    let place = tempfile::tempdir().unwrap();
    let prompt = "a<|begin_of_text|>b";
    let with = genie(place.path(), &["run", "-p", prompt, "-n", "1", "--json"]);
    let without = genie(place.path(), &["run", "-p", prompt, "-n", "1", "--json", "--no-parse-special"]);
    assert_eq!(input_of(&with).iter().filter(|id| **id == 0).count(), 2, "BOS and the one in the text");
    assert_eq!(input_of(&without).iter().filter(|id| **id == 0).count(), 1, "BOS alone");
}

/// "`-f` an empty file, stdin closed with `-f -`, a file with a BOM: speaks from BOS alone; feeds the BOM".
#[test]
fn empty_prompts_are_refused_and_marks_left_out() {
    let place = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = place.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let empty = genie(place.path(), &["run", "-f", &file("empty", b""), "-n", "1"]);
    assert_eq!(empty.status.code(), Some(1));
    assert!(text(&empty.stderr).contains("the prompt is empty: the file `"), "{}", text(&empty.stderr));
    let closed = genie(place.path(), &["run", "-f", "-", "-n", "1"]);
    assert!(text(&closed.stderr).contains("the prompt is empty: stdin has no text"), "{}", text(&closed.stderr));
    let plain = genie(place.path(), &["run", "-f", &file("plain", b"ROMEO:"), "-n", "1", "--json"]);
    let marked = genie(place.path(), &["run", "-f", &file("marked", b"\xef\xbb\xbfROMEO:"), "-n", "1", "--json"]);
    assert_eq!(input_of(&marked), input_of(&plain));
    assert!(text(&marked.stderr).contains("note: left out the byte order mark"), "{}", text(&marked.stderr));
    let wide = genie(place.path(), &["run", "-f", &file("wide", b"\xff\xfeR\0"), "-n", "1"]);
    assert!(text(&wide.stderr).contains("the prompt is UTF-16, expected UTF-8"), "{}", text(&wide.stderr));
    let none = genie(place.path(), &["run", "-p", "", "-n", "1"]);
    assert!(
        none.status.success() && text(&none.stderr).contains("note: the prompt is empty"),
        "{}",
        text(&none.stderr)
    );
    // The same through a pipe that has text.
    let mut command = with_own_cache(place.path(), &["run", "-f", "-", "-n", "1", "--json"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"ROMEO:").unwrap();
    assert_eq!(input_of(&child.wait_with_output().unwrap()), input_of(&plain));
}
