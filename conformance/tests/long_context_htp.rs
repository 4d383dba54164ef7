//! Windows, rings and scattered caches on Qualcomm's HTP emulator, by the rules measured on libGenie
//! (`docs/graph-contract.md`), and our exact window where libGenie truncates it.
//!
//! The bundles are composed here; tokens are given, so that each step's logits are compared: float16 graphs within 4e-2 of
//! the largest logit of the double-precision model.

use std::sync::Arc;

use conformance::backends;
use engine::{Engine, EngineConfig, Eviction, Policy, TokenModel};
use genie_types::{Dtype, TokenId};
use qnn_api::{Backend, BackendOptions};
use testkit::{Decoder, Form, Naive, Rule, Size, distance};

const SM8650: u32 = 57;
const TOLERANCE: f64 = 4e-2;
const VARIANTS: &[(usize, usize)] = &[(1, 128), (32, 128)];

fn backend() -> Arc<Backend> {
    backends::htp(&BackendOptions { soc: Some(SM8650), ..Default::default() })
}

fn form(scatter: bool) -> Form {
    Form { dtype: Dtype::F16, scatter, htp: true, ..Form::new(VARIANTS) }
}

fn token(i: usize) -> u32 {
    (i * 37 + i * i * 11 + 5) as u32 % Size::RECORDED.vocab as u32
}

/// An engine over the emulator.
struct Rig {
    decoder: Decoder,
    form: Form,
    engine: Engine,
    _folder: tempfile::TempDir,
}

fn rig(form: Form, choose: impl FnOnce(&mut EngineConfig)) -> Rig {
    let decoder = Decoder::for_type(Size::RECORDED, 3, Dtype::F16);
    let (backend, folder) = (backend(), tempfile::tempdir().unwrap());
    let bins = form.save(&decoder, &backend, folder.path());
    let mut config = form.config(&decoder, bins);
    choose(&mut config);
    let engine = Engine::open(&config, &backend).unwrap();
    Rig { decoder, form, engine, _folder: folder }
}

