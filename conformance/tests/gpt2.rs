//! GPT-2 beyond what every family is tested for: 200 tokens with the cache equal those of graphs without one, checkpoints in their
//! older form, contexts beyond the table of positions.

use std::collections::BTreeMap;
use std::path::Path;

use compiler::testmodel::TestModel;
use compiler::{CONFIG_FILE, CompileError, CompileOptions, Family, Precision, Silent, Splits, compile};
use conformance::backends;
use conformance::bundles::Bundle;
use dialog::DialogConfig;
use engine::{Engine, TokenModel};
use genie_types::TokenId;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors, serialize};
use serde_json::{Value, json};

use crate::reference::Reference;

const AR: usize = 32;
const CL: u32 = 288;
const N_TOKENS: usize = 200;
const TOLERANCE: f32 = 1e-4;

fn argmax(logits: &[f32]) -> TokenId {
    let best = |best: usize, (i, x): (usize, &f32)| if *x > logits[best] { i } else { best };
    TokenId(logits.iter().enumerate().fold(0, best) as u32)
}

#[test]
fn two_hundred_tokens_with_the_cache_are_those_of_graphs_without_one() {
    let backend = backends::linked();
    let model = TestModel { seed: 21, max_positions: CL as usize, ..TestModel::tiny(Family::Gpt2) };
    let naive = Bundle::make(&model, &backend, |o| {
        (o.ars, o.cls, o.precision) = (vec![CL], vec![CL], Precision::F32);
    });
    let mut naive = naive.engine(&backend);
    for splits in [Splits::Mono, Splits::LutDecoderLmhead] {
        let bundle = Bundle::make(&model, &backend, |o| {
            (o.ars, o.cls, o.splits, o.precision) = (vec![1, 8, AR as u32], vec![96, CL], splits, Precision::F32);
        });
        let mut engine = bundle.engine(&backend);
        for prompt in [1, AR - 1, AR, AR + 1, 2 * AR + 3] {
            let mut tokens: Vec<TokenId> = (0..prompt as u32).map(|i| TokenId((i * 37 + 11) % 250)).collect();
            engine.reset().unwrap();
            let mut row = engine.process(&tokens).unwrap().to_vec();
            for i in 0..N_TOKENS {
                let whole = naive.recompute(&tokens).unwrap();
                let largest = whole.iter().fold(0.0f32, |m, x| m.max(x.abs()));
                let off = row.iter().zip(whole).fold(0.0f32, |m, (a, b)| m.max((a - b).abs())) / largest;
                assert!(off <= TOLERANCE, "{splits}, prompt {prompt}, token {i}: off by {off:e}");
                assert_eq!(argmax(&row), argmax(whole), "{splits}, prompt {prompt}, token {i}");
                let token = argmax(&row);
                tokens.push(token);
                row = engine.process(&[token]).unwrap().to_vec();
            }
        }
    }
}

/// Changes the configuration and the tensors of a checkpoint.
fn edit(dir: &Path, config: impl Fn(&mut Value), rename: impl Fn(&str) -> String, more: &[(&str, Vec<usize>)]) {
    let path = dir.join("config.json");
    let mut value: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    config(&mut value);
    std::fs::write(&path, value.to_string()).unwrap();
    let path = dir.join("model.safetensors");
    let bytes = std::fs::read(&path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let mut tensors: BTreeMap<String, (Vec<usize>, Vec<u8>)> =
        file.tensors().into_iter().map(|(name, t)| (rename(&name), (t.shape().to_vec(), t.data().to_vec()))).collect();
    for (name, dims) in more {
        tensors.insert((*name).to_owned(), (dims.clone(), vec![0; 4 * dims.iter().product::<usize>()]));
    }
    let views = tensors.iter().map(|(name, (dims, b))| (name, TensorView::new(Dtype::F32, dims.clone(), b).unwrap()));
    std::fs::write(&path, serialize(views, None).unwrap()).unwrap();
}

fn compiled(from: &Path, to: &Path) -> Result<Engine, CompileError> {
    let options =
        CompileOptions { ars: vec![1, 8], cls: vec![32], precision: Precision::F32, ..CompileOptions::new(from, to) };
    compile(&options, &backends::linked(), &mut Silent)?;
    let config = DialogConfig::from_file(to.join(CONFIG_FILE)).unwrap();
    Ok(Engine::open(config.engine(), &backends::linked()).unwrap())
}

#[test]
fn older_checkpoints_have_no_prefix_and_constants_of_the_mask() {
    let place = tempfile::tempdir().unwrap();
    let model = place.path().join("model");
    TestModel { max_positions: 40, ..TestModel::tiny(Family::Gpt2) }.write(&model).unwrap();
    // Scores that are not scaled.
    edit(&model, |config| config["scale_attn_weights"] = json!(false), str::to_owned, &[]);
    let tokens: Vec<u32> = (0..20).map(|i| (i * 37 + 11) % 250).collect();
    let ids: Vec<TokenId> = tokens.iter().copied().map(TokenId).collect();
    let expected = Reference::open(&model).logits(&tokens);
    let more = [
        ("h.0.attn.bias", vec![1, 1, 40, 40]),
        ("h.1.attn.bias", vec![1, 1, 40, 40]),
        ("h.0.attn.masked_bias", vec![1]),
    ];
    edit(&model, |_| (), |name| name.trim_start_matches("transformer.").to_owned(), &more);
    let mut engine = compiled(&model, &place.path().join("bundle")).unwrap();
    let found = engine.process(&ids).unwrap();
    let largest = expected[19].iter().fold(0.0f64, |m, x| m.max(x.abs()));
    let off = found.iter().zip(&expected[19]).fold(0.0f64, |m, (a, b)| m.max((f64::from(*a) - b).abs())) / largest;
    assert!(off <= f64::from(TOLERANCE), "off by {off:e}");
}

#[test]
fn what_a_gpt2_cannot_be_is_refused_in_the_checkpoints_words() {
    let place = tempfile::tempdir().unwrap();
    let write = |name: &str, max_positions: usize| {
        let model = place.path().join(name);
        TestModel { max_positions, ..TestModel::tiny(Family::Gpt2) }.write(&model).unwrap();
        model
    };
    let message = |model: &Path| compiled(model, &place.path().join("bundle")).err().unwrap().to_string();
    assert_eq!(message(&write("short", 20)), "CL-32 is longer than the 20 positions that the model has a table of");
    let scaled = write("scaled", 40);
    edit(&scaled, |config| config["scale_attn_by_inverse_layer_idx"] = json!(true), str::to_owned, &[]);
    assert!(message(&scaled).starts_with("unsupported `scale_attn_by_inverse_layer_idx`"), "{}", message(&scaled));
    let other = write("other", 40);
    let renamed = |name: &str| name.replace("h.1.mlp.c_fc.bias", "h.1.mlp.c_fx.bias");
    edit(&other, |_| (), renamed, &[]);
    assert!(message(&other).contains("transformer.h.1.mlp.c_fc.bias"), "{}", message(&other));
}
