//! Unfit input of every kind, from the outside: each gets an error that names the thing, what was expected and found.
//!
//! A table of cases and their exact messages (file names of the temporary folder are cut out); it grows with them and
//! has therefore more lines than other files.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use compiler::testmodel::{FileDtype, TestModel};
use compiler::{CONFIG_FILE, CompileOptions, Family, Precision, Silent, Splits, compile};
use conformance::backends;
use conformance::bundles::Bundle;
use dialog::{Dialog, DialogConfig, SentenceCode};
use engine::{Engine, TokenModel};
use genie_types::TokenId;
use qnn_api::Backend;
use serde_json::{Value, json};

/// An error and its causes on one line, without what differs from run to run.
fn message(error: &dyn Error, folder: &Path) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        if !text.contains(&error.to_string()) {
            text.push_str(" | ");
            text.push_str(&error.to_string());
        }
        cause = error.source();
    }
    text.replace(&folder.display().to_string(), "")
}

/// Compares all cases before failing, so that one run shows every difference.
fn check(found: Vec<(&str, String, &str)>) {
    let mut wrong = 0;
    for (case, found, expected) in &found {
        if found != expected {
            eprintln!("case `{case}`\n     found: {found}\n  expected: {expected}");
            wrong += 1;
        }
    }
    assert_eq!(wrong, 0, "of {} cases", found.len());
}

fn small() -> TestModel {
    TestModel { layers: 1, hidden: 32, heads: 2, kv_heads: 1, ffn: 32, ..TestModel::tiny(Family::Llama) }
}

fn bundle(backend: &Arc<Backend>) -> Bundle {
    Bundle::make(&small(), backend, |o| {
        (o.ars, o.cls, o.precision, o.splits) = (vec![1, 8], vec![32], Precision::F32, Splits::DecoderLmhead);
    })
}