/// A prompt, then one token after the other; every step's last logits against the naive cache. `around` receives the AR
/// of each step, before and after the naive cache takes it.
fn follow(
    rig: &mut Rig,
    rules: &[Rule],
    prompt: usize,
    n: usize,
    mut around: impl FnMut(&mut Naive<'_>, usize),
) -> f64 {
    let Rig { decoder, form, engine, .. } = rig;
    let mut naive = Naive::new(decoder, form, rules);
    engine.reset().unwrap();
    engine.clear_steps();
    let mut worst = 0.0f64;
    let mut at = 0;
    while at < prompt + n {
        let take = if at == 0 { prompt } else { 1 };
        let fresh: Vec<u32> = (at..at + take).map(token).collect();
        let n_before = engine.steps().len();
        let ids: Vec<TokenId> = fresh.iter().copied().map(TokenId).collect();
        let found = engine.process(&ids).unwrap_or_else(|e| panic!("at {at}: {e}")).to_vec();
        let mut want = Vec::new();
        let mut rest = fresh.as_slice();
        for name in engine.steps().names().skip(n_before) {
            let ar: usize = name[2..name.find('_').unwrap()].parse().unwrap();
            let (now, later) = rest.split_at(ar.min(rest.len()));
            around(&mut naive, ar);
            want = naive.go_on(0, now).pop().unwrap();
            around(&mut naive, ar);
            rest = later;
        }
        assert!(rest.is_empty(), "the steps took all tokens");
        at += take;
        let off = distance(&found, &want);
        assert!(off < TOLERANCE, "{rules:?}: off by {off} at {at} tokens");
        worst = worst.max(off);
    }
    worst
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn a_window_on_the_default_group_is_a_ring_of_slots() {
    for sinks in [0, 4] {
        let mut rig = rig(form(false), |config| {
            config.context_size = Some(300);
            config.long_context = vec![("past_".into(), Eviction::Ring { sinks })];
            // libGenie takes its older path here: one AR for all of an input.
            config.policy = Policy::FixedVariant;
        });
        let worst = follow(&mut rig, &[Rule::All], 150, 40, |naive, ar| naive.ring(128 - ar, sinks));
        eprintln!("ring, {sinks} sinks: off by at most {worst:.4}");
        let runs: Vec<(String, usize)> =
            rig.engine.steps().runs().into_iter().map(|(name, n)| (name.to_owned(), n)).collect();
        assert_eq!(runs, [("ar32_cl128_1_of_1".into(), 5), ("ar1_cl128_1_of_1".into(), 40)]);
        assert_eq!((rig.engine.n_past(), rig.engine.cells(0).unwrap().n_used()), (190, 127));
        let err = rig.engine.process(&vec![TokenId(1); 111]).unwrap_err().to_string();
        assert_eq!(err, "context limit exceeded: 190 past + 111 new tokens > 300");
    }
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn two_groups_with_scatter_see_everything_and_their_window() {
    // 32 and 33: libGenie is exact, and so are we. 40: its chunk is capped and its window truncated; ours is exact.
    let mut worst = 0.0f64;
    for size in [32, 33, 40] {
        let mut rig = rig(form(true).with_window_group(64), |config| {
            config.long_context = vec![("swa_".into(), Eviction::Window { size, sinks: 0 })];
        });
        // 80 and 23 tokens of prompt: full chunks and a short one; then across the end of the 64 slots.
        for (prompt, n) in [(80, 17), (23, 20)] {
            let rules = [Rule::All, Rule::Window { size, sinks: 0 }];
            worst = worst.max(follow(&mut rig, &rules, prompt, n, |_, _| ()));
        }
        let longest = rig.engine.cells(1).unwrap().n_used();
        assert!(longest <= size, "the window group holds {longest} rows for a window of {size}");
    }
    eprintln!("two groups, scatter: off by at most {worst:.4}");
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn two_groups_with_concat_see_everything_and_their_window() {
    let mut rig = rig(form(false).with_window_group(64), |config| {
        config.long_context = vec![("swa_".into(), Eviction::Window { size: 24, sinks: 2 })];
    });
    let worst = follow(&mut rig, &[Rule::All, Rule::Window { size: 24, sinks: 2 }], 70, 20, |_, _| ());
    eprintln!("two groups, concat: off by at most {worst:.4}");
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn a_scattered_cache_is_written_at_its_index() {
    let mut rig = rig(form(true), |_| ());
    let mut worst = 0.0f64;
    for (prompt, n) in [(40, 12), (1, 3), (97, 2)] {
        worst = worst.max(follow(&mut rig, &[Rule::All], prompt, n, |_, _| ()));
    }
    eprintln!("scatter: off by at most {worst:.4}");
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn several_sequences_share_one_cache_on_the_emulator() {
    use engine::{SeqId, SeqTokens};
    let mut rig = rig(form(false), |_| ());
    let Rig { decoder, form, engine, .. } = &mut rig;
    let mut naive = Naive::new(decoder, form, &[Rule::All]);
    let ids = |tokens: &[u32]| tokens.iter().copied().map(TokenId).collect::<Vec<_>>();
    let prefix: Vec<u32> = (0..9).map(token).collect();
    engine.prefill(&ids(&prefix)).unwrap();
    naive.go_on(0, &prefix);
    engine.share(SeqId(0), SeqId(1), 0..7).unwrap();
    naive.share(0, 1, &(0..7));
    let (a, b, c) = ([3u32, 4, 5], [9u32, 8], [1u32, 2, 3, 4]);
    let (ia, ib, ic) = (ids(&a), ids(&b), ids(&c));
    let batch = [(0, &ia), (1, &ib), (2, &ic)].map(|(seq, tokens)| SeqTokens { seq: SeqId(seq), tokens });
    let mut found = Vec::new();
    engine.process_batch(&batch, &mut |_, logits| found.push(logits.to_vec())).unwrap();
    for (seq, (tokens, found)) in [a.as_slice(), &b, &c].into_iter().zip(&found).enumerate() {
        let want = naive.go_on(seq as u8, tokens).pop().unwrap();
        let off = distance(found, &want);
        assert!(off < TOLERANCE, "sequence {seq} is off by {off}");
    }
    assert_eq!(engine.steps().runs(), [("ar32_cl128_1_of_1", 2)], "the three take one step");
    assert_eq!(engine.cells(0).unwrap().n_used(), 9 + 9, "the shared prefix is stored once");
}
