//! Runs every example's functions and holds them against recomputation.

#[allow(dead_code, clippy::duplicate_mod)] // the example's `main`; the second example loads the file too
#[path = "../examples/01_logits_of_a_prompt.rs"]
mod logits_of_a_prompt;
#[allow(dead_code)] // the example's `main`
#[path = "../examples/02_several_sequences.rs"]
mod several_sequences;

use engine::{Engine, TokenModel};
use genie_types::TokenId;

const PROMPT: [TokenId; 5] = [TokenId(1), TokenId(2), TokenId(3), TokenId(4), TokenId(5)];

fn open(folder: &std::path::Path) -> Engine {
    let backend = testkit::linked_backend();
    Engine::open(&logits_of_a_prompt::bundle(folder, &backend).unwrap(), &backend).unwrap()
}

#[test]
fn greedy_tokens_of_a_prompt() {
    let folder = tempfile::tempdir().unwrap();
    let mut engine = open(folder.path());
    let tokens = logits_of_a_prompt::generate(&mut engine, &PROMPT, 10).unwrap();
    let ran: Vec<_> = engine.steps().runs().into_iter().map(|(name, n)| (name.to_owned(), n)).collect();
    assert_eq!(ran, [("ar8_cl64_1_of_1".to_owned(), 1), ("ar1_cl64_1_of_1".to_owned(), 9)]);
    let all: Vec<_> = PROMPT.iter().chain(&tokens).copied().collect();
    for n in PROMPT.len()..all.len() {
        let logits = engine.recompute(&all[..n]).unwrap();
        let best = (0..logits.len()).max_by(|&a, &b| logits[a].total_cmp(&logits[b])).unwrap();
        assert_eq!(best as u32, all[n].0, "after {n} tokens");
    }
}

#[test]
fn two_sequences_in_one_step_have_the_logits_of_each_alone() {
    let folder = tempfile::tempdir().unwrap();
    let mut engine = open(folder.path());
    let next = [TokenId(6), TokenId(7)];
    let together = several_sequences::branch(&mut engine, &PROMPT, next).unwrap();
    assert_eq!(engine.steps().len(), 2, "the prompt and one step for both: {:?}", engine.steps().runs());
    for (row, token) in together.iter().zip(next) {
        let alone = engine.recompute(&[&PROMPT[..], &[token]].concat()).unwrap();
        let off = row.iter().zip(alone).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(row.len() == alone.len() && off < 1e-4, "off by {off}");
    }
}
