//! Long context and the defects others have measured in the real library, through a toy decoder whose text shows every
//! row that is missing, doubled or left over.

use genie_types::SplitIdx;
use kvmanager::{CacheGroup, Eviction, KvCache, KvForm, KvOptions, ModeKind, Policy, RopeSpec, SeqId, Variants};
use session_store::Snapshot;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::toy::{generate, geometry, grid, look, plain, process, prompt, reference, run, spec};

/// The toy's tensors have two dimensions, so the tiled mode is left to the model test.
const MODES: [ModeKind; 3] = [ModeKind::SMART_MASK, ModeKind::SHIFT_CONCAT, ModeKind::POINTER_SHIFT];

fn cache(variants: Variants, mode: ModeKind) -> KvCache {
    let n_groups = variants.groups().len();
    KvCache::new(&geometry(n_groups), variants, KvOptions { mode, ..KvOptions::default() }).unwrap()
}

/// A global group and a windowed one with a context of its own.
fn windowed(form: KvForm, ars: &[u32], cl: u32, window_cl: usize, size: usize, sinks: usize) -> Variants {
    let specs = grid(ars, &[cl]);
    let ctx = specs.iter().map(|&s| (s, window_cl)).collect();
    let long = Eviction::Window { size, sinks };
    let swa = CacheGroup { prefix: "swa_".to_owned(), form, ctx, long };
    Variants::with_groups(specs, vec![CacheGroup::plain(form), swa], None).unwrap()
}

#[test]
fn d1_every_context_edge_is_crossed_without_a_trace() {
    for form in [KvForm::Concat, KvForm::Scatter] {
        for mode in MODES.into_iter().filter(|m| form == KvForm::Concat || *m == ModeKind::SMART_MASK) {
            for n in (1..=60).step_by(if cfg!(miri) { 29 } else { 1 }) {
                let mut kv = cache(plain(grid(&[1, 8], &[16, 32, 64]), form), mode);
                let text = generate(&mut kv, &prompt(n, 1), 64 - n);
                assert_eq!(text, reference(&[Eviction::None], &prompt(n, 1), 64 - n), "{n} tokens, {}", mode.name());
            }
        }
    }
}

#[test]
fn d2_long_short_long() {
    for by_rewind in [false, true] {
        let mut kv = cache(plain(grid(&[1, 8, 32], &[64, 128]), KvForm::Concat), ModeKind::SMART_MASK);
        for (turn, n) in [120, 5, 120, 64, 1, 127].into_iter().enumerate() {
            let prompt = prompt(n, turn as u32);
            let text = generate(&mut kv, &prompt, 128 - n);
            assert_eq!(text, reference(&[Eviction::None], &prompt, 128 - n), "turn {turn}");
            if by_rewind {
                kv.rewind(SeqId(0), 0).unwrap()
            } else {
                kv.clear().unwrap()
            }
            let state = kv.state();
            assert_eq!((state.n_past, state.n_valid_kv), (0, 0));
        }
    }
}

#[test]
fn d5_after_a_reset_the_first_step_is_that_of_a_fresh_dialog() {
    let variants = || windowed(KvForm::Concat, &[1, 8], 64, 24, 9, 2);
    let mut used = cache(variants(), ModeKind::SMART_MASK);
    generate(&mut used, &prompt(50, 3), 10);
    used.clear().unwrap();
    let mut fresh = cache(variants(), ModeKind::SMART_MASK);
    for split in [SplitIdx(0), SplitIdx(1)] {
        let past = |kv: &mut KvCache| -> Vec<Vec<u8>> {
            let step = look(kv, spec(8, 64));
            let mut running = kv.begin(&step).unwrap();
            running.split(split).unwrap().views().map(|v| v.past.to_vec()).collect()
        };
        assert_eq!(past(&mut used), past(&mut fresh), "not a byte is left");
    }
    assert_eq!(generate(&mut used, &prompt(20, 4), 30), generate(&mut fresh, &prompt(20, 4), 30));
}

