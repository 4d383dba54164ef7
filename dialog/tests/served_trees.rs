//! Trees of drafts for a request whose steps someone else runs: the reply is that of the same request without them, and where guesses are
//! right there are fewer steps.

use dialog::config::ContextSettings;
use dialog::kinds::{BranchMode, Branches, LadeSettings, SsdSettings, TreeKind, UpdateMode};
use dialog::{Reply, RequestBase, RequestSettings, SamplerSettings};
use engine::{SeqId, TokenModel};
use genie_types::TokenId;
use proptest::prelude::*;
use session_store::ForecastPrefix;

use crate::common::{context, tokenizer};
use crate::toy::{N_PREFIX, N_VOCAB, Toy, prefix_folder};

fn ssd(counts: &[usize], mode: BranchMode) -> TreeKind {
    TreeKind::Ssd(SsdSettings {
        branches: Branches::new(counts.to_vec(), mode),
        n_forecast: 3,
        first_forecast: TokenId(N_VOCAB as u32),
        prefix: prefix_folder(),
        n_prefix: Some(N_PREFIX),
    })
}

fn kind() -> impl Strategy<Value = TreeKind> {
    let counts = prop::sample::select(vec![&[1][..], &[3], &[2, 1], &[3, 2], &[1, 1, 1], &[1, 3]]);
    let modes = prop::sample::select(vec![BranchMode::AllExpand, BranchMode::Top1]);
    let updates = [UpdateMode::AlwaysForwardOne, UpdateMode::ForwardLevel, UpdateMode::ForwardMaxHit];
    let lade = (1_usize..6, 2_usize..5, 0_usize..4, prop::sample::select(updates.to_vec()));
    prop_oneof![
        (counts, modes).prop_map(|(counts, mode)| ssd(counts, mode)),
        lade.prop_map(|(window, ngram, gcap, update_mode)| TreeKind::Lade(LadeSettings {
            window,
            ngram,
            gcap,
            update_mode
        })),
    ]
}

/// Runs a request to its end; returns the reply and the steps behind its first token.
fn run(mut model: Toy, kind: Option<TreeKind>, prompt: &[u32], settings: RequestSettings) -> (Reply, usize) {
    if let Some(TreeKind::Ssd(settings)) = &kind {
        let prefix = settings.read_prefix(&mut model).unwrap();
        let snapshot = model.snapshot().unwrap();
        model.restore_snapshot(&prefix.before(snapshot)).unwrap();
        assert_eq!(model.sequences().unwrap().transcript_of(ForecastPrefix::SEQ).unwrap().len(), N_PREFIX);
    }
    let context = ContextSettings { eos: vec![TokenId(40)], n_vocab: N_VOCAB, size: 512, ..context() };
    let base = RequestBase::new(context, tokenizer(), settings.clone()).with_trees(kind);
    let prompt: Vec<TokenId> = prompt.iter().copied().map(TokenId).collect();
    let mut reply = base.request(prompt.clone(), settings, N_VOCAB).unwrap();
    reply.take(model.process(&prompt).unwrap()).unwrap();
    let mut n_steps = 0;
    while reply.stop().is_none() {
        n_steps += 1;
        let last = *reply.history().last().unwrap();
        match reply.tree(32, N_VOCAB) {
            None => {
                reply.take(model.process(&[last]).unwrap()).unwrap();
            }
            Some((tree, gain)) => {
                assert!((0.0..=3.0).contains(&gain) && tree.n_rows() <= 32 && tree.rows()[0].token == last);
                let sequences = model.sequences().unwrap();
                let n_past = reply.history().len() - 1;
                let mut drawn = Ok(());
                let n_kept = sequences.process_tree(SeqId(0), tree.rows(), &mut |logits| {
                    let (path, result) = reply.take_tree(&tree, logits);
                    drawn = result;
                    path
                });
                drawn.unwrap();
                assert_eq!(
                    n_past + n_kept.unwrap() + 1,
                    reply.history().len(),
                    "all but the last token are in the cache"
                );
            }
        }
    }
    (reply.finish(), n_steps)
}

fn settings(greedy: bool, seed: u32, max_tokens: usize, stop: bool) -> RequestSettings {
    let sampler = SamplerSettings::default().with_greedy(greedy).with_seed(Some(seed)).with_temp(0.8).unwrap();
    let mut settings = RequestSettings::new(sampler);
    settings.max_tokens = Some(max_tokens);
    settings.stop_sequences = if stop { vec!["a".into(), "Zq".into()] } else { Vec::new() };
    settings
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn replies_are_those_without_trees(
        kind in kind(),
        (order, forecast_noise) in (1_usize..4, 0_u64..4),
        prompt in prop::collection::vec(48_u32..128, 1..12),
        (greedy, seed, max_tokens, stop) in (any::<bool>(), any::<u32>(), 1_usize..80, any::<bool>()),
    ) {
        let model = || Toy::new(N_VOCAB, order, 0).forecasting(forecast_noise);
        let (plain, n_steps) = run(model(), None, &prompt, settings(greedy, seed, max_tokens, stop));
        let (found, n_with) = run(model(), Some(kind), &prompt, settings(greedy, seed, max_tokens, stop));
        prop_assert_eq!((&found.tokens, &found.text, &found.stop), (&plain.tokens, &plain.text, &plain.stop));
        let counts = found.kpis.speculation.unwrap();
        prop_assert!(n_with <= n_steps && counts.n_accepted <= counts.n_drafted);
        prop_assert!(n_with + counts.n_accepted >= n_steps, "each token of a draft saves a step at the most");
    }
}

#[test]
fn guesses_that_are_right_save_steps() {
    let greedy = || RequestSettings { ignore_end_tokens: true, ..settings(true, 1, 80, false) };
    let model = |order| Toy::new(N_VOCAB, order, 0);
    for (name, kind, order, most) in [
        // Every forecast holds: two tokens more with each step but the first.
        ("forecasts", ssd(&[1, 1], BranchMode::AllExpand), 2, 28),
        // A model of one token soon repeats itself.
        ("n-grams", TreeKind::Lade(LadeSettings { window: 4, ngram: 3, ..LadeSettings::default() }), 1, 45),
    ] {
        let (plain, n_steps) = run(model(order), None, &[50, 60], greedy());
        let (found, n_with) = run(model(order), Some(kind), &[50, 60], greedy());
        assert_eq!((plain.tokens.len(), found.tokens), (80, plain.tokens), "{name}");
        assert!(n_steps == 79 && n_with <= most, "{name}: {n_with} steps of {n_steps}");
    }
}
