//! `genie embed` with an encoder whose vectors can be computed by hand: each token has a row of a table, and the pooled
//! vector is the sum of the rows that the mask shows.

use std::path::Path;
use std::process::Output;

use genie_types::{Dtype, TensorInfo};
use qnn_api::{Backend, BackendOptions, Context, Library, Param, TensorKind};
use serde_json::{Value, json};

use crate::program::with_users_cache;

const VOCAB: usize = 300;
const WIDTH: usize = 4;
const PAD: usize = 258;
const BOS: usize = 256;

/// The table's row of a token.
fn row(token: usize) -> Vec<f32> {
    (0..WIDTH).map(|i| ((token * 7 + i * 13) % 32) as f32 / 8.0 - 2.0).collect()
}

/// Composes encoders of those lengths into one binary.
fn save(path: &Path, lengths: &[usize], with_positions: bool) {
    let library = Library::linked(qnn_host::providers()).unwrap();
    let backend = Backend::new(&library, &BackendOptions::default()).unwrap();
    let context = Context::create(&backend, &Default::default()).unwrap();
    for &n in lengths {
        let mut b = context.compose(&format!("encoder{n}"), &Default::default()).unwrap();
        let mut tensor =
            |name: &str, dims: &[usize], dtype, kind| b.tensor(&TensorInfo::new(name, dims, dtype), kind).unwrap();
        let ids = tensor("input_ids", &[1, n], Dtype::I32, TensorKind::Input);
        tensor("token_type_ids", &[1, n], Dtype::I32, TensorKind::Input);
        if with_positions {
            tensor("position_ids", &[1, n], Dtype::I32, TensorKind::Input);
        }
        let mask = tensor("attention_mask", &[1, n], Dtype::F32, TensorKind::Input);
        let rows = tensor("sequence_output", &[1, n, WIDTH], Dtype::F32, TensorKind::Output);
        let column = tensor("column", &[1, n, 1], Dtype::F32, TensorKind::Native);
        let scaled = tensor("scaled", &[1, n, 1], Dtype::F32, TensorKind::Native);
        let shown = tensor("shown", &[1, n, 1], Dtype::F32, TensorKind::Native);
        let weighted = tensor("weighted", &[1, n, WIDTH], Dtype::F32, TensorKind::Native);
        let pooled = tensor("pooled_output", &[1, WIDTH], Dtype::F32, TensorKind::Output);
        let bytes = |numbers: Vec<f32>| numbers.into_iter().flat_map(f32::to_le_bytes).collect::<Vec<u8>>();
        let table = TensorInfo::new("table", vec![VOCAB, WIDTH], Dtype::F32);
        let table = b.constant(&table, &bytes((0..VOCAB).flat_map(row).collect())).unwrap();
        let small = b.constant(&TensorInfo::new("small", vec![1], Dtype::F32), &bytes(vec![0.001])).unwrap();
        let one = b.constant(&TensorInfo::new("one", vec![1], Dtype::F32), &bytes(vec![1.0])).unwrap();
        b.node("rows", "Gather", &[("axis", Param::I32(0))], &[table, ids], &[rows]).unwrap();
        b.node("columns", "Reshape", &[], &[mask], &[column]).unwrap();
        b.node("scale", "ElementWiseMultiply", &[], &[column, small], &[scaled]).unwrap();
        b.node("show", "ElementWiseAdd", &[], &[scaled, one], &[shown]).unwrap();
        b.node("weight", "ElementWiseMultiply", &[], &[rows, shown], &[weighted]).unwrap();
        let axes = Param::U32Tensor { dims: vec![1], data: vec![1] };
        b.node("pool", "ReduceSum", &[("axes", axes)], &[weighted], &[pooled]).unwrap();
        b.finalize().unwrap();
    }
    context.save(path).unwrap();
}

