//! Long context on the host: exact windows, shifted contexts and eviction by score against a naive cache in double
//! precision; each kind saved and restored, rewound, and with several sequences beside each other.

use std::sync::Arc;

use conformance::backends;
use engine::{ContextShift, Engine, EngineConfig, Eviction, Policy, SeqId, SeqTokens, Snapshot, TokenModel};
use genie_types::{Dtype, TokenId};
use qnn_api::Backend;
use testkit::{Decoder, Form, Naive, Rule, Size, distance};

const TOLERANCE: f64 = 1e-4;
const VARIANTS: &[(usize, usize)] = &[(1, 64), (8, 64)];

fn token(i: usize) -> u32 {
    (i * 37 + i * i * 11 + 5) as u32 % Size::TINY.vocab as u32
}

fn ids(tokens: &[u32]) -> Vec<TokenId> {
    tokens.iter().copied().map(TokenId).collect()
}

/// Graphs on disk, and what opens them.
struct Rig {
    decoder: Decoder,
    form: Form,
    config: EngineConfig,
    backend: Arc<Backend>,
    folder: tempfile::TempDir,
}

impl Rig {
    fn new(scatter: bool, choose: impl FnOnce(&mut EngineConfig)) -> Self {
        let (decoder, backend) = (Decoder::for_type(Size::TINY, 3, Dtype::F32), backends::linked());
        let (form, folder) = (Form { scatter, ..Form::new(VARIANTS) }, tempfile::tempdir().unwrap());
        let bins = form.save(&decoder, &backend, folder.path());
        let mut config = form.config(&decoder, bins);
        choose(&mut config);
        Self { decoder, form, config, backend, folder }
    }

    fn long(scatter: bool, rule: Eviction) -> Self {
        Self::new(scatter, |config| {
            config.long_context = vec![("past_".into(), rule)];
            config.context_size = Some(300);
        })
    }

    fn open(&self) -> Engine {
        Engine::open(&self.config, &self.backend).unwrap()
    }

    fn error(&self) -> String {
        Engine::open(&self.config, &self.backend).map(drop).unwrap_err().to_string()
    }

    fn through_a_file(&self, engine: &mut Engine) -> Snapshot {
        let file = self.folder.path().join("saved.kvs");
        engine.snapshot().unwrap().write(&file).unwrap();
        Snapshot::read(&file).unwrap()
    }
}

fn numbers(logits: &[f32]) -> Vec<f64> {
    logits.iter().map(|&x| x.into()).collect()
}

#[test]
fn a_window_on_the_default_group_is_exact_far_beyond_the_compiled_context() {
    for scatter in [false, true] {
        for (size, sinks) in [(20, 0), (20, 3), (57, 2), (1, 0), (64, 0)] {
            let rig = Rig::long(scatter, Eviction::Window { size, sinks });
            let mut engine = rig.open();
            let mut naive = Naive::new(&rig.decoder, &rig.form, &[Rule::Window { size, sinks }]);
            let mut at = 0;
            for n in [90, 1, 1, 5, 33, 1, 70, 1] {
                let fresh: Vec<u32> = (at..at + n).map(token).collect();
                let found = engine.process(&ids(&fresh)).unwrap().to_vec();
                let off = distance(&found, &naive.go_on(0, &fresh).pop().unwrap());
                assert!(off < TOLERANCE, "window {size}, {sinks} sinks, scatter {scatter}: off by {off} at {at}");
                at += n;
            }
            assert_eq!(engine.n_past(), 202);
        }
    }
}

#[test]
fn policy_genie_takes_the_window_for_a_ring_and_one_width_for_an_input() {
    let mut rig = Rig::long(false, Eviction::Window { size: 20, sinks: 2 });
    rig.config.policy = Policy::Genie;
    let mut engine = rig.open();
    engine.prefill(&ids(&(0..101).map(token).collect::<Vec<_>>())).unwrap();
    assert_eq!(engine.steps().runs(), [("ar8_cl64_1_of_1", 13)], "the last token is padded to the same width");
    assert_eq!(engine.cells(0).unwrap().n_used(), 56);
    for i in 101..120 {
        engine.process(&ids(&[token(i)])).unwrap();
    }
    let mut held: Vec<usize> = engine.cells(0).unwrap().used().map(|(_, cell)| cell.pos).collect();
    held.sort_unstable();
    assert_eq!(held, (0..2).chain(59..120).collect::<Vec<_>>(), "63 slots, whatever the window's size");
}

