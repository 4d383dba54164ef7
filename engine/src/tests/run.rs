//! Cached generation equals the model without a cache, whatever the form, the plan and the history.

use genie_types::{Quant, TokenId};
use kvmanager::{Eviction, ModeKind, Overflow, Policy, SeqId};
use nsp_graph::InputRole;
use proptest::prelude::*;

use super::bundle::{Cut, Form, PAD, Types, VOCAB, config};
use super::toy::{Toy, reference};
use crate::{Engine, EngineConfig, EngineError, SeqTokens, TokenModel};

const VARIANTS: &[(usize, usize)] = &[(1, 16), (4, 16), (1, 32), (4, 32)];

pub(super) fn engine(form: Form, config: &EngineConfig) -> Engine<Toy> {
    let layout = form.layout();
    Engine::with_executor(layout.clone(), Toy::new(layout), config).unwrap_or_else(|e| panic!("{form:?}: {e}"))
}

pub(super) fn truth(engine: &Engine<Toy>, tokens: &[u32]) -> Vec<f32> {
    windowed(engine, tokens, usize::MAX)
}

/// With layer 1 seeing `window` keys.
fn windowed(engine: &Engine<Toy>, tokens: &[u32], window: usize) -> Vec<f32> {
    let graphs = engine.layout().splits.iter().flat_map(|s| &s.graphs);
    let cos = graphs.filter_map(|g| g.input(InputRole::Cos(0))).map(|(_, t)| t).next().expect("the toy has cosines");
    reference(
        tokens,
        &cos.quant,
        if cos.quant == Quant::None { cos.dtype } else { genie_types::Dtype::UFixed16 },
        window,
    )
}

pub(super) fn ids(tokens: &[u32]) -> Vec<TokenId> {
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
    for policy in [Policy::Lenient, Policy::FixedVariant] {
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
        let longest = form.layout().max_cl();
        // AR-4 alone leaves no room for single steps at the end: up to there it must be right.
        let config = if variants == [(4, 16)] { EngineConfig { context_size: Some(13), ..config() } } else { config() };
        for prompt in 1..=longest.min(config.context_size.unwrap_or(longest)) {
            check(form, &config, prompt);
        }
    }
}

#[test]
fn other_modes_of_the_cache() {
    for kv_mode in [ModeKind::SHIFT_CONCAT, ModeKind::POINTER_SHIFT] {
        for cut in [Cut::Mono, Cut::Four] {
            for prompt in [1, 5, 14, 27] {
                let form = Form { cut, types: Types::Mixed, ..Form::plain(VARIANTS) };
                check(form, &EngineConfig { kv_mode: Some(kv_mode), n_threads: 1, ..config() }, prompt);
            }
        }
    }
}

#[test]
fn a_windowed_group_sees_its_window() {
    for (scatter, cut) in [(true, Cut::Mono), (false, Cut::Mono), (true, Cut::Four)] {
        for size in [1, 4, 5, 8] {
            let form = Form { cut, scatter, types: Types::Mixed, swa: Some(12), ..Form::plain(VARIANTS) };
            let rule = Eviction::Window { size, sinks: 0 };
            let long_context = vec![("swa_".to_owned(), rule)];
            let mut engine = engine(form, &EngineConfig { long_context, n_threads: 1, ..config() });
            for prompt in [1, 3, 9, 17] {
                engine.reset().unwrap();
                let mut tokens: Vec<u32> = (0..prompt).map(|i| (i * 17 + 3) % VOCAB as u32).collect();
                let mut fresh = tokens.clone();
                while tokens.len() <= engine.context_size() {
                    let want = windowed(&engine, &tokens, size);
                    let found = engine.process(&ids(&fresh)).unwrap();
                    assert_eq!(
                        found,
                        want,
                        "window {size}, scatter {scatter}, {cut:?}, {prompt} then {}",
                        tokens.len()
                    );
                    fresh = vec![want[1] as u32 % VOCAB as u32];
                    tokens.extend(&fresh);
                }
            }
        }
    }
}

