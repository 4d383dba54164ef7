//! What llama.cpp says of the demo model as a GGUF file, our bundle of that file says too.
//!
//! `testdata/llama_cpp/golden.json` holds its ids of some prompts, its greedy tokens, and by how much each led
//! (`record.py` beside it tells how and with which version). Our engine is fed its tokens; it may prefer
//! another one only where llama.cpp's lead is within [`LEAD`].
//! Both round activations to 8 bits in front of blocks, in ways of their own: logits differ by 0.4 % in the root mean square (of
//! 3.6), so leads of a few hundredths say nothing. With half floats only the order of sums is left.

use std::path::Path;
use std::sync::Arc;

use compiler::{CONFIG_FILE, CompileOptions, Precision, Silent, Weights, compile};
use conformance::gguf::{Matrices, llama};
use conformance::{backends, greedy};
use dialog::{DialogConfig, Tokenizer};
use engine::{Engine, TokenModel};
use genie_types::TokenId;
use qnn_api::Backend;
use serde::Deserialize;

/// Largest lead that may be overturned: with half floats, and with blocks.
const LEAD: (f32, f32) = (0.005, 0.05);

#[derive(Deserialize)]
struct Entry {
    matrices: String,
    prompt: String,
    ids: Vec<u32>,
    tokens: Vec<u32>,
    margins: Vec<f32>,
}

fn check(matrices: Matrices, weights: Weights, lead: f32) {
    let golden: Vec<Entry> = serde_json::from_str(include_str!("../testdata/llama_cpp/golden.json")).unwrap();
    let place = tempfile::tempdir().unwrap();
    let (file, out) = (place.path().join("demo.gguf"), place.path().join("bundle"));
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/demo");
    std::fs::write(&file, llama(&demo, matrices)).unwrap();
    let (config, mut engine) = open(&file, &out, weights, &backends::linked());
    let tokenizer = Tokenizer::from_file(config.tokenizer()).unwrap();
    let ids = |ids: &[u32]| ids.iter().copied().map(TokenId).collect::<Vec<_>>();

    let name = format!("{matrices:?}");
    let mut n_steps = 0;
    for entry in golden.iter().filter(|entry| entry.matrices == name) {
        let input: Vec<TokenId> =
            config.context().bos.into_iter().chain(tokenizer.encode(&entry.prompt).unwrap()).collect();
        assert_eq!(input, ids(&entry.ids), "{name}: ids of {:?}", entry.prompt);
        engine.reset().unwrap();
        let found = greedy::forced(&mut engine, &input, &ids(&entry.tokens));
        for (i, (logits, (token, margin))) in
            found.logits.iter().zip(entry.tokens.iter().zip(&entry.margins)).enumerate()
        {
            let ours = greedy::best(logits).0 as u32;
            if ours != *token {
                println!("{name} {:?}: token {i} is {ours}, there {token} leads by {margin}", entry.prompt);
                assert!(
                    *margin <= lead,
                    "{name} {:?}: token {i} is {ours}, there {token} leads by {margin}",
                    entry.prompt
                );
            }
            n_steps += 1;
        }
    }
    assert_eq!(n_steps, 400, "{name}");
}

fn open(file: &Path, out: &Path, weights: Weights, backend: &Arc<Backend>) -> (DialogConfig, Engine) {
    let options = CompileOptions {
        ars: vec![1, 32],
        cls: vec![256],
        precision: Precision::F32,
        weights: Some(weights),
        ..CompileOptions::new(file, out)
    };
    compile(&options, backend, &mut Silent).unwrap();
    let config = DialogConfig::from_file(out.join(CONFIG_FILE)).unwrap();
    let engine = Engine::open(config.engine(), backend).unwrap();
    (config, engine)
}

#[test]
fn half_floats() {
    check(Matrices::F16, Weights::Float, LEAD.0);
}

#[test]
fn blocks_of_eight_bits() {
    check(Matrices::Q8_0, Weights::Q8_0, LEAD.1);
}

#[test]
fn blocks_of_four_bits() {
    check(Matrices::Q4_0, Weights::Q4_0, LEAD.1);
}
