//! Cached generation says what the model says without a cache, whatever the form, the plan and the history.

use genie_types::{Quant, TokenId};
use kvmanager::Policy;
use nsp_graph::InputRole;
use proptest::prelude::*;

use super::bundle::{Cut, Form, PAD, Types, VOCAB, config};
use super::toy::{Toy, reference};
use crate::{Engine, EngineConfig, TokenModel};

const VARIANTS: &[(usize, usize)] = &[(1, 16), (4, 16), (1, 32), (4, 32)];

fn engine(form: Form, config: &EngineConfig) -> Engine<Toy> {
    let layout = form.layout();
    Engine::with_executor(layout.clone(), Toy::new(layout), config).unwrap_or_else(|e| panic!("{form:?}: {e}"))
}

fn truth(engine: &Engine<Toy>, tokens: &[u32]) -> Vec<f32> {
    let graphs = engine.layout().splits.iter().flat_map(|s| &s.graphs);
    let cos = graphs.filter_map(|g| g.input(InputRole::Cos)).map(|(_, t)| t).next().expect("the toy has cosines");
    reference(tokens, &cos.quant, if cos.quant == Quant::None { cos.dtype } else { genie_types::Dtype::UFixed16 })
}

fn ids(tokens: &[u32]) -> Vec<TokenId> {
    tokens.iter().copied().map(TokenId).collect()
}

/// Prompts of that length, then greedy steps to the end of the context; every step's logits are checked.
fn check(form: Form, config: &EngineConfig, prompt: usize) {
    let mut engine = engine(form, config);
    let mut tokens: Vec<u32> = (0..prompt).map(|i| (i * 17 + 3) as u32 % VOCAB as u32).collect();
    let mut fresh = tokens.clone();
    while tokens.len() <= engine.context_size() {
        let want = truth(&engine, &tokens);
        let found = engine.process(&ids(&fresh)).unwrap_or_else(|e| panic!("{form:?} at {}: {e}", tokens.len()));
        assert_eq!(found, want, "{form:?}, prompt {prompt}, token {}", tokens.len());
        let next = (0..VOCAB).max_by(|&a, &b| want[a].total_cmp(&want[b])).expect("there are entries") as u32;
        tokens.push(next);
        fresh = vec![next];
    }
    assert_eq!(engine.n_past(), engine.context_size());
    let err = engine.process(&ids(&fresh)).unwrap_err().to_string();
    let limit = engine.context_size();
    assert_eq!(err, format!("context limit exceeded: {limit} past + 1 new tokens > {limit}"));
}

#[test]
fn every_form_equals_the_model_without_cache() {
    let plain = Form::plain(VARIANTS);
    for cut in [Cut::Mono, Cut::Two, Cut::Three, Cut::Four, Cut::Layers] {
        for types in [Types::F32, Types::F16, Types::Mixed, Types::Wide] {
            for scatter in [false, true] {
                let form = Form { cut, types, scatter, per_head: scatter, rank3: types == Types::Mixed, ..plain };
                for n_threads in [0, 2] {
                    check(form, &EngineConfig { n_threads, ..config() }, 9);
                }
            }
        }
    }
}

#[test]
fn every_prompt_length_and_policy() {
    let form = Form { cut: Cut::Four, ..Form::plain(VARIANTS) };
    for policy in [Policy::Genie, Policy::FixedVariant] {
        for prompt in 1..=32 {
            check(form, &EngineConfig { policy: policy.clone(), ..config() }, prompt);
        }
    }
}

