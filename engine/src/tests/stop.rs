//! A stop inside a prompt: what the steps before it processed is kept, can be saved, and goes on to the same logits.

use genie_types::TokenId;
use kvmanager::{Eviction, ModeKind, Policy, SeqId};

use super::bundle::{Cut, Form, config};
use super::run::{engine, ids, truth};
use crate::{
    ContextShift, Engine, EngineConfig, EngineError, Executor, ModelHash, SeqTokens, StopFlag, TokenModel, Transcript,
};

const VARIANTS: &[(usize, usize)] = &[(1, 16), (4, 16), (1, 32), (4, 32)];

/// 27 tokens: steps of four, then single ones, over a change of CL.
fn prompt() -> Vec<u32> {
    (0..27).map(|i| (i * 17 + 3) % 61).collect()
}

fn flag<X: Executor>(engine: &Engine<X>) -> StopFlag {
    engine.stop_flag().expect("an engine can be stopped")
}

fn is_stopped(error: &EngineError) -> Option<(usize, usize)> {
    match error {
        EngineError::Stopped { n_processed, n_new } => Some((*n_processed, *n_new)),
        _ => None,
    }
}

/// Stops in every graph call of the prompt; returns after how many tokens.
fn stop_everywhere(form: Form, config: &EngineConfig) -> Vec<usize> {
    let prompt = prompt();
    let mut seen = Vec::new();
    for at in 1.. {
        let mut engine = engine(form, config);
        let (wanted, stop) = (truth(&engine, &prompt), flag(&engine));
        engine.executor_mut().stop_at = Some((at, stop.clone()));
        let Err(error) = engine.process(&ids(&prompt)) else { break };
        let (n, n_new) = is_stopped(&error).unwrap_or_else(|| panic!("{form:?}: {error}"));
        assert_eq!((engine.n_past(), n_new), (n, prompt.len()), "{form:?}");
        assert_eq!(engine.transcript().tokens(), ids(&prompt[..n]));
        seen.push(n);

        // It stays stopped, and nothing changes by asking.
        let calls = engine.executor().calls.len();
        assert_eq!(is_stopped(&engine.process(&ids(&[1])).unwrap_err()), Some((0, 1)));
        assert_eq!((engine.n_past(), engine.executor().calls.len()), (n, calls));

        stop.clear();
        let saved = engine.snapshot().unwrap();
        assert_eq!(engine.process(&ids(&prompt[n..])).unwrap(), wanted, "{form:?} after {n}");
        let mut other = super::run::engine(form, config);
        other.restore_snapshot(&saved).unwrap();
        assert_eq!(other.process(&ids(&prompt[n..])).unwrap(), wanted, "{form:?} restored after {n}");
    }
    seen
}

#[test]
fn what_was_processed_before_a_stop_is_kept_and_goes_on() {
    let hash = Some(ModelHash([7; 32]));
    for cut in [Cut::Mono, Cut::Four] {
        for scatter in [false, true] {
            let form = Form { cut, scatter, per_head: scatter, ..Form::plain(VARIANTS) };
            for n_threads in [0, 2] {
                let modes = if scatter { &[None][..] } else { &[None, Some(ModeKind::SHIFT_CONCAT)] };
                for &kv_mode in modes {
                    let config = EngineConfig { n_threads, kv_mode, model_hash: hash, ..config() };
                    let mut seen = stop_everywhere(form, &config);
                    seen.dedup();
                    assert!(seen.len() >= 6 && seen.contains(&4) && seen.contains(&24), "{form:?}: {seen:?}");
                }
            }
        }
    }
}

/// More than the context holds is processed in parts, between which the oldest tokens go: `n_past` does not tell how many.
#[test]
fn a_stop_while_room_is_made_counts_the_tokens_of_all_parts() {
    let shift = ContextShift { sinks: 2, n_drop: Some(8) };
    let config = EngineConfig { context_shift: Some(shift), ..config() };
    let prompt: Vec<u32> = (0..90).map(|i| (i * 17 + 3) % 61).collect();
    let mut seen = Vec::new();
    for at in 1.. {
        let mut engine = engine(Form::plain(VARIANTS), &config);
        let stop = flag(&engine);
        engine.executor_mut().keys_turn = true;
        engine.executor_mut().stop_at = Some((at, stop.clone()));
        let Err(error) = engine.make_room(&ids(&prompt)) else { break };
        let (n, n_new) = is_stopped(&error).unwrap_or_else(|| panic!("{error}"));
        assert_eq!(n_new, prompt.len());
        assert_ends_with(engine.history(), &prompt[..n]);

        stop.clear();
        let n_more = engine.make_room(&ids(&prompt[n..])).unwrap();
        engine.process(&ids(&prompt[n + n_more..])).unwrap();
        assert_ends_with(engine.history(), &prompt);
        seen.push(n);
    }
    assert!(seen.is_sorted() && seen.iter().any(|n| *n > 32), "{seen:?}");
}