#[test]
fn configs() {
    type Change = fn(&mut Value);
    let backend = backends::linked();
    let bundle = bundle(&backend);
    let good: Value = serde_json::from_str(&std::fs::read_to_string(bundle.dir().join(CONFIG_FILE)).unwrap()).unwrap();
    let cases: &[(&str, Change, &str)] = &[
        (
            "not an object",
            |c| *c = json!([]),
            "`/changed.json` is not a valid dialog config: /: expected object, found array",
        ),
        (
            "no dialog",
            |c| *c = json!({}),
            "`/changed.json` is not a valid dialog config: /dialog: required key is missing",
        ),
        (
            "unknown key",
            |c| c["dialog"]["context"]["sise"] = json!(32),
            "`/changed.json` is not a valid dialog config: /dialog/context/sise: unknown key (did you mean `size`?)",
        ),
        (
            "text for a number",
            |c| c["dialog"]["context"]["size"] = json!("32"),
            "`/changed.json` is not a valid dialog config: /dialog/context/size: expected integer, found string",
        ),
        (
            "size of zero",
            |c| c["dialog"]["context"]["size"] = json!(0),
            "`/changed.json` is not a valid dialog config: /dialog/context/size: expected at least 1 token, found 0",
        ),
        (
            "token id of -7",
            |c| c["dialog"]["context"]["bos-token"] = json!(-7),
            "`/changed.json` is not a valid dialog config: /dialog/context/bos-token: expected a token id, or -1 for unset, found -7",
        ),
        (
            "no eos",
            |c| c["dialog"]["context"]["eos-token"] = json!([]),
            "`/changed.json` is not a valid dialog config: /dialog/context/eos-token: expected at least 1 item(s), found 0",
        ),
        (
            "probability over 1",
            |c| c["dialog"]["sampler"]["top-p"] = json!(1.5),
            "`/changed.json` is not a valid dialog config: /dialog/sampler/top-p: expected a number from 0 to 1, found 1.5",
        ),
        (
            "negative temperature",
            |c| c["dialog"]["sampler"]["temp"] = json!(-1),
            "`/changed.json` is not a valid dialog config: /dialog/sampler/temp: expected a number of at least 0, found -1",
        ),
        (
            "empty stop sequence",
            |c| c["dialog"]["stop-sequence"] = json!([""]),
            "`/changed.json` is not a valid dialog config: /dialog/stop-sequence/0: expected a non-empty string",
        ),
        (
            "another version",
            |c| c["dialog"]["version"] = json!(2),
            "`/changed.json` is not a valid dialog config: /dialog/version: expected version 1, found 2",
        ),
        (
            "a backend to come",
            |c| c["dialog"]["engine"]["backend"] = json!({"version": 1, "type": "QnnGpu"}),
            "`/changed.json` asks for more than this build can do: /dialog/engine/backend/type: backend `QnnGpu` is not yet supported (`QnnHtp` configs run on the embedded backend and on libQnnHtp)",
        ),
        (
            "an unknown kind",
            |c| c["dialog"]["type"] = json!("basik"),
            "`/changed.json` is not a valid dialog config: /dialog/type: expected one of `basic`, `ssd-q1`, `lade`, `spd`, `multistream`, `eaglet`, `kv-share`, found `basik` (did you mean `basic`?)",
        ),
        (
            "another backend",
            |c| c["dialog"]["engine"]["backend"] = json!({"version": 1, "type": "QnnGpu"}),
            "`/changed.json` asks for more than this build can do: /dialog/engine/backend/type: backend `QnnGpu` is not yet supported (`QnnHtp` configs run on the embedded backend and on libQnnHtp)",
        ),
        (
            "negative threads",
            |c| c["dialog"]["engine"]["n-threads"] = json!(-1),
            "`/changed.json` is not a valid dialog config: /dialog/engine/n-threads: expected an integer from 0 to 1024, found -1",
        ),
        (
            "no tokenizer",
            |c| c["dialog"]["tokenizer"]["path"] = json!("no.json"),
            "`/changed.json` names files that cannot be used: /dialog/tokenizer/path: file not found: `/no.json` (relative paths start at the config's folder)",
        ),
        (
            "no binary",
            |c| c["dialog"]["engine"]["model"]["binary"]["ctx-bins"] = json!(["no.bin"]),
            "`/changed.json` names files that cannot be used: /dialog/engine/model/binary/ctx-bins/0: file not found: `/no.bin` (relative paths start at the config's folder)",
        ),
        (
            "positions given twice",
            |c| c["dialog"]["engine"]["backend"]["QnnHtp"]["rope-theta"] = json!(1e4),
            "`/changed.json` is not a valid dialog config: /dialog/engine/backend/QnnHtp/rope-theta: not allowed together with `positional-encoding` of the model (remove `rope-theta`; `positional-encoding` says the same)",
        ),
    ];
    let mut found = Vec::new();
    for (name, change, expected) in cases {
        let mut config = good.clone();
        change(&mut config);
        let path = bundle.dir().join("changed.json");
        std::fs::write(&path, config.to_string()).unwrap();
        let error = DialogConfig::from_file(&path).expect_err(name);
        found.push((*name, message(&error, &bundle.dir()), *expected));
    }
    std::fs::write(bundle.dir().join("torn.json"), "{\"dialog\": {").unwrap();
    let error = DialogConfig::from_file(bundle.dir().join("torn.json")).unwrap_err();
    found.push((
        "torn",
        message(&error, &bundle.dir()),
        "`/torn.json` is not valid JSON | EOF while parsing an object at line 1 column 12",
    ));
    check(found);
}

