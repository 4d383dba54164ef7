//! One word for a model: paths, names and prompts without flags; `genie list`, `genie rm`, `genie cache`.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use compiler::Family;
use compiler::testmodel::{Matrices, TestModel};
use serde_json::Value;

use crate::program::{command, stderr};

/// A folder with a cache and a folder of models of its own.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        fs::create_dir(place.path().join("models")).unwrap();
        place
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// A quantised GGUF file of a tiny random model.
    fn gguf(&self, name: &str) {
        let model = TestModel { ffn: 128, ..TestModel::tiny(Family::Llama) };
        fs::write(self.path().join(name), model.gguf(Matrices::Q4_0).unwrap().bytes()).unwrap();
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = command(self.path(), args);
        command.env("GENIE_MODELS", self.path().join("models"));
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    fn done(&self, args: &[&str]) -> Output {
        let output = self.run(args);
        assert!(output.status.success(), "{args:?}: {}", stderr(&output));
        output
    }

    fn json(&self, args: &[&str]) -> Value {
        serde_json::from_slice(&self.done(&[args, &["--json"]].concat()).stdout).unwrap()
    }

    fn refused(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {}", stderr(&output));
        stderr(&output).to_owned()
    }
}

const QUICK: [&str; 3] = ["-n", "3", "--greedy"];