#[test]
fn d6_saved_with_a_window_and_restored_it_goes_on_as_if_never_saved() {
    let lengths: &[usize] = if cfg!(miri) { &[640] } else { &[1, 63, 64, 65, 640, 641, 704, 1000, 1540] };
    for form in [KvForm::Concat, KvForm::Scatter] {
        let variants = || windowed(form, &[1, 32, 128], 2048, 256, 64, 0);
        let rules = [Eviction::None, Eviction::Window { size: 64, sinks: 0 }];
        for &n in lengths {
            let mut kv = cache(variants(), ModeKind::SMART_MASK);
            let first = process(&mut kv, &prompt(n, 2));
            let saved = Snapshot { image: kv.export().unwrap(), ..Snapshot::default() }.to_bytes();

            let mut back = cache(variants(), ModeKind::SMART_MASK);
            generate(&mut back, &prompt(100, 9), 3);
            back.import(&Snapshot::from_bytes(&saved).unwrap().image).unwrap();
            let expected = reference(&rules, &prompt(n, 2), 41);
            assert_eq!(first, expected[0]);
            assert_eq!(generate(&mut back, &expected[..1], 40), expected[1..], "{n} tokens, restored");
            assert_eq!(generate(&mut kv, &expected[..1], 40), expected[1..], "{n} tokens, never saved");
        }
    }
}

#[test]
fn an_exact_window_of_any_size_equals_its_definition() {
    for size in (1..=80).step_by(if cfg!(miri) { 40 } else { 1 }) {
        let (form, sinks) = ([KvForm::Concat, KvForm::Scatter][size % 2], size / 7 % 4);
        // 32 + 79 + 3 rows do not fit a context of 112: such prompts run on AR-8 instead of losing keys.
        let variants = windowed(form, &[1, 8, 32], 160, 112, size, sinks);
        let rules = [Eviction::None, Eviction::Window { size, sinks }];
        let mut kv = cache(variants, ModeKind::SMART_MASK);
        for n in [1, size.min(150), 90, 150] {
            let text = generate(&mut kv, &prompt(n, 6), 160 - n);
            assert_eq!(text, reference(&rules, &prompt(n, 6), 160 - n), "window {size}, {sinks} sinks, {n} tokens");
            kv.clear().unwrap();
        }
    }
}

#[test]
fn a_window_alone_has_no_end_but_its_positions() {
    let long = Eviction::Window { size: 20, sinks: 1 };
    for mode in MODES {
        let group = CacheGroup { long, ..CacheGroup::plain(KvForm::Concat) };
        let variants = Variants::with_groups(grid(&[1, 8], &[32]), vec![group], Some(300)).unwrap();
        let mut kv = cache(variants, mode);
        let text = generate(&mut kv, &prompt(70, 1), 231);
        assert_eq!(text, reference(&[long], &prompt(70, 1), 231));
        assert!(kv.plan(&[(SeqId(0), 1)], &Policy::Lenient).is_err(), "position 300 is the limit");
        // Rows that the next token needs are gone: back is only possible to the beginning, or nowhere.
        assert!(kv.rewind(SeqId(0), 100).is_err());
        kv.rewind(SeqId(0), 300).unwrap();
        kv.rewind(SeqId(0), 0).unwrap();
        assert_eq!(
            generate(&mut kv, &prompt(7, 1), 3),
            reference(&[long], &prompt(7, 1), 3),
            "shorter than the window"
        );
    }
}

#[test]
fn prompts_shorter_than_a_window_are_served() {
    // Every length from 1 to twice the widest step, under windows below, at and above it.
    for form in [KvForm::Concat, KvForm::Scatter] {
        for size in [5, 8, 20] {
            let rules = [Eviction::None, Eviction::Window { size, sinks: 0 }];
            let mut kv = cache(windowed(form, &[1, 8], 64, 32, size, 0), ModeKind::SMART_MASK);
            for n in (1..=16).step_by(if cfg!(miri) { 8 } else { 1 }) {
                let text = generate(&mut kv, &prompt(n, 8), 30);
                assert_eq!(text, reference(&rules, &prompt(n, 8), 30), "{n} tokens, window {size}");
                kv.clear().unwrap();
            }
        }
    }
}

