//! A bundle's own network for `keydiff` on the host: it ranks keys as the same scores in Rust do, its anchors are saved, and
//! one that does not fit the model is refused by name.

use std::path::Path;
use std::sync::Arc;

use conformance::backends;
use engine::{Engine, EngineConfig, Eviction, HeadKeys, KeyScorer, Policy, Snapshot, TokenModel};
use genie_types::{Dtype, LayerIdx, TokenId};
use qnn_api::Backend;
use testkit::{Decoder, Form, Size};

const VARIANTS: &[(usize, usize)] = &[(1, 64), (8, 64)];

fn ids(range: std::ops::Range<usize>) -> Vec<TokenId> {
    range.map(|i| TokenId((i * 37 + i * i * 11 + 5) as u32 % Size::TINY.vocab as u32)).collect()
}

struct Rig {
    config: EngineConfig,
    backend: Arc<Backend>,
    folder: tempfile::TempDir,
}

/// A bundle of that form and a network made for `of`.
fn rig(form: &Form, of: &Form) -> Rig {
    let (decoder, backend) = (Decoder::for_type(Size::TINY, 3, Dtype::F32), backends::linked());
    let folder = tempfile::tempdir().unwrap();
    let mut config = form.config(&decoder, form.save(&decoder, &backend, folder.path()));
    of.save_scorer(&decoder, &backend, &folder.path().join("scorer.bin"));
    config.long_context = vec![("past_".into(), Eviction::KeyDiff { sinks: 2, update_every: 5 })];
    config.context_size = Some(400);
    config.scoring_network = Some(folder.path().join("scorer.bin"));
    Rig { config, backend, folder }
}

impl Rig {
    fn open(&self) -> Engine {
        Engine::open(&self.config, &self.backend).unwrap()
    }

    fn refusal(&self, network: &Path) -> String {
        let config = EngineConfig { scoring_network: Some(network.to_owned()), ..self.config.clone() };
        Engine::open(&config, &self.backend).map(drop).unwrap_err().to_string()
    }
}

/// What the network without anchors computes, ranked by its bits: the highest goes first.
struct Sums;

impl KeyScorer for Sums {
    fn score(&mut self, _: LayerIdx, _: usize, keys: &[f32], scores: &mut [f32]) {
        let dim = keys.len() / scores.len();
        let bits: Vec<u32> = keys.chunks_exact(dim).map(|key| key.iter().sum::<f32>().to_bits()).collect();
        scores.iter_mut().zip(&bits).for_each(|(s, own)| *s = bits.iter().filter(|other| *other > own).count() as f32);
    }
}

#[test]
fn a_network_ranks_keys_as_the_same_scores_in_rust_do() {
    let plain = Form::new(VARIANTS);
    let forms = [
        plain.clone(),
        Form { scatter: true, ..plain.clone() },
        Form { per_head: true, ..plain.clone() },
        plain.clone().cut(2),
    ];
    for form in forms {
        for policy in [Policy::Lenient, Policy::Genie] {
            let mut rig = rig(&form, &form);
            rig.config.policy = policy;
            let (mut by_network, mut by_sums) = (rig.open(), rig.open());
            by_sums.set_scorer(Box::new(Sums));
            rig.config.scoring_network = None;
            let mut by_own = rig.open();
            let mut differs = false;
            let mut at = 0;
            for n in [90, 1, 1, 5, 33, 1, 1, 1, 1, 1, 1, 1, 20, 1] {
                let fresh = ids(at..at + n);
                let found = by_network.process(&fresh).unwrap().to_vec();
                assert_eq!(found, by_sums.process(&fresh).unwrap(), "{form:?} at {at}");
                differs |= found != by_own.process(&fresh).unwrap();
                at += n;
            }
            assert!(differs, "the program's own scores keep other rows: {form:?}");
        }
    }
}

