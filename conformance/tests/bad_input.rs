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
        ("not an object", |c| *c = json!([]), ""),
        ("no dialog", |c| *c = json!({}), ""),
        ("unknown key", |c| c["dialog"]["context"]["sise"] = json!(32), ""),
        ("text for a number", |c| c["dialog"]["context"]["size"] = json!("32"), ""),
        ("size of zero", |c| c["dialog"]["context"]["size"] = json!(0), ""),
        ("token id of -7", |c| c["dialog"]["context"]["bos-token"] = json!(-7), ""),
        ("no eos", |c| c["dialog"]["context"]["eos-token"] = json!([]), ""),
        ("probability over 1", |c| c["dialog"]["sampler"]["top-p"] = json!(1.5), ""),
        ("negative temperature", |c| c["dialog"]["sampler"]["temp"] = json!(-1), ""),
        ("empty stop sequence", |c| c["dialog"]["stop-sequence"] = json!([""]), ""),
        ("another version", |c| c["dialog"]["version"] = json!(2), ""),
        ("a kind to come", |c| (c["dialog"]["type"], c["dialog"]["lade"]) = (json!("lade"), json!({"version": 1})), ""),
        ("an unknown kind", |c| c["dialog"]["type"] = json!("basik"), ""),
        ("another backend", |c| c["dialog"]["engine"]["backend"] = json!({"version": 1, "type": "QnnGpu"}), ""),
        ("negative threads", |c| c["dialog"]["engine"]["n-threads"] = json!(-1), ""),
        ("no tokenizer", |c| c["dialog"]["tokenizer"]["path"] = json!("no.json"), ""),
        ("no binary", |c| c["dialog"]["engine"]["model"]["binary"]["ctx-bins"] = json!(["no.bin"]), ""),
        ("positions told twice", |c| c["dialog"]["engine"]["backend"]["QnnHtp"]["rope-theta"] = json!(1e4), ""),
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
    found.push(("torn", message(&error, &bundle.dir()), ""));
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
        ("no config", |d| std::fs::remove_file(d.join("config.json")).unwrap(), ""),
        ("torn config", |d| cut(&d.join("config.json"), 30), ""),
        ("another family", |d| edit(d, |c| (c["model_type"], c["architectures"]) = (json!("gemma"), json!(["GemmaForCausalLM"]))), ""),
        ("another activation", |d| edit(d, |c| c["hidden_act"] = json!("gelu")), ""),
        ("other positions", |d| edit(d, |c| c["rope_scaling"] = json!({"rope_type": "yarn", "factor": 2.0})), ""),
        ("more layers than weights", |d| edit(d, |c| c["num_hidden_layers"] = json!(2)), ""),
        ("another width", |d| edit(d, |c| c["intermediate_size"] = json!(64)), ""),
        ("heads that do not divide", |d| edit(d, |c| c["num_key_value_heads"] = json!(3)), ""),
        ("no weights", |d| std::fs::remove_file(d.join("model.safetensors")).unwrap(), ""),
        ("torn weights", |d| cut(&d.join("model.safetensors"), 3000), ""),
        ("weights of no length", |d| cut(&d.join("model.safetensors"), 0), ""),
        ("no tokenizer", |d| std::fs::remove_file(d.join("tokenizer.json")).unwrap(), ""),
        ("torn tokenizer", |d| cut(&d.join("tokenizer.json"), 100), ""),
        (
            "a weight that is no number",
            |d| {
                let path = d.join("model.safetensors");
                let mut bytes = std::fs::read(&path).unwrap();
                let end = bytes.len();
                bytes[end - 4..].copy_from_slice(&f32::NAN.to_le_bytes());
                std::fs::write(path, bytes).unwrap();
            },
            "",
        ),
    ];
    let backend = backends::linked();
    let mut found = Vec::new();
    for (name, change, expected) in cases {
        let folder = tempfile::tempdir().unwrap();
        let model = folder.path().join("model");
        small().write(&model).unwrap();
        change(&model);
        let options = CompileOptions { ars: vec![1], cls: vec![32], ..CompileOptions::new(&model, folder.path().join("out")) };
        let error = compile(&options, &backend, &mut Silent).expect_err(name);
        assert!(!options.out_dir.exists(), "{name}: left a bundle behind");
        found.push((*name, message(&error, folder.path()), *expected));
    }
    check(found);
}

