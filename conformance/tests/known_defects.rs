//! Defects that were measured in libGenie, each as a test that the engine here passes.

use std::sync::Arc;

use compiler::Precision;
use compiler::testmodel::TestModel;
use conformance::backends;
use conformance::bundles::Bundle;
use dialog::{Dialog, Reply, SamplerSettings, SentenceCode, StopReason};
use engine::{Engine, EngineConfig, Eviction, TokenModel};
use genie_types::{Dtype, TokenId};
use qnn_api::Backend;
use testkit::{Decoder, Form, Naive, Rule, Size, distance};

fn ids(tokens: &[u32]) -> Vec<TokenId> {
    tokens.iter().copied().map(TokenId).collect()
}

fn prompt(n: usize) -> Vec<TokenId> {
    (0..n as u32).map(|i| TokenId((i * 37 + 11) % 300)).collect()
}

fn bundle(backend: &Arc<Backend>, cls: &[u32]) -> Bundle {
    Bundle::make(&TestModel::tiny(compiler::Family::Llama), backend, |options| {
        options.ars = vec![1, 8];
        options.cls = cls.to_vec();
        options.precision = Precision::F32;
    })
}

fn greedy(bundle: &Bundle, backend: &Arc<Backend>) -> Dialog {
    let mut dialog = Dialog::new(&bundle.config(), Box::new(bundle.engine(backend))).unwrap();
    dialog.set_sampler(SamplerSettings::argmax());
    dialog
}

fn ask(dialog: &mut Dialog, tokens: &[TokenId], limit: Option<usize>) -> Reply {
    dialog.control().set_max_num_tokens(limit);
    dialog.token_query(tokens, SentenceCode::Complete, |_| ()).unwrap()
}

/// D1: a prompt or a reply that crosses a context length of the bundle wedges the dialog.
#[test]
fn d1_crossing_every_cl_edge_says_what_one_large_cl_says() {
    let backend = backends::linked();
    let (several, one) = (bundle(&backend, &[32, 64, 128]), bundle(&backend, &[128]));
    let (mut several, mut one) = (greedy(&several, &backend), greedy(&one, &backend));
    let mut crossed = 0;
    let lengths = [1, 14].into_iter().chain(22..=26).chain(30..=34).chain(54..=58).chain(62..=66).chain(116..=126);
    for n in lengths {
        several.reset().unwrap();
        one.reset().unwrap();
        // The reply crosses the next edge, or reaches the context's end.
        let (found, want) = (ask(&mut several, &prompt(n), Some(40)), ask(&mut one, &prompt(n), Some(40)));
        assert_eq!((&found.tokens, &found.stop), (&want.tokens, &want.stop), "prompt of {n}");
        let ran = |cl: &str| several.model().steps().names().any(|name| name.contains(cl));
        crossed +=
            usize::from([32, 64].iter().any(|edge| n < *edge && n + 40 > *edge) && (ran("_cl64_") || ran("_cl128_")));
    }
    assert!(crossed > 10, "edges were crossed in {crossed} dialogs");
}

/// D2: after a long and a short query the third, long again, fails with an exceeded context.
#[test]
fn d2_long_short_long() {
    let backend = backends::linked();
    let bundle = bundle(&backend, &[32, 64, 128]);
    let mut dialog = greedy(&bundle, &backend);
    let first = ask(&mut dialog, &prompt(100), Some(8));
    assert_eq!((first.tokens.len(), &first.stop), (8, &StopReason::MaxTokens));
    for round in 0..3 {
        dialog.reset().unwrap();
        assert_eq!(dialog.n_past(), 0);
        ask(&mut dialog, &prompt(5), Some(3));
        dialog.reset().unwrap();
        let again = ask(&mut dialog, &prompt(100), Some(8));
        assert_eq!((again.tokens, again.stop), (first.tokens.clone(), first.stop.clone()), "round {round}");
    }
    // The same by rewinding: the whole conversation is stated each time.
    let bos = dialog.history().first().copied().filter(|bos| *bos != prompt(1)[0]);
    let stated = |n: usize| bos.into_iter().chain(prompt(n)).collect::<Vec<_>>();
    for n in [100, 5, 100] {
        dialog.control().set_max_num_tokens(Some(8));
        let reply = dialog.token_query(&stated(n), SentenceCode::Rewind, |_| ()).unwrap();
        if n == 100 {
            assert_eq!(reply.tokens, first.tokens);
        }
        assert_eq!(dialog.n_past(), stated(n).len() + 7);
    }
}