/// A folder with an encoder of 8 and of 16 tokens and its config, changed by `edit`.
fn encoder(edit: impl FnOnce(&mut Value)) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    save(&folder.path().join("model.bin"), &[8, 16], false);
    std::fs::write(folder.path().join("tokenizer.json"), tokenizer()).unwrap();
    let mut config = json!({"embedding": {
        "version": 1,
        "context": {"version": 1, "n-vocab": VOCAB, "ctx-size": 16, "embed-size": WIDTH, "pad-token": PAD},
        "tokenizer": {"version": 1, "path": "tokenizer.json"},
        "engine": {
            "version": 1, "n-threads": 1,
            "backend": {"version": 1, "type": "QnnHtp", "QnnHtp": {"version": 1, "spill-fill-bufsize": 0,
                "use-mmap": true, "pooled-output": true, "allow-async-init": false}},
            "model": {"version": 1, "type": "binary", "binary": {"version": 1, "ctx-bins": ["model.bin"]},
                "positional-encoding": {"type": "none"}},
        },
    }});
    edit(&mut config["embedding"]);
    std::fs::write(folder.path().join("genie_config.json"), config.to_string()).unwrap();
    folder
}

/// One token for each printable character, by its ASCII number.
fn tokenizer() -> String {
    let vocab: serde_json::Map<String, Value> =
        (33..127u8).map(|b| ((b as char).to_string(), json!(b))).chain([("<unk>".to_owned(), json!(0))]).collect();
    json!({"version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
           "pre_tokenizer": {"type": "Split", "pattern": {"String": ""}, "behavior": "Isolated", "invert": false},
           "post_processor": null, "decoder": null,
           "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "<unk>"}})
    .to_string()
}

fn genie(args: &[&str]) -> Output {
    with_users_cache(args).output().unwrap()
}

fn embed(folder: &Path, text: &str, more: &[&str]) -> Value {
    let output = genie(&[&["embed", "-c", folder.to_str().unwrap(), text, "--json"], more].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{text:?}: {e}: {said}"))
}

fn values(record: &Value) -> Vec<f32> {
    record["values"].as_array().unwrap().iter().map(|x| x.as_f64().unwrap() as f32).collect()
}

fn sum(tokens: impl Iterator<Item = usize>) -> Vec<f32> {
    tokens.map(row).fold(vec![0.0; WIDTH], |sum, row| sum.iter().zip(row).map(|(a, b)| a + b).collect())
}

fn close(found: &[f32], expected: &[f32]) -> bool {
    found.len() == expected.len() && found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-3)
}

#[test]
fn a_text_is_pooled_over_its_own_columns() {
    let folder = encoder(|_| ());
    for text in ["a", "hello", "12345678", "123456789", "0123456789abcdef", ""] {
        let record = embed(folder.path(), text, &[]);
        assert_eq!(record["dims"], json!([1, WIDTH]), "{text:?}");
        let expected = sum(text.bytes().map(usize::from));
        assert!(close(&values(&record), &expected), "{text:?}: {record} {expected:?}");
        assert_eq!(record["tokens"], json!(text.bytes().collect::<Vec<u8>>()));
    }
}

#[test]
fn each_token_has_a_vector_where_the_config_or_the_flag_says_so() {
    let by_config = encoder(|e| {
        e["engine"]["backend"]["QnnHtp"]["pooled-output"] = json!(false);
        e["context"]["bos-token"] = json!(BOS);
    });
    let expected: Vec<f32> = [BOS, 104, 105].into_iter().flat_map(row).collect();
    let record = embed(by_config.path(), "hi", &[]);
    assert_eq!(record["dims"], json!([3, WIDTH]));
    assert!(close(&values(&record), &expected), "{record}");
    let pooled = encoder(|e| e["context"]["bos-token"] = json!(BOS));
    assert_eq!(embed(pooled.path(), "hi", &["--per-token"])["values"], record["values"]);
    let lines = genie(&["embed", "-c", by_config.path().to_str().unwrap(), "hi"]);
    let lines = String::from_utf8(lines.stdout).unwrap();
    let numbers: Vec<f32> = lines.split_whitespace().map(|x| x.parse().unwrap()).collect();
    assert_eq!((lines.lines().count(), numbers), (3, values(&record)));
}

#[test]
fn a_template_stays_whole_where_a_long_text_is_cut() {
    let folder = encoder(|e| {
        e["prompt"] = json!({"prompt-template": ["<", ">!"]});
        e["truncate-input"] = json!(true);
    });
    let short = embed(folder.path(), "ab", &[]);
    assert_eq!(short["tokens"], json!(b"<ab>!".to_vec()));
    let long = embed(folder.path(), "abcdefghijklmnopqrstuvwxyz", &[]);
    assert_eq!((&long["tokens"], &long["truncated"]), (&json!(b"<abcdefghijklm>!".to_vec()), &json!(true)));
    assert!(close(&values(&long), &sum(b"<abcdefghijklm>!".iter().map(|b| usize::from(*b)))));
}

#[test]
fn what_cannot_be_encoded_is_refused_by_name() {
    type Edit = (&'static str, fn(&mut Value), &'static str, &'static str);
    let edits: [Edit; 5] = [
        ("abcdefghijklmnopq", |_| (), "the text has 17 tokens, but the encoder takes at most 16", "context-exceeded"),
        (
            "a",
            |e| drop(e["engine"]["model"].as_object_mut().unwrap().remove("positional-encoding")),
            "positional encoding `absolute` is configured, but no graph takes `position_ids`",
            "invalid-config",
        ),
        (
            "a",
            |e| e["context"]["embed-size"] = json!(5),
            "the encoder's vectors have 4 numbers, the config's `embed-size` is 5",
            "invalid-config",
        ),
        ("a", |e| e["context"]["n-vocab"] = json!(90), "token 97 at place 0 of the input is not in", "invalid-token"),
        ("a", |e| e["type"] = json!("image-encoder"), "encoder type `image-encoder` is not yet", "invalid-config"),
    ];
    for (text, edit, message, code) in edits {
        let folder = encoder(edit);
        let output = genie(&["embed", "-c", folder.path().to_str().unwrap(), text, "--json"]);
        assert_eq!(output.status.code(), Some(1), "{message}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(message), "{said}");
        let record: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(record["error"]["code"], code, "{record}");
    }
    let none = genie(&["embed", "-c", "/nowhere/config.json", "a"]);
    assert!(String::from_utf8_lossy(&none.stderr).contains("`/nowhere/config.json` does not exist"));
    let empty = genie(&["embed", "-c", "/nowhere/config.json"]);
    assert!(String::from_utf8_lossy(&empty.stderr).contains("hint: give a text, or `--file FILE`"));
}

#[test]
fn positions_count_from_the_first_token_of_the_text() {
    let folder = encoder(|e| drop(e["engine"]["model"].as_object_mut().unwrap().remove("positional-encoding")));
    save(&folder.path().join("model.bin"), &[8], true);
    let record = embed(folder.path(), "hello", &[]);
    assert!(close(&values(&record), &sum(b"hello".iter().map(|b| usize::from(*b)))), "{record}");
}

/// All of it was tokenised, however long, for tokens that were then refused or cut off.
#[test]
fn a_text_that_cannot_fit_is_refused_or_cut_before_it_is_tokenised() {
    let text = "a".repeat(100_000);
    let folder = encoder(|_| ());
    let output = genie(&["embed", "-c", folder.path().to_str().unwrap(), &text]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let expected = "the text has 100000 bytes, but the encoder takes at most 16 tokens, of at most 5 bytes each";
    assert!(output.status.code() == Some(1) && said.contains(expected), "{said}");
    let cutting = encoder(|e| e["truncate-input"] = json!(true));
    let (long, short) = (embed(cutting.path(), &text, &[]), embed(cutting.path(), &text[..20], &[]));
    assert_eq!((&long["values"], &long["truncated"]), (&short["values"], &json!(true)));
}