#[test]
fn checkpoints() {
    type Change = fn(&Path);
    fn edit(dir: &Path, change: impl FnOnce(&mut Value)) {
        let path = dir.join("config.json");
        let mut config: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        change(&mut config);
        std::fs::write(path, config.to_string()).unwrap();
    }
    fn cut(path: &Path, keep: usize) {
        let bytes = std::fs::read(path).unwrap();
        std::fs::write(path, &bytes[..keep.min(bytes.len())]).unwrap();
    }
    let cases: &[(&str, Change, &str)] = &[
        (
            "no config",
            |d| std::fs::remove_file(d.join("config.json")).unwrap(),
            "`/model` has no config.json, expected the folder of a model",
        ),
        (
            "torn config",
            |d| cut(&d.join("config.json"), 30),
            "`/model/config.json` cannot be read as JSON: it ends in the middle, at line 3",
        ),
        (
            "another family",
            |d| edit(d, |c| (c["model_type"], c["architectures"]) = (json!("gemma"), json!(["GemmaForCausalLM"]))),
            "unsupported architecture `GemmaForCausalLM`: this compiler supports FAMILIES",
        ),
        (
            "another activation",
            |d| edit(d, |c| c["hidden_act"] = json!("tanh")),
            "unsupported `hidden_act` in `/model/config.json`: found tanh, this compiler needs one of silu, swish, swiglu, gelu_pytorch_tanh, gelu_new, gelu_fast, gelu, relu",
        ),
        (
            "other positions",
            |d| edit(d, |c| c["rope_scaling"] = json!({"rope_type": "ntk", "factor": 2.0})),
            "unsupported `rope_scaling.rope_type` in `/model/config.json`: found ntk, this compiler needs default, linear, llama3, yarn or longrope",
        ),
        (
            "more layers than weights",
            |d| edit(d, |c| c["num_hidden_layers"] = json!(2)),
            "`num_hidden_layers` is 2, but the checkpoint has the tensors of 1 layers",
        ),
        (
            "another width",
            |d| edit(d, |c| c["intermediate_size"] = json!(64)),
            "tensor `model.layers.0.mlp.gate_proj.weight` has shape [32, 32], expected [64, 32]",
        ),
        (
            "heads that do not divide",
            |d| edit(d, |c| c["num_key_value_heads"] = json!(3)),
            "bad `num_key_value_heads` in `/model/config.json`: found 3 with 2 attention heads, expected a divisor of num_attention_heads",
        ),
        (
            "no weights",
            |d| std::fs::remove_file(d.join("model.safetensors")).unwrap(),
            "no checkpoint in `/model`: neither model.safetensors nor model.safetensors.index.json",
        ),
        (
            "torn weights",
            |d| cut(&d.join("model.safetensors"), 3000),
            "`/model/model.safetensors` is damaged: its tensors end at byte 67032, the file at 3000",
        ),
        (
            "weights of no length",
            |d| cut(&d.join("model.safetensors"), 0),
            "`/model/model.safetensors` is damaged: 0 bytes, too short for a header length",
        ),
        ("no tokenizer", |d| std::fs::remove_file(d.join("tokenizer.json")).unwrap(), "`/model` has no tokenizer.json"),
        (
            "torn tokenizer",
            |d| cut(&d.join("tokenizer.json"), 100),
            "`/model/tokenizer.json` is not a tokenizer that can be used: it ends in the middle, at line 1",
        ),
        (
            "a weight that is no number",
            |d| {
                let path = d.join("model.safetensors");
                let mut bytes = std::fs::read(&path).unwrap();
                let end = bytes.len();
                bytes[end - 4..].copy_from_slice(&f32::NAN.to_le_bytes());
                std::fs::write(path, bytes).unwrap();
            },
            "tensor `model.norm.weight` has NaN at index [31]: weights must be finite",
        ),
    ];
    let backend = backends::linked();
    let classes = Family::ALL.iter().map(|family| format!("`{}`", family.class())).collect::<Vec<_>>().join(", ");
    let mut found = Vec::new();
    for (name, change, expected) in cases {
        let folder = tempfile::tempdir().unwrap();
        let model = folder.path().join("model");
        small().write(&model).unwrap();
        change(&model);
        let options =
            CompileOptions { ars: vec![1], cls: vec![32], ..CompileOptions::new(&model, folder.path().join("out")) };
        let error = compile(&options, &backend, &mut Silent).expect_err(name);
        assert!(!options.out_dir.exists(), "{name}: left a bundle behind");
        found.push((*name, message(&error, folder.path()).replace(&classes, "FAMILIES"), *expected));
    }
    check(found);
}

