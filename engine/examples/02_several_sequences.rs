//! Two sequences share a prompt, go on with a token of their own, and run in one batch:
//! `cargo run -p engine --example 02_several_sequences`.

#[allow(dead_code)] // the other example's `main`
#[path = "01_logits_of_a_prompt.rs"]
mod logits_of_a_prompt;

use engine::{Engine, EngineError, Executor, SeqId, SeqTokens, TokenModel};
use genie_types::TokenId;
use qnn_api::{Backend, BackendOptions, Library};
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let backend = Backend::new(&Library::linked(qnn_host::providers())?, &BackendOptions::default())?;
    let mut engine = Engine::open(&logits_of_a_prompt::bundle(folder.path(), &backend)?, &backend)?;
    let logits = branch(&mut engine, &[1, 2, 3, 4, 5].map(TokenId), [TokenId(6), TokenId(7)])?;
    println!("largest logits: {:?}", logits.map(|row| row.into_iter().fold(f32::MIN, f32::max)));
    println!("{}", engine.steps());
    Ok(())
}

/// The logits after `prompt` and one more token, for two such tokens: the prompt runs once, both tokens in one step.
pub fn branch<X: Executor>(
    engine: &mut Engine<X>,
    prompt: &[TokenId],
    tokens: [TokenId; 2],
) -> Result<[Vec<f32>; 2], EngineError> {
    let seqs = [SeqId(0), SeqId(1)];
    engine.prefill(prompt)?;
    engine.share(seqs[0], seqs[1], 0..prompt.len())?; // no byte moves
    let inputs = [0, 1].map(|i| SeqTokens { seq: seqs[i], tokens: &tokens[i..=i] });
    let mut rows = [Vec::new(), Vec::new()];
    engine.process_batch(&inputs, &mut |input, logits| rows[input] = logits.to_vec())?;
    Ok(rows)
}