#[test]
fn other_sets_of_variants() {
    let sets: [&'static [(usize, usize)]; 6] =
        [&[(1, 16)], &[(4, 16)], &[(2, 8), (1, 16), (8, 16)], &[(16, 16)], &[(1, 16), (16, 16)], &[(8, 16), (1, 24)]];
    for variants in sets {
        let form = Form { cut: Cut::Three, ..Form::plain(variants) };
        let longest = form.layout().max_ctx_size();
        // AR-4 alone leaves no room for single steps at the end: up to there it must be right.
        let config = if variants == [(4, 16)] { EngineConfig { context_size: Some(13), ..config() } } else { config() };
        for prompt in 1..=longest.min(config.context_size.unwrap_or(longest)) {
            check(form, &config, prompt);
        }
    }
}

#[test]
fn a_smaller_context_is_respected() {
    check(Form::plain(VARIANTS), &EngineConfig { context_size: Some(11), ..config() }, 5);
}

#[test]
fn heads_run_where_logits_are_wanted() {
    let mut engine = engine(Form { cut: Cut::Three, ..Form::plain(VARIANTS) }, &config());
    engine.process(&ids(&[1, 2, 3, 4, 5, 6])).unwrap();
    engine.prefill(&ids(&[7])).unwrap();
    engine.process(&ids(&[8])).unwrap();
    let names: Vec<&str> = engine.steps().names().collect();
    assert_eq!(
        names,
        [
            "ar4_cl16_1_of_3",
            "ar4_cl16_2_of_3",
            "ar4_cl16_1_of_3",
            "ar4_cl16_2_of_3",
            "ar4_cl16_3_of_3",
            "ar1_cl16_1_of_3",
            "ar1_cl16_2_of_3",
            "ar1_cl16_1_of_3",
            "ar1_cl16_2_of_3",
            "ar1_cl16_3_of_3",
        ]
    );
    engine.clear_steps();
    assert!(engine.steps().is_empty());
    assert_eq!(ids(&[1, 2, 3, 4, 5, 6, 7, 8]), engine.history());
}

#[test]
fn ids_are_padded_and_the_index_is_the_first_free_slot() {
    let mut engine = engine(Form { scatter: true, ..Form::plain(VARIANTS) }, &config());
    engine.process(&ids(&[1, 2, 3, 4, 5, 6])).unwrap();
    let calls = &engine.executor().calls;
    assert_eq!(calls[0].ids, [1, 2, 3, 4]);
    assert_eq!(calls[1].ids, [5, 6, PAD.0, PAD.0]);
    assert_eq!((calls[0].index, calls[1].index), (Some(0), Some(4)));
}

#[test]
fn rows_of_every_token() {
    for variants in [VARIANTS, &[(16, 16)]] {
        let mut engine = engine(Form { cut: Cut::Two, ..Form::plain(variants) }, &config());
        let tokens = [9, 8, 7, 6, 5, 4, 3, 2, 1];
        engine.process(&ids(&tokens[..2])).unwrap();
        let mut rows = Vec::new();
        engine.process_rows(&ids(&tokens[2..]), &mut |place, logits| rows.push((place, logits.to_vec()))).unwrap();
        let want: Vec<_> = (2..9).map(|i| (i - 2, truth(&engine, &tokens[..=i]))).collect();
        assert_eq!(rows, want);
        assert_eq!(engine.n_past(), 9);
    }
}

#[test]
fn recomputing_uses_a_graph_without_past_if_there_is_one() {
    let tokens = [3, 1, 4, 1, 5, 9, 2, 6];
    for (variants, graph) in [(VARIANTS, "ar4_cl16_1_of_1"), (&[(1, 16), (16, 16)], "ar16_cl16_1_of_1")] {
        let mut engine = engine(Form::plain(variants), &config());
        engine.process(&ids(&[5, 5])).unwrap();
        engine.clear_steps();
        let want = truth(&engine, &tokens);
        assert_eq!(engine.recompute(&ids(&tokens)).unwrap(), want);
        assert!(engine.steps().names().all(|name| name == graph), "{:?}", engine.steps().runs());
        // The dialog goes on from there.
        let want = truth(&engine, &[&tokens[..], &[7]].concat());
        assert_eq!(engine.process(&ids(&[7])).unwrap(), want);
    }
}

#[derive(Clone, Debug)]
enum Act {
    Process(usize),
    Prefill(usize),
    Rewind(usize),
    Reset,
    Fail(usize),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => (1usize..12).prop_map(Act::Process),
        2 => (0usize..8).prop_map(Act::Prefill),
        2 => (0usize..100).prop_map(Act::Rewind),
        1 => Just(Act::Reset),
        1 => (1usize..9).prop_map(Act::Fail),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Any history of calls, failing ones too, leaves the model where its tokens say it is.
    #[test]
    fn any_history(acts in prop::collection::vec(act(), 1..24), cut in 0usize..5, scatter: bool, n_threads in 0usize..3) {
        let cut = [Cut::Mono, Cut::Two, Cut::Three, Cut::Four, Cut::Layers][cut];
        let form = Form { cut, scatter, types: Types::Mixed, ..Form::plain(VARIANTS) };
        let mut engine = engine(form, &EngineConfig { n_threads, ..config() });
        let mut tokens: Vec<u32> = Vec::new();
        let mut next = 1u32;
        for act in acts {
            let mut take = |n: usize, held: usize| -> Vec<u32> {
                let n = n.min(32 - held);
                (0..n).map(|_| { next = (next * 31 + 7) % VOCAB as u32; next }).collect()
            };
            match act {
                Act::Process(n) => {
                    let fresh = take(n, tokens.len());
                    tokens.extend(&fresh);
                    if fresh.is_empty() {
                        prop_assert!(engine.process(&[]).is_err());
                    } else {
                        let want = truth(&engine, &tokens);
                        prop_assert_eq!(engine.process(&ids(&fresh)).unwrap(), &want[..]);
                    }
                }
                Act::Prefill(n) => {
                    let fresh = take(n, tokens.len());
                    tokens.extend(&fresh);
                    engine.prefill(&ids(&fresh)).unwrap();
                }
                Act::Rewind(to) => {
                    let to = to % (tokens.len() + 1);
                    tokens.truncate(to);
                    engine.rewind(to).unwrap();
                }
                Act::Reset => {
                    tokens.clear();
                    engine.reset().unwrap();
                }
                Act::Fail(after) => {
                    let fresh = take(9, tokens.len());
                    let toy = engine.executor_mut();
                    toy.fail_at = Some(toy.calls.len() + after);
                    match engine.process(&ids(&fresh)) {
                        Ok(_) => tokens.extend(&fresh),
                        Err(e) => prop_assert!(fresh.is_empty() || e.to_string().contains("failed"), "{}", e),
                    }
                    engine.executor_mut().fail_at = None;
                }
            }
            prop_assert_eq!(engine.n_past(), tokens.len());
        }
    }
}