/// Where libGenie goes wrong (`ring_second_turn_htp.rs`): a wide step on a ring that narrow steps have filled.
#[test]
fn a_wide_step_on_a_ring_that_narrow_steps_have_filled_is_exact() {
    for (scatter, sinks) in [(false, 0), (false, 4), (true, 0), (true, 4)] {
        let mut rig = Rig::long(scatter, Eviction::Ring { sinks });
        // One width for an input, as libGenie.
        rig.config.policy = Policy::FixedVariant;
        let mut engine = rig.open();
        let mut naive = Naive::new(&rig.decoder, &rig.form, &[Rule::All]);
        let (mut at, mut ars) = (0, Vec::new());
        for n in [50, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 20, 1, 1, 8, 1] {
            let fresh: Vec<u32> = (at..at + n).map(token).collect();
            engine.clear_steps();
            let found = engine.process(&ids(&fresh)).unwrap().to_vec();
            let (mut want, mut rest) = (Vec::new(), fresh.as_slice());
            for name in engine.steps().names() {
                let ar: usize = name[2..name.find('_').unwrap()].parse().unwrap();
                let (now, later) = rest.split_at(ar.min(rest.len()));
                naive.ring(64 - ar, sinks);
                want = naive.go_on(0, now).pop().unwrap();
                naive.ring(64 - ar, sinks);
                rest = later;
                ars.push(ar);
            }
            let off = distance(&found, &want);
            assert!(off < TOLERANCE, "scatter {scatter}, {sinks} sinks: off by {off} at {at}");
            at += n;
        }
        assert_eq!(ars[20..], [8, 8, 8, 1, 1, 8, 1], "three wide steps behind 63 rows");
    }
}

#[test]
fn a_shifted_context_goes_on_without_end_and_equals_the_naive_one() {
    for (sinks, n_drop) in [(0, None), (4, Some(10)), (3, Some(1))] {
        let rig = Rig::new(false, |config| config.context_shift = Some(ContextShift { sinks, n_drop }));
        let mut engine = rig.open();
        let mut naive = Naive::new(&rig.decoder, &rig.form, &[Rule::All]);
        for at in 0..200 {
            let fresh = [token(at)];
            let before = engine.n_past();
            assert_eq!(engine.make_room(&ids(&fresh)).unwrap(), 0);
            let gone = before - engine.n_past();
            if gone > 0 {
                assert_eq!((before, gone), (64, n_drop.unwrap_or(16)), "only where the context is full");
                naive.remove(0, &(sinks..sinks + gone));
                naive.remap(0, &(sinks + gone..64), |pos| pos.checked_sub(gone));
            }
            let found = engine.process(&ids(&fresh)).unwrap().to_vec();
            let off = distance(&found, &naive.go_on(0, &fresh).pop().unwrap());
            assert!(off < TOLERANCE, "{sinks} sinks, {n_drop:?}: off by {off} at {at}");
        }
        assert!(engine.n_past() <= 64);
        let first: Vec<u32> = engine.history()[..sinks].iter().map(|token| token.0).collect();
        assert_eq!(first, (0..sinks).map(token).collect::<Vec<_>>(), "the reserved tokens stay");
    }
}

#[test]
fn a_prompt_longer_than_a_shifted_context_is_processed_in_parts() {
    let rig = Rig::new(false, |config| config.context_shift = Some(ContextShift { sinks: 2, n_drop: Some(16) }));
    let mut engine = rig.open();
    let prompt = ids(&(0..300).map(token).collect::<Vec<_>>());
    let n_done = engine.make_room(&prompt).unwrap();
    assert!((236..300).contains(&n_done), "{n_done}");
    engine.process(&prompt[n_done..]).unwrap();
    let n = engine.n_past();
    assert!((40..=64).contains(&n), "{n}");
    let end: Vec<TokenId> = prompt[300 - (n - 2)..].to_vec();
    assert_eq!(engine.history(), [&prompt[..2], &end].concat(), "the first two and the last ones");
}