#[test]
fn a_ring_keeps_what_was_measured() {
    // Default group, CL 128: 96 rows while prefilling with AR-32, 127 in AR-1; sinks stay; positions go on.
    let group = CacheGroup { long: Eviction::Ring { sinks: 4 }, ..CacheGroup::plain(KvForm::Concat) };
    let variants = Variants::with_groups(grid(&[1, 32], &[128]), vec![group], Some(300)).unwrap();
    let mut kv = cache(variants, ModeKind::SMART_MASK);
    process(&mut kv, &prompt(224, 1));
    assert_eq!((kv.state().n_past, kv.state().n_valid_kv), (224, 96));
    let held = |kv: &KvCache| {
        let mut held: Vec<_> = kv.cells(0).unwrap().used().map(|(_, c)| c.pos).collect();
        held.sort_unstable();
        held
    };
    assert_eq!(held(&kv), (0..4).chain(132..224).collect::<Vec<_>>());
    for i in 224..269 {
        process(&mut kv, &[i]);
    }
    assert_eq!((kv.state().n_past, kv.state().n_valid_kv), (269, 127));
    assert_eq!(held(&kv), (0..4).chain(146..269).collect::<Vec<_>>());
    // The oldest slot after the sinks is overwritten in place.
    let slot_of = |kv: &KvCache, pos| kv.cells(0).unwrap().used().find(|(_, c)| c.pos == pos).map(|(s, _)| s);
    let oldest = slot_of(&kv, 146);
    process(&mut kv, &[1]);
    assert_eq!(slot_of(&kv, 269), oldest);
    assert!(kv.rewind(SeqId(0), 200).is_err());
    // A wider step again: the oldest go until the rest fits 96 rows.
    process(&mut kv, &prompt(20, 2));
    assert_eq!((kv.state().n_past, kv.state().n_valid_kv), (290, 96));
}

#[test]
fn shifting_out_goes_on_without_end() {
    // Frequencies of zero: keys do not turn, so the toy's rows stay readable; turning is tested elsewhere.
    for mode in MODES {
        let rope = Some(RopeSpec { frequencies: vec![0.0], pairs: Default::default() });
        let options = KvOptions { mode, rope, ..KvOptions::default() };
        let mut kv = KvCache::new(&geometry(1), plain(grid(&[1, 8], &[32]), KvForm::Concat), options).unwrap();
        for token in 0..500u32 {
            if kv.state().n_past == 31 {
                assert_eq!(kv.shift_out(SeqId(0), 3, 10).unwrap(), 21);
            }
            process(&mut kv, &[token % 251]);
            let mut held: Vec<_> = kv.cells(0).unwrap().used().map(|(_, c)| c.pos).collect();
            held.sort_unstable();
            assert_eq!(held, (0..kv.state().n_past).collect::<Vec<_>>());
        }
        assert!(kv.shift_out(SeqId(0), 3, 40).is_err());
    }
}

#[test]
fn two_dialogs_share_a_prefix_and_a_block_mask_keeps_them_apart() {
    for (mode, form) in [
        (ModeKind::SMART_MASK, KvForm::Concat),
        (ModeKind::SMART_MASK, KvForm::Scatter),
        (ModeKind::POINTER_SHIFT, KvForm::Concat),
    ] {
        let mut kv = cache(plain(grid(&[1, 8], &[64]), form), mode);
        let (a, b) = (SeqId(0), SeqId(1));
        let system = prompt(12, 1);
        process(&mut kv, &system);
        kv.share(a, b, 0..12).unwrap();
        assert_eq!(kv.state().n_valid_kv, 12, "stored once");
        // Both go on with words of their own, three tokens of one and two of the other in each step.
        let mut texts = [system.clone(), system.clone()];
        for round in 0..4u32 {
            let mut tokens = Vec::new();
            let wanted = [(a, 3), (b, 2)];
            for (seq, n) in wanted {
                for i in 0..n as u32 {
                    let token = (round * 50 + i * 9 + u32::from(seq.0) * 100) % 251;
                    tokens.push(token);
                    texts[usize::from(seq.0)].push(token);
                }
            }
            let plan = kv.plan(&wanted, &Policy::Lenient).unwrap();
            let [step] = plan.steps() else { panic!("{plan:?}") };
            assert_eq!(step.variant, spec(8, 64));
            let predicted = run(&mut kv, step, &tokens);
            for (token, text) in [(predicted[2], &texts[0]), (predicted[4], &texts[1])] {
                assert_eq!(vec![token], reference(&[Eviction::None], text, 1), "round {round}");
            }
        }
        kv.keep(b).unwrap();
        assert_eq!(kv.next_pos(b), 20);
        assert_eq!(kv.cells(0).unwrap().n_used(), 20);
    }
}

