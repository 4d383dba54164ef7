//! GGUF files as a user compiles them: good ones run, bad ones are refused in the file's own words, and nothing is left behind.

use std::path::Path;
use std::process::{Command, Output};

use compiler::Family;
use compiler::testmodel::{GgufDraft, GgufValue, Matrices, TestModel};

use crate::program::{command, stderr};

/// `genie` whose cache and temporary folder are inside `place`.
fn genie(place: &Path, args: &[&str]) -> Output {
    let temporary = place.join("tmp");
    std::fs::create_dir_all(&temporary).unwrap();
    command(place, args).env("TMPDIR", temporary).output().unwrap()
}

fn compile(place: &Path, file: &str, more: &[&str]) -> Output {
    genie(place, &[&["compile", file, "-o", "bundle", "--ar", "1,8", "--cl", "32"], more].concat())
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn model(matrices: Matrices) -> GgufDraft {
    TestModel { ffn: 128, ..TestModel::tiny(Family::Llama) }.gguf(matrices).unwrap()
}

/// Row 17, and D5: it stays quantised, says so, runs, and the temporary folder is not used.
#[test]
fn a_quantised_file_compiles_as_it_is_and_runs() {
    let place = tempfile::tempdir().unwrap();
    std::fs::write(place.path().join("m.gguf"), model(Matrices::Q4_0).bytes()).unwrap();
    let output = compile(place.path(), "m.gguf", &[]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stderr(&output).contains("weights stay quantised, as `q4_0`"), "{}", stderr(&output));
    assert_eq!(names(&place.path().join("tmp")), [""; 0], "nothing is written to the temporary folder");
    let output = genie(place.path(), &["run", "-c", "bundle", "-p", "ab", "-n", "4", "--greedy"]);
    assert!(output.status.success(), "{}", stderr(&output));

    let size = |bundle: &str| std::fs::metadata(place.path().join(bundle).join("model.bin")).unwrap().len();
    let quantised = size("bundle");
    let output = compile(place.path(), "m.gguf", &["--weights", "float", "--force"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(!stderr(&output).contains("quantised"), "{}", stderr(&output));
    assert_ne!(size("bundle"), quantised);
}

/// A layer in Q8_0 stays in it in a file that is taken as `q4_0`; where that is asked for it is rounded, and that is said.
#[test]
fn layers_of_eight_bits_are_rounded_only_if_that_is_asked_for() {
    let place = tempfile::tempdir().unwrap();
    let (mut mixed, mut eight) = (model(Matrices::Q4_0), model(Matrices::Q8_0));
    *mixed.tensor("blk.1.attn_v.weight") = eight.tensor("blk.1.attn_v.weight").clone();
    std::fs::write(place.path().join("m.gguf"), mixed.bytes()).unwrap();
    let options = |more: &[&str]| {
        let output = compile(place.path(), "m.gguf", &[&["--json", "--force"], more].concat());
        assert!(output.status.success(), "{}", stderr(&output));
        let record: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        (record["manifest"]["options"].clone(), stderr(&output).to_owned())
    };
    let rounded = "rounding to q4_0 moved the weights by";
    let (own, said) = options(&[]);
    assert_eq!((&own["weights"], &own["keeps-eight-bits"]), (&"q4_0".into(), &true.into()));
    assert!(said.contains("as `q4_0`, and Q8_0 as they are") && !said.contains(rounded), "{said}");
    let (asked, said) = options(&["--weights", "q4_0"]);
    assert_eq!((&asked["weights"], asked.get("keeps-eight-bits")), (&"q4_0".into(), None));
    assert!(said.contains(rounded) && !said.contains("as they are"), "{said}");
}

/// A hint of each kind, as it is printed.
#[test]
fn refusals_name_the_file_the_key_and_what_to_do() {
    type Change = fn(&mut GgufDraft);
    let cases: [(Change, &str, &str); 8] = [
        (
            |d| drop(d.set("llama.rope.freq_base", GgufValue::Text("500000".into())).bytes()),
            "`llama.rope.freq_base` in `m.gguf` is the string `500000`, expected a number",
            "",
        ),
        (
            |d| drop(d.remove("llama.block_count").bytes()),
            "`m.gguf` has no key `llama.block_count`",
            "convert the model again",
        ),
        (
            |d| drop(d.remove_tensor("token_embd.weight").bytes()),
            "`m.gguf` has no tensor `token_embd.weight`",
            "convert the model again",
        ),
        (
            |d| drop(d.set("split.count", GgufValue::U32(3)).bytes()),
            "`m.gguf` is file 1 of 3",
            "llama-gguf-split --merge",
        ),
        (|d| d.tensor("token_embd.weight").ty = 16, "tensor `token_embd.weight` ", ""),
        (
            |d| d.values.retain(|(key, _)| !key.starts_with("tokenizer")),
            "`m.gguf` has no tokenizer",
            "with the tokenizer that belongs to it",
        ),
        (
            |d| drop(d.add("blk.0.attn_q_norm.weight", &[16], 1.0).bytes()),
            "there is a tensor `blk.0.attn_q_norm.weight` in `m.gguf`, which no part of a llama model reads",
            "the text would be wrong without it",
        ),
        (
            |d| drop(d.set("general.type", GgufValue::Text("mmproj".into())).bytes()),
            "`m.gguf` holds the projector of a multimodal model",
            "pass the GGUF file of the model itself",
        ),
    ];
    for (change, message, hint) in cases {
        let place = tempfile::tempdir().unwrap();
        let mut draft = model(Matrices::F32);
        change(&mut draft);
        std::fs::write(place.path().join("m.gguf"), draft.bytes()).unwrap();
        let output = compile(place.path(), "m.gguf", &[]);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(message) && said.contains(hint), "{message}: {said}");
        assert_eq!(names(place.path()), ["m.gguf", "tmp"], "{message}");
    }
}

/// A file that is empty or cut anywhere is damaged, not something else.
#[test]
fn files_that_are_cut_say_so() {
    let place = tempfile::tempdir().unwrap();
    let bytes = model(Matrices::Q8_0).bytes();
    for part in [0, 1, 7, 25, 49] {
        std::fs::write(place.path().join("m.gguf"), &bytes[..bytes.len() * part / 50]).unwrap();
        let output = compile(place.path(), "m.gguf", &[]);
        let said = stderr(&output);
        assert!(said.contains("`m.gguf` is damaged") || part == 0 && said.contains("it is empty"), "{part}/50: {said}");
        assert!(part == 0 || said.contains("incomplete or damaged: download it again"), "{part}/50: {said}");
    }
}

/// A folder, a fifo and a device in place of a file: an answer, not a wait.
#[cfg(unix)]
#[test]
fn what_is_no_regular_file_is_refused_at_once() {
    let place = tempfile::tempdir().unwrap();
    std::fs::create_dir(place.path().join("folder.gguf")).unwrap();
    let made = Command::new("mkfifo").arg(place.path().join("fifo.gguf")).status().unwrap();
    assert!(made.success());
    for file in ["folder.gguf", "fifo.gguf", "/dev/null", "/dev/zero", "missing.gguf"] {
        let output = compile(place.path(), file, &[]);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{file}: {said}");
        assert!(said.contains(file), "{file}: {said}");
    }
}