#[test]
fn options() {
    type Change = fn(&mut CompileOptions);
    let cases: &[(&str, Change, &str)] = &[
        ("no widths", |o| o.ars.clear(), ""),
        ("a width of zero", |o| o.ars = vec![0], ""),
        ("wider than the context", |o| o.ars = vec![64], ""),
        ("layers in one split", |o| o.layers_per_split = Some(1), ""),
        ("no such model", |o| o.model_dir = "/no/such/model".into(), ""),
        ("an output that is no bundle", |o| o.out_dir = o.model_dir.clone(), ""),
    ];
    let backend = backends::linked();
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("model");
    TestModel { dtype: FileDtype::Bf16, ..small() }.write(&model).unwrap();
    let mut found = Vec::new();
    for (name, change, expected) in cases {
        let mut options = CompileOptions { ars: vec![1], cls: vec![32], ..CompileOptions::new(&model, folder.path().join("out")) };
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
        ("nothing in it", Vec::clear, ""),
        ("a few bytes", |b| b.truncate(7), ""),
        ("half", |b| b.truncate(b.len() / 2), ""),
        ("another kind of file", |b| b[..4].copy_from_slice(b"\x7fELF"), ""),
        ("a later format", |b| b[8..12].copy_from_slice(&99u32.to_le_bytes()), ""),
        ("one bit of the description", |b| b[200] ^= 1, ""),
        ("something behind it", |b| b.extend([0; 100]), ""),
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
        let error = Engine::open(config.engine(), &backend).expect_err(name);
        found.push((*name, message(&error, &bundle.dir()), *expected));
    }
    std::fs::write(first, good).unwrap();

    let mut engine = config.engine().clone();
    engine.ctx_bins.truncate(1);
    found.push(("a split missing", message(&Engine::open(&engine, &backend).unwrap_err(), &bundle.dir()), ""));
    engine.ctx_bins.push(engine.ctx_bins[0].clone());
    found.push(("a split twice", message(&Engine::open(&engine, &backend).unwrap_err(), &bundle.dir()), ""));
    engine.ctx_bins = vec![bundle.dir()];
    found.push(("a folder", message(&Engine::open(&engine, &backend).unwrap_err(), &bundle.dir()), ""));
    let mut engine = config.engine().clone();
    engine.context_size = Some(64);
    found.push(("more context than compiled", message(&Engine::open(&engine, &backend).unwrap_err(), &bundle.dir()), ""));
    let mut engine = config.engine().clone();
    engine.pad_token = TokenId(5000);
    found.push(("a pad token beyond the vocabulary", message(&Engine::open(&engine, &backend).unwrap_err(), &bundle.dir()), ""));
    let mut engine = config.engine().clone();
    engine.rope = engine.rope.map(|r| engine::RopeConfig { rope_dim: 4, ..r });
    found.push(("another rope-dim", message(&Engine::open(&engine, &backend).unwrap_err(), &bundle.dir()), ""));
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
    ask("longer than the context", vec![TokenId(5); 33], "");
    ask("beyond the vocabulary", vec![TokenId(5), TokenId(320)], "");
    let mut engine = bundle.engine(&backend);
    engine.process(&[TokenId(1); 30]).unwrap();
    found.push(("past the end", message(&engine.process(&[TokenId(1); 3]).unwrap_err(), &bundle.dir()), ""));
    found.push(("rewound to the future", message(&engine.rewind(31).unwrap_err(), &bundle.dir()), ""));
    assert_eq!(engine.n_past(), 30, "refused calls change nothing");
    check(found);
}