#[test]
fn options() {
    type Change = fn(&mut CompileOptions);
    let cases: &[(&str, Change, &str)] = &[
        ("no widths", |o| o.ars.clear(), "no AR given: need at least one width in tokens"),
        ("a width of zero", |o| o.ars = vec![0], "AR 0: expected at least 1 token"),
        ("wider than the context", |o| o.ars = vec![64], "AR-64 is wider than the longest context, CL-32"),
        (
            "layers in one split",
            |o| o.layers_per_split = Some(1),
            "1 layers per split asked for, but layout `mono` has only one split",
        ),
        (
            "no such model",
            |o| o.model_dir = "/no/such/model".into(),
            "`/no/such/model` does not exist, expected the folder of a model or a GGUF file",
        ),
        (
            "an output that is no bundle",
            |o| o.out_dir = o.model_dir.clone(),
            "`/model` cannot be a bundle directory: the model lies in it",
        ),
    ];
    let backend = backends::linked();
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("model");
    TestModel { dtype: FileDtype::Bf16, ..small() }.write(&model).unwrap();
    let mut found = Vec::new();
    for (name, change, expected) in cases {
        let mut options =
            CompileOptions { ars: vec![1], cls: vec![32], ..CompileOptions::new(&model, folder.path().join("out")) };
        change(&mut options);
        let error = compile(&options, &backend, &mut Silent).expect_err(name);
        found.push((*name, message(&error, folder.path()), *expected));
    }
    check(found);
}