#[test]
fn keydiff_keeps_the_rows_that_score_best() {
    // A scorer by the key's first element: the rows with the largest tokens stay, and the sinks.
    struct Largest(Arc<AtomicUsize>);
    impl kvmanager::KeyScorer for Largest {
        fn score(&mut self, _: genie_types::LayerIdx, _: usize, keys: &[f32], scores: &mut [f32]) {
            self.0.fetch_add(1, Ordering::Relaxed);
            scores.iter_mut().zip(keys.chunks_exact(2)).for_each(|(s, key)| *s = key[0]);
        }
    }
    for mode in MODES {
        for update_every in [1, 4, 50] {
            let long = Eviction::KeyDiff { sinks: 2, update_every };
            let group = CacheGroup { long, ..CacheGroup::plain(KvForm::Concat) };
            let variants = Variants::with_groups(grid(&[1, 4], &[16]), vec![group], Some(200)).unwrap();
            let n_scorings = Arc::new(AtomicUsize::new(0));
            let scorer: Box<dyn kvmanager::KeyScorer> = Box::new(Largest(n_scorings.clone()));
            let options = KvOptions { mode, scorer: Some(scorer), ..KvOptions::default() };
            let mut kv = KvCache::new(&geometry(1), variants, options).unwrap();
            // The naive one: tokens with their positions, sinks first, and the positions that go next.
            let mut rows: Vec<(u32, u32)> = Vec::new();
            let mut queue: Vec<u32> = Vec::new();
            let (mut age, mut n_expected) = (0, 0);
            for (pos, &token) in prompt(100, 5).iter().enumerate() {
                process(&mut kv, &[token]);
                if rows.len() == 15 {
                    if queue.is_empty() || age + 1 > update_every {
                        let mut order: Vec<_> = rows[2..].to_vec();
                        order.sort_by_key(|row| row.0);
                        queue = order.iter().map(|row| row.1).collect();
                        (age, n_expected) = (0, n_expected + 1);
                    }
                    age += 1;
                    let gone = queue.remove(0);
                    rows.retain(|row| row.1 != gone);
                }
                rows.push((token, pos as u32));
                assert_eq!(n_scorings.load(Ordering::Relaxed), n_expected, "one head, scored when it is due");
                assert_eq!(kv.state().n_valid_kv, rows.len());
                let first = if mode == ModeKind::SMART_MASK { 0 } else { 15 - rows.len() };
                let step = look(&kv, spec(1, 16));
                let mut running = kv.begin(&step).unwrap();
                let mut guard = running.split(SplitIdx(0)).unwrap();
                for view in guard.views() {
                    let at = |dim: usize, col: usize| match view.spec.kind {
                        kvmanager::KvKind::Key => dim * 15 + col,
                        _ => col * 2 + dim,
                    };
                    let read = |i: usize| f32::from_le_bytes(view.past[i * 4..i * 4 + 4].try_into().unwrap()) as u32;
                    let mut held: Vec<_> =
                        (first..first + rows.len()).map(|c| (read(at(0, c)), read(at(1, c)))).collect();
                    held.sort_unstable();
                    let mut wanted = rows.clone();
                    wanted.sort_unstable();
                    assert_eq!(held, wanted, "position {pos}, scored every {update_every} steps, {}", mode.name());
                }
            }
            let refused = kv.remove(SeqId(0), 3..5).unwrap_err().to_string();
            assert!(refused.ends_with("KeyDiff has evicted, so each head holds other tokens"), "{refused}");
            assert!(kv.rewind(SeqId(0), 50).is_err());
            kv.rewind(SeqId(0), 0).unwrap();
            process(&mut kv, &prompt(9, 1));
            assert_eq!(kv.state().n_valid_kv, 9);
        }
    }
}

#[test]
fn the_graphs_address_follows_the_pointer() {
    let moved = Arc::new(Mutex::new(Vec::new()));
    let sink = moved.clone();
    let on_rebind: kvmanager::OnRebind = Box::new(move |r| sink.lock().unwrap().push((r.tensor, r.offset_bytes)));
    let options = KvOptions { mode: ModeKind::POINTER_SHIFT, on_rebind: Some(on_rebind), ..KvOptions::default() };
    let mut kv = KvCache::new(&geometry(1), plain(grid(&[1], &[16]), KvForm::Concat), options).unwrap();
    generate(&mut kv, &[1], 3);
    // Keys advance by one element per token, values by a row of two.
    assert_eq!(*moved.lock().unwrap(), [(0, 4), (1, 8), (0, 8), (1, 16)]);
}