#[test]
fn anchors_run_from_step_to_step_and_are_saved() {
    let form = Form { anchors: true, ..Form::new(VARIANTS) };
    let rig = rig(&form, &form);
    let go_on = |engine: &mut Engine| -> Vec<Vec<f32>> {
        (100..160).map(|i| engine.process(&ids(i..i + 1)).unwrap().to_vec()).collect()
    };
    let mut straight = rig.open();
    straight.process(&ids(0..100)).unwrap();
    let saved = rig.folder.path().join("saved.kvs");
    straight.snapshot().unwrap().write(&saved).unwrap();
    let want = go_on(&mut straight);

    let mut restored = rig.open();
    // What it knows by then must go.
    restored.process(&ids(7..40)).unwrap();
    restored.restore_snapshot(&Snapshot::read(&saved).unwrap()).unwrap();
    assert_eq!(go_on(&mut restored), want, "restored");

    restored.reset().unwrap();
    restored.process(&ids(0..100)).unwrap();
    assert_eq!(go_on(&mut restored), want, "from the beginning again");

    // Without anchors the dot product is 0 for all keys: what is kept differs.
    let mut lost = rig.open();
    lost.process(&ids(0..100)).unwrap();
    let mut snapshot = Snapshot::read(&saved).unwrap();
    let anchors = snapshot.image.scorer.len();
    assert!(anchors > 12 + 2 * 8, "two layers of anchors are saved, {anchors} bytes");
    let first = snapshot.image.scorer.len() - 4;
    snapshot.image.scorer[first..].copy_from_slice(&1000f32.to_le_bytes());
    lost.restore_snapshot(&snapshot).unwrap();
    assert_ne!(go_on(&mut lost), want, "another anchor ranks otherwise");
}

#[test]
fn a_network_that_does_not_fit_is_refused_by_name() {
    let plain = Form::new(VARIANTS);
    let fits = rig(&plain, &plain);
    let missing = fits.refusal(&fits.folder.path().join("nothing.bin"));
    assert!(missing.contains("scoring network") && missing.contains("nothing.bin"), "{missing}");
    let model = fits.refusal(&fits.config.ctx_bins[0]);
    assert!(model.contains("scoring network: expected a binary with one graph, found 2 in"), "{model}");

    let with_anchors = Form { anchors: true, ..plain.clone() };
    let of = |form: &Form| {
        let rig = rig(&plain, form);
        rig.refusal(rig.config.scoring_network.as_ref().unwrap())
    };
    let anchors = of(&with_anchors);
    assert!(anchors.contains("`anchor_buffer_0_in` of `scorer`") && anchors.ends_with("found none"), "{anchors}");
    let short = of(&Form { variants: vec![(1, 32)], ..plain.clone() });
    assert!(short.contains("`past_key_0_in` of `scorer`") && short.contains(", 64], found ["), "{short}");

    let mut no_rule = rig(&plain, &plain);
    no_rule.config.long_context.clear();
    no_rule.config.context_size = None;
    let refused = no_rule.refusal(no_rule.config.scoring_network.as_ref().unwrap());
    assert_eq!(refused, "scoring network: expected one cache group of type `keydiff`, found 0");
}

#[test]
fn a_scorer_that_takes_all_heads_sees_each_once() {
    /// Layer, head and rows of each head of a call.
    type Calls = Vec<Vec<(usize, usize, usize)>>;
    struct All(Arc<std::sync::Mutex<Calls>>);
    impl KeyScorer for All {
        fn score(&mut self, _: LayerIdx, _: usize, _: &[f32], _: &mut [f32]) {
            unreachable!("it takes the group")
        }
        fn takes_group(&self) -> bool {
            true
        }
        fn score_group(&mut self, heads: &mut [HeadKeys]) -> Result<(), String> {
            let seen = heads.iter().map(|h| (h.layer.0, h.head, h.scores.len())).collect();
            self.0.lock().unwrap().push(seen);
            if self.0.lock().unwrap().len() > 2 { Err("no more".into()) } else { Ok(()) }
        }
    }
    let form = Form::new(VARIANTS).cut(2);
    let mut rig = rig(&form, &form);
    rig.config.scoring_network = None;
    let mut engine = rig.open();
    let calls = Arc::default();
    engine.set_scorer(Box::new(All(Arc::clone(&calls))));
    // 63 rows fit AR-1; five are dropped by each scoring.
    engine.process(&ids(0..56)).unwrap();
    for i in 56..63 + 10 {
        engine.process(&ids(i..i + 1)).unwrap();
    }
    let heads: Vec<_> = (0..2).flat_map(|l| (0..Size::TINY.kv_heads).map(move |h| (l, h, 63))).collect();
    assert_eq!(*calls.lock().unwrap(), [heads.clone(), heads], "two scorings, each of all layers");
    let failed = engine.process(&ids(73..74)).unwrap_err();
    let said = format!("{failed}: {}", std::error::Error::source(&failed).map_or(String::new(), ToString::to_string));
    assert!(said.contains("cannot score the cache's keys: no more"), "{said}");
}