#[test]
fn what_is_impossible_is_refused_by_name() {
    let window = |size, sinks| Rig::long(false, Eviction::Window { size, sinks }).error();
    let too_long = "the long context of cache group `past_` keeps";
    assert_eq!(window(65, 0), format!("{too_long} 65 tokens and 0 reserved ones; its graphs see at most 64"));
    assert_eq!(window(60, 5), format!("{too_long} 60 tokens and 5 reserved ones; its graphs see at most 64"));
    // One as long as the context that is asked for would drop nothing, but the graphs see less.
    assert_eq!(window(300, 0), format!("{too_long} 300 tokens and 0 reserved ones; its graphs see at most 64"));
    let reserved = Rig::long(false, Eviction::KeyDiff { sinks: 63, update_every: 1 }).error();
    assert_eq!(reserved, "the long context of cache group `past_` reserves 63 tokens, expected at most 62");
    let shift = |choose: fn(&mut EngineConfig)| {
        let mut rig = Rig::new(false, |config| config.context_shift = Some(ContextShift { sinks: 4, n_drop: None }));
        choose(&mut rig.config);
        rig.error()
    };
    let beside = shift(|config| config.long_context = vec![("past_".into(), Eviction::Ring { sinks: 0 })]);
    assert!(beside.starts_with("context shift: expected a default cache group that keeps everything"), "{beside}");
    let all = shift(|config| config.context_shift = Some(ContextShift { sinks: 60, n_drop: Some(4) }));
    assert!(all.ends_with("found 60 reserved tokens and 4 to drop of 64"), "{all}");
}

/// Every kind, with how far a full context can be rewound: a step back, and to the middle.
fn kinds() -> Vec<(&'static str, Rig, bool)> {
    let shift = Rig::new(false, |config| config.context_shift = Some(ContextShift { sinks: 2, n_drop: Some(20) }));
    vec![
        ("window", Rig::long(false, Eviction::Window { size: 20, sinks: 2 }), false),
        ("ring", Rig::long(false, Eviction::Ring { sinks: 2 }), false),
        ("keydiff", Rig::long(false, Eviction::KeyDiff { sinks: 2, update_every: 1 }), false),
        ("shift", shift, true),
    ]
}

fn feed(engine: &mut Engine, tokens: std::ops::Range<usize>) -> Vec<f64> {
    let tokens = ids(&tokens.map(token).collect::<Vec<_>>());
    let n_done = engine.make_room(&tokens).unwrap();
    numbers(engine.process(&tokens[n_done..]).unwrap())
}

#[test]
fn each_kind_goes_on_alike_after_saving_and_restoring() {
    for (name, rig, _) in kinds() {
        // Before the context is full, at its edge, and long after.
        for n in [10, 63, 64, 65, 150] {
            let (mut live, mut other) = (rig.open(), rig.open());
            feed(&mut live, 0..n);
            let saved = rig.through_a_file(&mut live);
            feed(&mut other, 7..40);
            other.restore_snapshot(&saved).unwrap();
            assert_eq!((other.n_past(), other.history()), (live.n_past(), live.history()), "{name}, {n} tokens");
            for i in n..n + 30 {
                let (want, found) = (feed(&mut live, i..i + 1), feed(&mut other, i..i + 1));
                let found: Vec<f32> = found.iter().map(|&x| x as f32).collect();
                // Rows may lie in another order after a restore, so sums may round otherwise.
                let off = distance(&found, &want);
                assert!(off < 1e-5, "{name}: saved at {n}, token {i}: off by {off}");
            }
        }
    }
}

#[test]
fn each_kind_is_rewound_where_its_rows_allow_it() {
    for (name, rig, in_full) in kinds() {
        let mut engine = rig.open();
        feed(&mut engine, 0..15);
        let want = feed(&mut engine, 15..19);
        engine.rewind(15).unwrap();
        let again: Vec<f32> = feed(&mut engine, 15..19).iter().map(|&x| x as f32).collect();
        assert!(distance(&again, &want) < 1e-5, "{name}: nothing that these tokens see was dropped");
        feed(&mut engine, 19..150);
        let n = engine.n_past();
        let back = engine.rewind(n - 30);
        assert_eq!(back.is_ok(), in_full, "{name}: {back:?}");
        if let Err(refused) = back {
            assert!(refused.to_string().contains("long context has evicted rows"), "{name}: {refused}");
            assert_eq!(engine.n_past(), n, "{name}: nothing has changed");
        }
        engine.rewind(0).unwrap();
        let fresh = rig.open().process(&ids(&[5])).unwrap().to_vec();
        let found = engine.process(&ids(&[5])).unwrap();
        assert!(distance(found, &numbers(&fresh)) < 1e-5, "{name}: as from the beginning");
    }
}

