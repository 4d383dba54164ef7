//! The engine as a scheduler and as a drafter use it, against a model without a cache.

use kvmanager::SeqId;

use super::bundle::{Cut, Form, Types, VOCAB, config};
use super::run::{engine, ids, truth};
use super::toy::Toy;
use crate::{Engine, EngineConfig, EngineError, SeqTokens, TokenModel};

const VARIANTS: &[(usize, usize)] = &[(1, 32), (8, 32), (1, 64), (8, 64)];

fn argmax(logits: &[f32]) -> u32 {
    let best = (0..logits.len()).max_by(|&a, &b| logits[a].total_cmp(&logits[b]).then(b.cmp(&a)));
    best.unwrap() as u32
}

/// The tokens that greedy decoding appends, without a cache.
fn greedy(engine: &Engine<Toy>, prompt: &[u32], n: usize) -> Vec<u32> {
    let mut text = prompt.to_vec();
    for _ in 0..n {
        text.push(argmax(&truth(engine, &text)));
    }
    text[prompt.len()..].to_vec()
}

/// Three sequences decode while a prompt comes in, four tokens of it in each step. In some rounds a graph fails in the
/// middle of the step, which is then run again. Each sequence gets the text that it gets alone.
#[test]
fn decodes_and_a_prompt_share_steps_and_failures_leave_no_trace() {
    for (cut, scatter) in [(Cut::Mono, false), (Cut::Four, false), (Cut::Four, true)] {
        let form = Form { cut, scatter, types: Types::Mixed, ..Form::plain(VARIANTS) };
        let mut engine = engine(form, &EngineConfig { n_threads: 2, ..config() });
        let prompts: Vec<Vec<u32>> =
            [5, 2, 7, 15].iter().map(|&n| (0..n).map(|i| (i * 13 + n) % VOCAB as u32).collect()).collect();
        let mut texts = prompts.clone();
        for round in 0..8 {
            let wanted: Vec<(usize, Vec<u32>)> = (0..texts.len())
                .map(|seq| {
                    let done = engine.next_pos(SeqId(seq as u8));
                    let n = (texts[seq].len() - done).min(if seq < 3 { 8 } else { 4 });
                    (seq, texts[seq][done..done + n].to_vec())
                })
                .filter(|(_, tokens)| !tokens.is_empty())
                .collect();
            let tokens: Vec<_> = wanted.iter().map(|(seq, tokens)| (SeqId(*seq as u8), ids(tokens))).collect();
            let inputs: Vec<_> = tokens.iter().map(|(seq, tokens)| SeqTokens { seq: *seq, tokens }).collect();
            let mut found: Vec<(usize, Vec<f32>)> = Vec::new();
            if round % 2 == 1 {
                let before: Vec<_> = (0..4).map(|seq| engine.next_pos(SeqId(seq))).collect();
                let toy = engine.executor_mut();
                toy.fail_at = Some(toy.calls.len() + if cut == Cut::Four { 3 } else { 1 });
                let failed = engine.process_batch(&inputs, &mut |_, _| ());
                assert!(matches!(failed, Err(EngineError::Execute { .. })), "{failed:?}");
                assert_eq!((0..4).map(|seq| engine.next_pos(SeqId(seq))).collect::<Vec<_>>(), before);
            }
            engine.process_batch(&inputs, &mut |input, logits| found.push((input, logits.to_vec()))).unwrap();
            for (input, logits) in found {
                let seq = wanted[input].0;
                let done = engine.next_pos(SeqId(seq as u8));
                assert_eq!(logits, truth(&engine, &texts[seq][..done]), "sequence {seq}, round {round}");
                if done == texts[seq].len() {
                    texts[seq].push(argmax(&logits));
                }
            }
        }
        for (text, prompt) in texts.iter().zip(&prompts) {
            assert!(text.len() >= prompt.len() + 4);
            assert_eq!(text[prompt.len()..], greedy(&engine, prompt, text.len() - prompt.len()));
        }
    }
}

/// Drafts of four tokens, right for a while, verified in one step each: the same text as one token at a time.
#[test]
fn verified_drafts_are_plain_greedy_decoding() {
    for scatter in [false, true] {
        let form = Form { scatter, types: Types::Mixed, cut: Cut::Two, ..Form::plain(VARIANTS) };
        let mut engine = engine(form, &config());
        let prompt = [3, 1, 4, 1, 5, 9];
        let mut text = prompt.to_vec();
        let first = argmax(engine.process(&ids(&prompt)).unwrap());
        text.push(first);
        let mut n_steps = 0;
        while text.len() < 40 {
            let right = n_steps % 5;
            let mut draft = greedy(&engine, &text, 4);
            draft[right.min(4)..].iter_mut().for_each(|token| *token = (*token + 1) % VOCAB as u32);
            let tokens = ids(&[&text[text.len() - 1..], &draft].concat());
            let mut accepted = Vec::new();
            let kept = engine.verify_draft(SeqTokens { seq: SeqId(0), tokens: &tokens }, &mut |rows| {
                let predicted: Vec<u32> = rows.iter().map(|row| argmax(row)).collect();
                let n_right = draft.iter().zip(&predicted).take_while(|(draft, model)| draft == model).count();
                accepted = predicted[..=n_right].to_vec();
                (0..tokens.len()).map(|i| i <= n_right).collect()
            });
            assert_eq!((kept.unwrap(), accepted.len()), (right.min(4) + 1, right.min(4) + 1));
            text.extend(&accepted);
            assert_eq!(engine.history(), ids(&text[..text.len() - 1]));
            n_steps += 1;
        }
        assert_eq!(text[prompt.len()..], greedy(&engine, &prompt, text.len() - prompt.len()));
        assert!(n_steps < text.len() - prompt.len());
    }
}
