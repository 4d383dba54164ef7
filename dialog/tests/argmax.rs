//! The most likely token stays the one that is taken: temperature 0, top-k 1 and `greedy`, whatever the other settings are, on any
//! row of logits, and without a random number.

use dialog::sampler::{SamplerRules, TokenPenalty};
use dialog::{Sampler, SamplerSettings};
use genie_types::TokenId;
use proptest::prelude::*;

/// Logits of every size, with equal ones and such that all but one have probability 0.
fn row() -> impl Strategy<Value = Vec<f32>> {
    let logit = prop_oneof![
        4 => -20.0f32..20.0,
        2 => (-3i32..4).prop_map(|n| n as f32),
        1 => -1e30f32..1e30,
        1 => Just(f32::NEG_INFINITY),
        1 => Just(f32::MIN_POSITIVE / 2.0),
    ];
    prop::collection::vec(logit, 1..60).prop_filter("a row with a maximum", |row| row.iter().any(|l| l.is_finite()))
}

fn penalty() -> impl Strategy<Value = TokenPenalty> {
    (0usize..40, 0.1f32..8.0, -4.0f32..4.0, -4.0f32..4.0)
        .prop_map(|(last_n, repetition, presence, frequency)| TokenPenalty { last_n, repetition, presence, frequency })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn argmax_stays_argmax(
        rows in prop::collection::vec(row(), 1..5),
        kind in 0usize..5,
        penalty in penalty(),
        (top_k, top_p, temp) in (0usize..9, 0.0f32..=1.0, 0.01f32..9.0),
        prompt in prop::collection::vec(0u32..60, 0..20),
    ) {
        let any = SamplerSettings::default().with_seed(Some(7)).with_penalty(penalty).unwrap();
        let any = any.with_top_k(top_k).with_top_p(top_p).unwrap().with_temp(temp).unwrap();
        let settings = match kind {
            0 => any.with_temp(0.0).unwrap(),
            1 => any.with_top_k(1),
            2 => any.with_greedy(true),
            3 => any.with_temp(0.0).unwrap().with_rules(SamplerRules::Genie),
            _ => any.with_top_k(1).with_rules(SamplerRules::Genie),
        };
        let mut sampler = Sampler::new(settings);
        let before = sampler.save_rng();
        sampler.observe(&prompt.into_iter().map(TokenId).collect::<Vec<_>>());
        for row in rows {
            let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let first = row.iter().position(|l| *l == largest).unwrap();
            let token = sampler.sample(&row).unwrap();
            prop_assert_eq!(token, TokenId(first as u32), "kind {}", kind);
            sampler.accept(token);
        }
        prop_assert_eq!(sampler.save_rng(), before, "no random number was drawn");
    }

    /// Where all other probabilities are 0 in float32, the draw has one outcome, with any settings that keep that token.
    #[test]
    fn what_has_no_probability_is_never_drawn(
        n in 2usize..60,
        best in 0usize..60,
        (top_k, top_p, temp) in (0usize..9, 0.01f32..=1.0, 0.01f32..1.0),
        seed in any::<u32>(),
    ) {
        let best = best % n;
        let row: Vec<f32> = (0..n).map(|i| if i == best { 300.0 } else { -500.0 - i as f32 }).collect();
        let settings = SamplerSettings::default().with_seed(Some(seed)).with_top_k(top_k);
        let settings = settings.with_top_p(top_p).unwrap().with_temp(temp).unwrap();
        let mut sampler = Sampler::new(settings);
        for _ in 0..5 {
            prop_assert_eq!(sampler.sample(&row).unwrap(), TokenId(best as u32));
        }
    }
}