#[test]
fn a_ring_goes_on_beyond_the_compiled_context() {
    let long_context = vec![("past_".to_owned(), Eviction::Ring { sinks: 2 })];
    let config = EngineConfig { context_size: Some(50), long_context, ..config() };
    let mut engine = engine(Form { cut: Cut::Two, ..Form::plain(VARIANTS) }, &config);
    let tokens: Vec<u32> = (0..50).map(|i| (i * 7 + 1) % VOCAB as u32).collect();
    for (i, token) in tokens.iter().enumerate() {
        let found = engine.process(&ids(&[*token])).unwrap().to_vec();
        let whole = truth(&engine, &tokens[..=i]);
        // 31 rows of past and the token itself: from the 33rd token on something is missing.
        assert_eq!(found == whole, i < 32, "token {i}");
    }
    assert_eq!((engine.context_size(), engine.n_past()), (50, 50));
    let err = engine.process(&ids(&[1])).unwrap_err().to_string();
    assert_eq!(err, "context limit exceeded: 50 past + 1 new tokens > 50");
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
            "ar1_cl16_3_of_3",
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
fn heads_run_for_the_rows_that_are_asked_for() {
    const SETS: &[(usize, usize)] = &[(1, 32), (2, 32), (8, 16), (8, 32)];
    let form = Form { cut: Cut::Two, types: Types::Mixed, ..Form::plain(SETS) };
    let heads = |engine: &Engine<Toy>| -> Vec<String> {
        engine.steps().names().filter(|name| name.ends_with("2_of_2")).map(str::to_owned).collect()
    };
    let tokens: Vec<u32> = (0..19).map(|i| (i * 11 + 2) % VOCAB as u32).collect();
    struct Case {
        policy: Policy,
        last: &'static [&'static str],
        rows: &'static [&'static str],
    }
    let cases = [
        // The tail of 3 runs on AR-8; its last row alone, or its last two after 17 that are known.
        Case { policy: Policy::Lenient, last: &["ar1_cl32_2_of_2"], rows: &["ar2_cl32_2_of_2"] },
        // As libGenie does: the head of the step.
        Case { policy: Policy::Genie, last: &["ar8_cl32_2_of_2"], rows: &["ar2_cl32_2_of_2"] },
    ];
    for Case { policy, last, rows } in cases {
        let mut engine = engine(form, &EngineConfig { policy, ..config() });
        let want = truth(&engine, &tokens);
        assert_eq!(engine.process(&ids(&tokens)).unwrap(), want);
        assert_eq!(heads(&engine), last);
        engine.rewind(17).unwrap();
        engine.clear_steps();
        let mut found = Vec::new();
        engine.process_rows(&ids(&tokens[17..]), &mut |_, logits| found.push(logits.to_vec())).unwrap();
        assert_eq!(found, [truth(&engine, &tokens[..18]), truth(&engine, &tokens)]);
        assert_eq!(heads(&engine), rows);
    }
    // Of two sequences in one step the ends are wanted, wherever they lie.
    let mut engine = engine(form, &config());
    let others = [4, 5, 6];
    let batch =
        [SeqTokens { seq: SeqId(0), tokens: &ids(&tokens[..4]) }, SeqTokens { seq: SeqId(1), tokens: &ids(&others) }];
    let mut found = Vec::new();
    engine.process_batch(&batch, &mut |_, logits| found.push(logits.to_vec())).unwrap();
    assert_eq!(found, [truth(&engine, &tokens[..4]), truth(&engine, &others)]);
    assert_eq!(heads(&engine), ["ar2_cl32_2_of_2"]);
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

#[test]
fn policy_genie_gives_up_where_libgenie_does_and_keeps_the_dialog() {
    struct Case {
        prompt: usize,
        ran: &'static [(&'static str, usize)],
        gave_up: (usize, usize),
    }
    let cases = [
        // Pieces of 4; the last one is too wide for the room that is left.
        Case { prompt: 31, ran: &[("ar4_cl16", 3), ("ar4_cl32", 5)], gave_up: (28, 3) },
        Case { prompt: 32, ran: &[("ar4_cl16", 3), ("ar4_cl32", 5)], gave_up: (28, 4) },
    ];
    let config = EngineConfig { policy: Policy::Genie, ..config() };
    let mut engine = engine(Form::plain(VARIANTS), &config);
    let graphs = |engine: &Engine<Toy>| -> Vec<(String, usize)> {
        let shape = |name: &str| name.split("_1_of").next().unwrap_or_default().to_owned();
        engine.steps().runs().into_iter().map(|(name, n)| (shape(name), n)).collect()
    };
    for Case { prompt, ran, gave_up } in cases {
        let tokens: Vec<u32> = (0..prompt as u32).map(|i| i % VOCAB as u32).collect();
        engine.clear_steps();
        let error = engine.process(&ids(&tokens)).unwrap_err().to_string();
        let (n_past, n_piece) = gave_up;
        assert_eq!(
            error,
            format!("libGenie gives up at {n_past} past tokens with a chunk of {n_piece}; policy `lenient` goes on")
        );
        let ran: Vec<(String, usize)> = ran.iter().map(|&(name, n)| (name.to_owned(), n)).collect();
        assert_eq!((graphs(&engine), engine.n_past()), (ran, 0), "{prompt} tokens");
    }
    // 31 rows are there after single steps; the 32nd is run, and its logits are discarded.
    let tokens: Vec<u32> = (0..32).map(|i| i % VOCAB as u32).collect();
    for n in 0..31 {
        let want = truth(&engine, &tokens[..=n]);
        assert_eq!(engine.process(&ids(&tokens[n..=n])).unwrap(), want, "token {n}");
    }
    engine.clear_steps();
    assert!(matches!(
        engine.process(&ids(&tokens[31..])),
        Err(EngineError::Overflow(Overflow::GenieGivesUp { n_past: 31, n_piece: 1 }))
    ));
    assert_eq!((graphs(&engine), engine.n_past()), (vec![("ar1_cl32".to_owned(), 1)], 31));
    // The dialog is as it was: another policy goes on from there.
    engine.set_policy(Policy::Lenient);
    let want = truth(&engine, &tokens);
    assert_eq!(engine.process(&ids(&tokens[31..])).unwrap(), want);
}