/// D5: a reset leaves something behind.
#[test]
fn d5_after_a_reset_the_first_step_equals_a_fresh_dialog() {
    let backend = backends::linked();
    let bundle = bundle(&backend, &[32, 64, 128]);
    let sampled = || {
        let mut dialog = greedy(&bundle, &backend);
        let settings = SamplerSettings::default().with_seed(Some(42)).with_top_k(20).with_temp(1.5).unwrap();
        dialog.set_sampler(settings);
        dialog
    };
    for before in [1, 31, 90, 127] {
        let (mut used, mut fresh) = (sampled(), sampled());
        ask(&mut used, &prompt(before), Some(30));
        used.reset().unwrap();
        assert_eq!((used.n_past(), used.history().len()), (0, 0));
        for n in [3, 40] {
            let n_steps = used.model().steps().len();
            let (found, want) = (ask(&mut used, &prompt(n), Some(5)), ask(&mut fresh, &prompt(n), Some(5)));
            assert_eq!((found.tokens, found.input), (want.tokens, want.input), "after {before}: prompt of {n}");
            let steps: Vec<&str> = used.model().steps().names().skip(n_steps).collect();
            assert!(fresh.model().steps().names().collect::<Vec<_>>().ends_with(&steps), "{steps:?}");
        }
    }
    // And the logits themselves, bit by bit.
    let (mut used, mut fresh) = (bundle.engine(&backend), bundle.engine(&backend));
    used.process(&prompt(97)).unwrap();
    used.reset().unwrap();
    assert_eq!(used.process(&prompt(9)).unwrap(), fresh.process(&prompt(9)).unwrap());
}

/// A decoder with a window, over a context longer than 1,540 tokens.
fn windowed(ring: bool, folder: &std::path::Path, backend: &Arc<Backend>) -> (Decoder, EngineConfig) {
    let decoder = Decoder::for_type(Size::TINY, 9, Dtype::F32);
    let (form, rule) = if ring {
        (Form::new(&[(1, 256), (32, 256)]), ("past_", Eviction::Ring { sinks: 4 }))
    } else {
        let form = Form::new(&[(1, 640), (32, 640), (1, 2048), (32, 2048)]).with_window_group(64);
        (form, ("swa_", Eviction::Window { size: 32, sinks: 0 }))
    };
    let bins = form.save(&decoder, backend, folder);
    let long_context = vec![(rule.0.to_owned(), rule.1)];
    let config = EngineConfig { long_context, context_size: Some(1700), ..form.config(&decoder, bins) };
    (decoder, config)
}

/// D6: a saved dialog with a window group is wrong above some 640 tokens, and restoring it crashes at 1,540.
#[test]
fn d6_a_restored_window_goes_on_as_if_never_saved() {
    let backend = backends::linked();
    for ring in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let (decoder, config) = windowed(ring, folder.path(), &backend);
        let open = || Engine::open(&config, &backend).unwrap();
        let (mut live, mut other) = (open(), open());
        let tokens: Vec<u32> = (0..1560).map(|i: u32| (i * 37 + i / 5 * 11) % decoder.size.vocab as u32).collect();
        let mut at = 0;
        let lengths = [600, 639, 640, 641, 672, 1023, 1024, 1025, 1539, 1540, 1541];
        for (i, &n) in lengths.iter().enumerate() {
            live.prefill(&ids(&tokens[at..n])).unwrap();
            at = n;
            let file = folder.path().join("saved.kvs");
            live.snapshot().unwrap().write(&file).unwrap();
            other.restore_snapshot(&engine::Snapshot::read(&file).unwrap()).unwrap();
            assert_eq!((other.n_past(), other.history()), (n, live.history()), "ring {ring}");
            let more = lengths.get(i + 1).map_or(3, |next| (next - n).min(3));
            for i in n..n + more {
                let want: Vec<f64> = live.process(&ids(&tokens[i..=i])).unwrap().iter().map(|&x| x.into()).collect();
                // Rows may lie in another order after a restore, so sums may round otherwise.
                let off = distance(other.process(&ids(&tokens[i..=i])).unwrap(), &want);
                assert!(off < 1e-5, "ring {ring}: saved at {n}, token {i}: off by {off}");
            }
            at += more;
        }
    }
}

/// foundry-local 719: a prompt shorter than the window (or than a step) crashes.
#[test]
fn prompts_of_every_length_up_to_two_steps_in_a_window() {
    const AR: usize = 8;
    let backend = backends::linked();
    let decoder = Decoder::for_type(Size::TINY, 9, Dtype::F32);
    for scatter in [false, true] {
        let form = Form { scatter, ..Form::new(&[(1, 48), (AR, 48)]).with_window_group(24) };
        for size in [2 * AR + 3, AR, 5] {
            let folder = tempfile::tempdir().unwrap();
            let bins = form.save(&decoder, &backend, folder.path());
            let long_context = vec![("swa_".to_owned(), Eviction::Window { size, sinks: 0 })];
            let config = EngineConfig { long_context, ..form.config(&decoder, bins) };
            let mut engine = Engine::open(&config, &backend).unwrap();
            for n in 1..=2 * AR {
                engine.reset().unwrap();
                let mut naive = Naive::new(&decoder, &form, &[Rule::All, Rule::Window { size, sinks: 0 }]);
                let mut fresh: Vec<u32> = (0..n as u32).map(|i| (i * 13 + 5) % decoder.size.vocab as u32).collect();
                for step in 0..6 {
                    let found = engine.process(&ids(&fresh)).unwrap().to_vec();
                    let want = naive.go_on(0, &fresh).pop().unwrap();
                    let off = distance(&found, &want);
                    assert!(off < 1e-4, "scatter {scatter}, window {size}, prompt {n}, step {step}: off by {off}");
                    fresh = vec![(step * 7 + 3) % decoder.size.vocab as u32];
                }
            }
        }
    }
}