/// One of them compiles it, the others wait for that.
#[test]
fn processes_that_need_a_model_at_once_share_it() {
    let place = Place::new();
    place.gguf("tiny.gguf");
    let start = || {
        let mut command = place.command(&[&["run", "tiny.gguf", "ab"], &QUICK[..]].concat());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let runs: Vec<_> = (0..4).map(|_| start()).collect();
    let outputs: Vec<Output> = runs.into_iter().map(|run| run.wait_with_output().unwrap()).collect();
    for output in &outputs {
        assert!(output.status.success(), "{}", stderr(output));
        assert_eq!(output.stdout, outputs[0].stdout);
    }
    let list = place.json(&["list"]);
    assert_eq!(list["models"].as_array().unwrap().iter().filter(|model| model["name"] == "tiny").count(), 1, "{list}");
}

/// The folder of a compiled model has the name of its source and a key, and file systems have a limit.
#[test]
fn a_long_name_is_cut_in_the_cache() {
    let place = Place::new();
    let name = format!("{}.gguf", "ä".repeat(122));
    place.gguf(&name);
    place.done(&[&["run", &name, "ab"], &QUICK[..]].concat());
}

#[test]
fn texts_and_ids_that_cannot_be_meant_are_refused() {
    let place = Place::new();
    place.gguf("tiny.gguf");
    fs::write(place.path().join("t.txt"), "ab").unwrap();
    for args in [["second", "-p", "first"], ["word", "-f", "t.txt"]] {
        let said = place.refused(&[&["tokenize", "tiny.gguf"], &args[..]].concat());
        assert!(said.contains("two texts are given"), "{args:?}: {said}");
    }
    let said = place.refused(&["tokenize", "tiny.gguf", "--decode", "4294967295"]);
    assert!(said.contains("`--decode`: token 4294967295: expected a number below"), "{said}");
    let said = place.refused(&[&["run", "tiny.gguf", "ab", "--logit-bias", "100000+1"], &QUICK[..]].concat());
    assert!(said.contains("`--logit-bias`: token 100000: expected a number below"), "{said}");
}

#[test]
fn a_gguf_file_runs_by_its_path_and_is_compiled_once() {
    let place = Place::new();
    place.gguf("tiny-Q4_0.gguf");
    let first = place.done(&[&["run", "tiny-Q4_0.gguf", "ab"], &QUICK[..]].concat());
    assert!(stderr(&first).contains("compiling `tiny-Q4_0`"), "{}", stderr(&first));
    assert!(stderr(&first).contains("compiled `tiny-Q4_0` in"), "{}", stderr(&first));
    // Quantised weights stay so: what is compiled is about as long as the file.
    assert!(stderr(&first).contains("weights stay quantised, as `q4_0`"), "{}", stderr(&first));
    for args in [
        vec!["run", "./tiny-Q4_0.gguf", "ab"],
        vec!["run", "-m", "tiny-Q4_0.gguf", "ab"],
        vec!["run", "--model", "tiny-Q4_0.gguf", "-p", "ab"],
        // By name, as it was compiled before.
        vec!["run", "tiny-Q4_0", "ab"],
    ] {
        let again = place.done(&[&args[..], &QUICK[..]].concat());
        assert!(!stderr(&again).contains("compil"), "{args:?}: {}", stderr(&again));
        assert_eq!(again.stdout, first.stdout, "{args:?}");
    }
    let cache = place.json(&["cache"]);
    let [model] = &cache["models"].as_array().unwrap()[..] else { panic!("one model") };
    assert_eq!((&model["name"], &model["state"]), (&"tiny-Q4_0".into(), &"ready".into()));
    // Another file under the same path is compiled again, into the same place.
    let model = TestModel { ffn: 192, ..TestModel::tiny(Family::Llama) };
    fs::write(place.path().join("tiny-Q4_0.gguf"), model.gguf(Matrices::Q4_0).unwrap().bytes()).unwrap();
    assert_eq!(place.json(&["cache"])["models"][0]["state"], "source-changed");
    let other = place.done(&[&["run", "tiny-Q4_0.gguf", "ab"], &QUICK[..]].concat());
    assert!(stderr(&other).contains("compiling"), "{}", stderr(&other));
    assert_eq!(place.json(&["cache"])["models"].as_array().unwrap().len(), 1);
}

#[test]
fn every_command_takes_the_word() {
    let place = Place::new();
    place.gguf("models/tiny.gguf");
    fs::write(place.path().join("text.txt"), "ab ".repeat(40)).unwrap();
    place.done(&[&["run", "tiny", "ab"], &QUICK[..]].concat());
    let chat = place.done(&["chat", "tiny", "ab", "-n", "2"]);
    assert!(!stderr(&chat).contains("compiling"), "{}", stderr(&chat));
    for args in [
        &["bench", "tiny", "--pp", "4", "--tg", "2", "--reps", "1"][..],
        &["perplexity", "tiny", "text.txt", "--max-windows", "1"],
        &["perplexity", "text.txt", "-m", "tiny", "--max-windows", "1"],
        &["inspect", "tiny"],
        &["verify", "tiny", "-n", "2", "--lengths", "3", "--tolerance", "0.1"],
    ] {
        assert!(!place.done(args).stdout.is_empty(), "{args:?}");
    }
}

#[test]
fn names_are_listed_removed_and_suggested() {
    let place = Place::new();
    place.gguf("models/tiny.gguf");
    TestModel::tiny(Family::Qwen3).write(&place.path().join("models/folder-model")).unwrap();
    fs::write(place.path().join("models/notes.txt"), "not a model").unwrap();
    let names = |list: &Value| -> Vec<(String, String)> {
        let text = |row: &Value, key: &str| row[key].as_str().unwrap().to_owned();
        list["models"].as_array().unwrap().iter().map(|row| (text(row, "name"), text(row, "state"))).collect()
    };
    let row = |name: &str, state: &str| (name.to_owned(), state.to_owned());
    let listed = names(&place.json(&["list"]));
    let none = "not-compiled";
    assert_eq!(listed, [row("demo", none), row("folder-model", none), row("tiny", none)]);
    place.done(&[&["run", "tiny", "ab"], &QUICK[..]].concat());
    assert!(names(&place.json(&["list"])).contains(&row("tiny", "ready")));
    let unknown = place.refused(&["run", "tinny", "ab"]);
    assert!(unknown.contains("no model `tinny`") && unknown.contains("similar: `tiny`"), "{unknown}");
    let unknown = place.refused(&["run", "Once upon a time"]);
    assert!(unknown.contains("no model `Once upon a time`") && unknown.contains("--prompt"), "{unknown}");
    let missing = place.refused(&["run", "elsewhere/x.gguf", "ab"]);
    assert!(missing.contains("`elsewhere/x.gguf` does not exist"), "{missing}");
    let other = place.refused(&["run", "models/notes.txt", "ab"]);
    assert!(other.contains("`models/notes.txt` is a text"), "{other}");
    // A chip's library does not run what is compiled for the CPU.
    let chip = place.refused(&["run", "models/folder-model", "ab", "--backend", "htp"]);
    assert!(chip.contains("genie compile"), "{chip}");

    assert!(place.refused(&["rm", "folder-model"]).contains("nothing is compiled of a model `folder-model`"));
    let removed = place.json(&["rm", "tiny"]);
    assert_eq!(removed["removed"][0]["name"], "tiny");
    assert!(place.path().join("models/tiny.gguf").exists());
    assert!(names(&place.json(&["list"])).contains(&row("tiny", none)));
    // All or none.
    place.done(&[&["run", "tiny", "ab"], &QUICK[..]].concat());
    place.refused(&["rm", "tiny", "nothing"]);
    assert!(names(&place.json(&["list"])).contains(&row("tiny", "ready")));
}

#[test]
fn the_cache_is_pruned_of_what_is_not_used() {
    let place = Place::new();
    place.gguf("stays.gguf");
    place.gguf("goes.gguf");
    for name in ["stays.gguf", "goes.gguf"] {
        place.done(&[&["run", name, "ab"], &QUICK[..]].concat());
    }
    place.done(&["run", "-p", "ROMEO:", "-n", "1"]);
    fs::remove_file(place.path().join("goes.gguf")).unwrap();
    let old_demo = place.path().join("cache/demo-0123456789abcdef");
    fs::create_dir(&old_demo).unwrap();
    fs::write(old_demo.join("model.bin"), "old").unwrap();
    // What is not of the cache stays, whatever is removed.
    fs::write(place.path().join("cache/notes.txt"), "mine").unwrap();
    let names = |removed: &Value, key: &str| -> Vec<String> {
        removed[key].as_array().unwrap().iter().map(|m| m["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(&place.json(&["cache", "--prune"]), "removed"), ["demo", "goes"]);
    assert!(!old_demo.exists());
    assert_eq!(names(&place.json(&["cache"]), "models"), ["demo", "stays"]);
    assert_eq!(names(&place.json(&["cache", "--clear"]), "removed"), ["demo", "stays"]);
    assert_eq!(place.json(&["cache"])["bytes"], 0);
    assert!(place.path().join("cache/notes.txt").exists() && place.path().join("stays.gguf").exists());
}

#[test]
fn a_prompt_may_come_through_a_pipe_and_with_escapes() {
    let place = Place::new();
    let record = |args: &[&str], input: &str| -> Value {
        let mut command = place.command(&[&["run", "-n", "1", "--json"], args].concat());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", stderr(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let given = record(&["-p", "ROMEO:\nO"], "");
    assert_eq!(record(&[], "ROMEO:\nO")["input"], given["input"]);
    assert_eq!(record(&["demo"], "ROMEO:\nO")["input"], given["input"]);
    assert_eq!(record(&["demo", "ROMEO:\\nO", "-e"], "")["input"], given["input"]);
    assert_ne!(record(&["demo", "ROMEO:\\nO"], "")["input"], given["input"]);
    // Where a prompt is given, a pipe is left alone.
    assert_eq!(record(&["demo", "ROMEO:\nO"], "something else")["input"], given["input"]);
    let broken = place.refused(&["run", "demo", "a\\q", "-e"]);
    assert!(broken.contains("the prompt's escapes cannot be processed"), "{broken}");
    assert!(place.refused(&["run", "demo", "one", "-p", "two"]).contains("two prompts are given"));
    assert!(place.refused(&["run", "demo"]).starts_with("error: no prompt\n"));
}
