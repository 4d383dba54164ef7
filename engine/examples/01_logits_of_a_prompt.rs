//! Compiles a small random model, opens its bundle and decodes greedily from the logits:
//! `cargo run -p engine --example 01_logits_of_a_prompt`.

use compiler::testmodel::TestModel;
use compiler::{CompileOptions, Family, Silent, compile};
use engine::{Engine, EngineConfig, EngineError, RopeConfig, TokenModel};
use genie_types::TokenId;
use qnn_api::{Backend, BackendOptions, Library};
use std::error::Error;
use std::path::Path;
use std::sync::Arc;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let backend = Backend::new(&Library::linked(qnn_host::providers())?, &BackendOptions::default())?;
    let mut engine = Engine::open(&bundle(folder.path(), &backend)?, &backend)?;
    println!("{:?}", generate(&mut engine, &[1, 2, 3, 4, 5].map(TokenId), 10)?);
    println!("{}", engine.steps());
    Ok(())
}

/// Processes the prompt in as few steps as the graphs' AR allows, then one token per step. Returns the `n` new tokens.
pub fn generate(model: &mut impl TokenModel, prompt: &[TokenId], n: usize) -> Result<Vec<TokenId>, EngineError> {
    let mut next = greedy(model.process(prompt)?);
    let mut generated = vec![next];
    while generated.len() < n {
        next = greedy(model.process(&[next])?);
        generated.push(next);
    }
    Ok(generated)
}

/// The token with the largest logit.
fn greedy(logits: &[f32]) -> TokenId {
    let largest = (0..logits.len()).max_by(|&a, &b| logits[a].total_cmp(&logits[b]));
    TokenId(largest.expect("a vocabulary has entries") as u32)
}

/// Compiles AR 1 and 8 for a context of 64 tokens; returns the settings to open it with.
pub fn bundle(folder: &Path, backend: &Arc<Backend>) -> Result<EngineConfig, Box<dyn Error>> {
    let model = TestModel::tiny(Family::Llama);
    model.write(&folder.join("model"))?;
    let (ars, cls) = (vec![1, 8], vec![64]);
    let options = CompileOptions { ars, cls, ..CompileOptions::new(folder.join("model"), folder.join("bundle")) };
    let manifest = compile(&options, backend, &mut Silent)?;
    let mut bins: Vec<_> = manifest.graphs.iter().map(|graph| folder.join("bundle").join(&graph.file)).collect();
    bins.dedup();
    let rope = RopeConfig::new(model.head_dim / 2, model.rope_theta).with_scaling(model.scaling.clone());
    Ok(EngineConfig { rope: Some(rope), ..EngineConfig::new(bins) })
}