#[test]
fn windows_of_several_sequences_are_kept_apart() {
    let rig = Rig::long(false, Eviction::Window { size: 12, sinks: 2 });
    let mut engine = rig.open();
    let mut naive = Naive::new(&rig.decoder, &rig.form, &[Rule::Window { size: 12, sinks: 2 }]);
    for round in 0..20 {
        let fresh: [Vec<u32>; 3] =
            [vec![token(round)], (0..3).map(|i| token(round * 3 + i + 90)).collect(), vec![token(round + 50)]];
        let tokens = fresh.each_ref().map(|tokens| ids(tokens));
        let batch = [0, 1, 2].map(|i| SeqTokens { seq: SeqId(i as u8), tokens: &tokens[i] });
        let mut found = vec![Vec::new(); 3];
        engine.process_batch(&batch, &mut |i, logits| found[i] = logits.to_vec()).unwrap();
        for (seq, tokens) in fresh.iter().enumerate() {
            let want = naive.go_on(seq as u8, tokens).pop().unwrap();
            let off = distance(&found[seq], &want);
            assert!(off < TOLERANCE, "round {round}, sequence {seq}: off by {off}");
        }
    }
    // All three are saved and restored together.
    let saved = rig.through_a_file(&mut engine);
    let mut other = rig.open();
    other.restore_snapshot(&saved).unwrap();
    for seq in 0..3 {
        assert_eq!(other.next_pos(SeqId(seq)), engine.next_pos(SeqId(seq)));
    }
    // A window each of 13 rows: a fifth sequence beside four has no room among the 63 slots.
    engine.process_batch(&[SeqTokens { seq: SeqId(3), tokens: &ids(&[1; 20]) }], &mut |_, _| ()).unwrap();
    let refused = engine.process_batch(&[SeqTokens { seq: SeqId(4), tokens: &ids(&[1; 20]) }], &mut |_, _| ());
    let refused = refused.unwrap_err().to_string();
    assert!(refused.starts_with("cache group `past_` is full: other sequences have 52 rows there"), "{refused}");
}

#[test]
fn keydiff_and_several_sequences_part_by_name_and_a_shift_leaves_others_alone() {
    let rig = Rig::long(false, Eviction::KeyDiff { sinks: 0, update_every: 4 });
    let mut engine = rig.open();
    engine.process_batch(&[SeqTokens { seq: SeqId(1), tokens: &ids(&[1, 2, 3]) }], &mut |_, _| ()).unwrap();
    let long = ids(&(0..70).map(token).collect::<Vec<_>>());
    let refused = engine.process(&long).unwrap_err().to_string();
    assert!(refused.contains("needs the cache to hold one sequence"), "{refused}");

    let rig = Rig::new(false, |config| config.context_shift = Some(ContextShift { sinks: 1, n_drop: Some(8) }));
    let (mut engine, mut alone) = (rig.open(), rig.open());
    let side = ids(&[9, 8, 7]);
    let mut last = Vec::new();
    engine
        .process_batch(&[SeqTokens { seq: SeqId(1), tokens: &side }], &mut |_, logits| last = logits.to_vec())
        .unwrap();
    for i in 0..90 {
        feed(&mut engine, i..i + 1);
    }
    assert!(engine.n_past() < 64);
    let more = ids(&[6]);
    engine
        .process_batch(&[SeqTokens { seq: SeqId(1), tokens: &more }], &mut |_, logits| last = logits.to_vec())
        .unwrap();
    let want = alone.process(&[&side[..], &more].concat()).unwrap().to_vec();
    assert!(distance(&last, &numbers(&want)) < 1e-5, "the other sequence is as it was");
}

/// Its own: the largest first element stays.
struct FirstElement;

impl engine::KeyScorer for FirstElement {
    fn score(&mut self, _: genie_types::LayerIdx, _: usize, keys: &[f32], scores: &mut [f32]) {
        let dim = keys.len() / scores.len();
        scores.iter_mut().zip(keys.chunks(dim)).for_each(|(score, key)| *score = key[0]);
    }
}

#[test]
fn a_scorer_of_ones_own_decides_what_keydiff_keeps() {
    let rig = Rig::long(false, Eviction::KeyDiff { sinks: 2, update_every: 1 });
    let (mut by_mean, mut by_own) = (rig.open(), rig.open());
    by_own.set_scorer(Box::new(FirstElement));
    let (a, b) = (feed(&mut by_mean, 0..60), feed(&mut by_own, 0..60));
    assert_eq!(a, b, "nothing was dropped yet");
    let (a, b) = (feed(&mut by_mean, 60..120), feed(&mut by_own, 60..120));
    assert_ne!(a, b, "other rows are left");
}