/// The first two tokens and, behind them, the last ones.
fn assert_ends_with(history: &[TokenId], tokens: &[u32]) {
    let n_last = history.len().saturating_sub(2);
    let kept = [&tokens[..tokens.len().min(2)], &tokens[tokens.len() - n_last..]].concat();
    assert_eq!(history, ids(&kept), "of {} tokens", tokens.len());
}

#[test]
fn a_stop_before_the_first_step_changes_nothing() {
    let mut engine = engine(Form::plain(VARIANTS), &config());
    engine.process(&ids(&[1, 2, 3])).unwrap();
    let calls = engine.executor().calls.len();
    flag(&engine).set();
    assert_eq!(is_stopped(&engine.prefill(&ids(&[4, 5])).unwrap_err()), Some((0, 2)));
    let draft = SeqTokens { seq: SeqId(0), tokens: &[TokenId(4)] };
    assert_eq!(is_stopped(&engine.verify_draft(draft, &mut |_| vec![true]).unwrap_err()), Some((0, 1)));
    assert_eq!(is_stopped(&engine.calibrate(1).unwrap_err()).map(|(n, _)| n), Some(0));
    flag(&engine).clear();
    assert_eq!(engine.executor().calls.len(), calls);
    engine.reset().unwrap();
    assert_eq!(engine.process(&ids(&[1, 2, 3])).unwrap(), truth(&engine_of_same(), &[1, 2, 3]));
}

fn engine_of_same() -> Engine<super::toy::Toy> {
    engine(Form::plain(VARIANTS), &config())
}

#[test]
fn every_sequence_of_a_batch_keeps_what_was_processed() {
    let mut engine = engine(Form::plain(VARIANTS), &config());
    let (one, two) = (ids(&[1, 2, 3, 4, 5, 6]), ids(&[9, 8, 7, 6, 5]));
    let stop = flag(&engine);
    engine.executor_mut().stop_at = Some((1, stop.clone()));
    let inputs = [SeqTokens { seq: SeqId(0), tokens: &one }, SeqTokens { seq: SeqId(1), tokens: &two }];
    let error = engine.process_batch(&inputs, &mut |_, _| ()).unwrap_err();
    let tokens = |seq| engine.transcript_of(SeqId(seq)).map_or(&[][..], Transcript::tokens).to_vec();
    let (n, _) = is_stopped(&error).expect("it was stopped");
    assert_eq!(n, tokens(0).len() + tokens(1).len());
    assert!(n > 0 && one.starts_with(&tokens(0)) && two.starts_with(&tokens(1)), "{:?} {:?}", tokens(0), tokens(1));
    assert_eq!([engine.next_pos(SeqId(0)), engine.next_pos(SeqId(1))], [tokens(0).len(), tokens(1).len()]);
    stop.clear();
    let rest = [
        SeqTokens { seq: SeqId(0), tokens: &one[tokens(0).len()..] },
        SeqTokens { seq: SeqId(1), tokens: &two[tokens(1).len()..] },
    ];
    let rest: Vec<_> = rest.into_iter().filter(|input| !input.tokens.is_empty()).collect();
    let mut found = Vec::new();
    engine.process_batch(&rest, &mut |_, logits| found.push(logits.to_vec())).unwrap();
    let whole = [truth(&engine, &[1, 2, 3, 4, 5, 6]), truth(&engine, &[9, 8, 7, 6, 5])];
    assert!(!found.is_empty() && found.iter().all(|logits| whole.contains(logits)));
}

#[test]
fn plans_that_give_everything_up_or_begin_again_are_stopped_between_calls() {
    // Without a cache each call processes the whole dialog again: a stop leaves it as it was.
    let form = Form::plain(&[(16, 16)]);
    let mut full = engine(form, &config());
    full.process(&ids(&[1, 2, 3])).unwrap();
    flag(&full).set();
    assert_eq!(is_stopped(&full.process(&ids(&[4])).unwrap_err()).map(|(n, _)| n), Some(0));
    flag(&full).clear();
    assert_eq!(full.n_past(), 3);
    assert_eq!(full.process(&ids(&[4])).unwrap(), truth(&engine(form, &config()), &[1, 2, 3, 4]));

    // A ring goes on behind what it had processed.
    let rule = EngineConfig { long_context: vec![("past_".to_owned(), Eviction::Ring { sinks: 2 })], ..config() };
    let mut ring = engine(Form::plain(VARIANTS), &EngineConfig { policy: Policy::Lenient, ..rule.clone() });
    let mut plain = engine(Form::plain(VARIANTS), &rule);
    let (prompt, stop) = (prompt(), flag(&ring));
    ring.executor_mut().stop_at = Some((2, stop.clone()));
    let (n, _) = is_stopped(&ring.process(&ids(&prompt)).unwrap_err()).expect("it was stopped");
    stop.clear();
    plain.process(&ids(&prompt[..n])).unwrap();
    let wanted = plain.process(&ids(&prompt[n..])).unwrap().to_vec();
    assert_eq!(ring.process(&ids(&prompt[n..])).unwrap(), wanted);
}