#[test]
fn context_binaries() {
    type Change = fn(&mut Vec<u8>);
    let cases: &[(&str, Change, &str)] = &[
        ("nothing in it", Vec::clear, "context binary is torn: expected at least 128 bytes, found 0"),
        ("a few bytes", |b| b.truncate(7), "context binary is torn: expected at least 128 bytes, found 7"),
        ("half", |b| b.truncate(b.len() / 2), "context binary is torn: expected at least ALL bytes, found HALF"),
        (
            "another kind of file",
            |b| b[..4].copy_from_slice(b"\x7fELF"),
            "not a context binary of this backend: expected magic [89, 4f, 47, 48, 4f, 53, 54, 0a], found [7f, 45, 4c, 46, 4f, 53, 54, 0a]",
        ),
        (
            "a later format",
            |b| b[8..12].copy_from_slice(&99u32.to_le_bytes()),
            "context binary has format version 99, this backend reads up to 4",
        ),
        ("one bit of the description", |b| b[200] ^= 1, "context binary is damaged: checksum of the"),
        (
            "something behind it",
            |b| b.extend([0; 100]),
            "context binary is malformed at byte 24: expected a file of ALL bytes, found MORE",
        ),
    ];
    let backend = backends::linked();
    let bundle = bundle(&backend);
    let config = bundle.config();
    let first = &config.engine().ctx_bins[0];
    let good = std::fs::read(first).unwrap();
    let mut found = Vec::new();
    for (name, change, expected) in cases {
        let mut bytes = good.clone();
        change(&mut bytes);
        std::fs::write(first, bytes).unwrap();
        let error = message(&Engine::open(config.engine(), &backend).expect_err(name), &bundle.dir());
        assert!(
            error.starts_with("cannot load context binary `/decoder.bin` | cannot read what a context binary of "),
            "{error}"
        );
        // What matters is the backend's own finding; sizes follow the format, checksums the bytes.
        let own = error
            .rsplit("_MALFORMED_BINARY`, system): ")
            .next()
            .unwrap_or_default()
            .replace(&good.len().to_string(), "ALL");
        let own = own.replace(&(good.len() / 2).to_string(), "HALF").replace(&(good.len() + 100).to_string(), "MORE");
        let own = own.split(" metadata is ").next().unwrap_or_default();
        found.push((*name, own.to_owned(), *expected));
    }
    std::fs::write(first, &good).unwrap();

    let mut engine = config.engine().clone();
    engine.ctx_bins.truncate(1);
    found.push((
        "a split missing",
        message(&Engine::open(&engine, &backend).unwrap_err(), &bundle.dir()),
        "split 2 of 2 is missing; the graphs found are ar1_cl32_1_of_2, ar8_cl32_1_of_2",
    ));
    engine.ctx_bins.push(engine.ctx_bins[0].clone());
    found.push(("a split twice", message(&Engine::open(&engine, &backend).unwrap_err(), &bundle.dir()), "split 2 of 2 is missing; the graphs found are ar1_cl32_1_of_2, ar8_cl32_1_of_2, ar1_cl32_1_of_2, ar8_cl32_1_of_2"));
    engine.ctx_bins = vec![bundle.dir()];
    found.push((
        "a folder",
        message(&Engine::open(&engine, &backend).unwrap_err(), &bundle.dir()),
        "cannot load context binary `` | cannot open `` | expected a file, found a bundle's folder",
    ));
    let mut engine = config.engine().clone();
    engine.context_size = Some(64);
    found.push((
        "more context than compiled",
        message(&Engine::open(&engine, &backend).unwrap_err(), &bundle.dir()),
        "context size 64 does not fit the graphs: expected 1 to 32, the largest CL loaded",
    ));
    let mut engine = config.engine().clone();
    engine.pad_token = TokenId(5000);
    found.push((
        "a pad token beyond the vocabulary",
        message(&Engine::open(&engine, &backend).unwrap_err(), &bundle.dir()),
        "pad token 5000 is not in the vocabulary of 320",
    ));
    let mut engine = config.engine().clone();
    engine.rope = engine.rope.map(|r| engine::RopeConfig { rope_dim: 4, ..r });
    found.push((
        "another rope-dim",
        message(&Engine::open(&engine, &backend).unwrap_err(), &bundle.dir()),
        "`position_ids_cos` of graph `ar1_cl32_1_of_2` is 8 wide, but `rope-dim` is 4",
    ));
    check(found);
}

#[test]
fn prompts() {
    let backend = backends::linked();
    let bundle = bundle(&backend);
    let mut dialog = Dialog::new(&bundle.config(), Box::new(bundle.engine(&backend))).unwrap();
    let mut found = Vec::new();
    let mut ask = |name, tokens: Vec<TokenId>, expected| {
        let error = dialog.token_query(&tokens, SentenceCode::Complete, |_| ()).expect_err(name);
        found.push((name, message(&error, &bundle.dir()), expected));
        assert_eq!(dialog.n_past(), 0, "{name}: something ran");
    };
    ask("longer than the context", vec![TokenId(5); 33], "context limit exceeded: 0 past + 34 new tokens > 32");
    ask(
        "beyond the vocabulary",
        vec![TokenId(5), TokenId(320)],
        "token 320 at place 2 of the input is not in the vocabulary of 320",
    );
    let mut engine = bundle.engine(&backend);
    engine.process(&[TokenId(1); 30]).unwrap();
    found.push((
        "past the end",
        message(&engine.process(&[TokenId(1); 3]).unwrap_err(), &bundle.dir()),
        "context limit exceeded: 30 past + 3 new tokens > 32",
    ));
    found.push((
        "rewound to the future",
        message(&engine.rewind(31).unwrap_err(), &bundle.dir()),
        "cannot rewind to 31: the cache stands at 30 tokens with 30 rows; only backwards is possible",
    ));
    assert_eq!(engine.n_past(), 30, "refused calls change nothing");
    check(found);
}
