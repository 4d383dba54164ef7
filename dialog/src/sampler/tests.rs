//! The sampler against a slow reference written from the documented rules, and against the `rand_mt` crate.

use genie_types::TokenId;
use proptest::prelude::*;

use super::*;

/// The documented rules, one line each, on plain vectors; nothing here is shared with the implementation.
struct Reference {
    temp: f64,
    top_k: usize,
    top_p: f64,
    penalty: TokenPenalty,
    rng: rand_mt::Mt,
}

impl Reference {
    fn new(s: &SamplerSettings) -> Self {
        Self {
            temp: f64::from(s.temp()),
            top_k: s.top_k(),
            top_p: f64::from(s.top_p()),
            penalty: s.penalty().clone(),
            rng: rand_mt::Mt::new(s.seed().unwrap()),
        }
    }

    fn sample(&mut self, logits: &[f32], generated: &[u32]) -> u32 {
        let mut rows: Vec<(u32, f32)> = logits.iter().enumerate().map(|(i, &l)| (i as u32, l)).collect();
        let window = &generated[generated.len().saturating_sub(self.penalty.last_n)..];
        for (id, l) in &mut rows {
            let count = window.iter().filter(|t| **t == *id).count();
            if count > 0 {
                *l = if *l > 0.0 { *l / self.penalty.repetition } else { *l * self.penalty.repetition };
                *l -= self.penalty.presence + self.penalty.frequency * count as f32;
            }
        }
        if self.top_k > 0 {
            rows.sort_by(|a, b| b.1.partial_cmp(&a.1).unwrap());
            rows.truncate(self.top_k);
        }
        if self.top_p < 1.0 {
            rows.sort_by(|a, b| b.1.partial_cmp(&a.1).unwrap());
            let probs = softmax(&rows, 1.0);
            let mut sum = 0.0;
            let keep = probs.iter().position(|p| {
                sum += p;
                sum >= self.top_p
            });
            rows.truncate(keep.map_or(rows.len(), |k| k + 1));
        }
        let probs = softmax(&rows, self.temp);
        let (r1, r2) = (u64::from(self.rng.next_u32()), u64::from(self.rng.next_u32()));
        let u = (r1 as f64 + (r2 as f64) * 2f64.powi(32)) / 2f64.powi(64);
        let mut sum = 0.0;
        let at = probs.iter().position(|p| {
            sum += p;
            sum > u
        });
        rows[at.unwrap_or(rows.len() - 1)].0
    }
}

fn softmax(rows: &[(u32, f32)], temp: f64) -> Vec<f64> {
    let max = rows.iter().map(|r| f64::from(r.1) / temp).fold(f64::NEG_INFINITY, f64::max);
    let exps: Vec<f64> = rows.iter().map(|r| (f64::from(r.1) / temp - max).exp()).collect();
    let sum: f64 = exps.iter().sum();
    exps.iter().map(|e| e / sum).collect()
}

fn settings(seed: u32, temp: f32, top_k: usize, top_p: f32) -> SamplerSettings {
    SamplerSettings::default()
        .with_seed(Some(seed))
        .with_temp(temp)
        .unwrap()
        .with_top_k(top_k)
        .with_top_p(top_p)
        .unwrap()
}

fn draws(sampler: &mut Sampler, logits: &[f32], n: usize) -> Vec<u32> {
    (0..n)
        .map(|_| {
            let t = sampler.sample(logits).unwrap();
            sampler.accept(t);
            t.0
        })
        .collect()
}

#[test]
fn mt19937_gives_the_published_words() {
    // The C++ standard: the 10000th output of a default-seeded (5489) engine is 4123659995.
    let mut rng = Mt19937::new(5489);
    let last = (0..10_000).map(|_| rng.next_u32()).last();
    assert_eq!(last, Some(4_123_659_995));
    let mut rng = Mt19937::new(42);
    assert_eq!([rng.next_u32(), rng.next_u32(), rng.next_u32()], [1_608_637_542, 3_421_126_067, 4_083_286_876]);
}

#[test]
fn a_fresh_state_is_saved_as_libgenie_saves_it() {
    let sampler = Sampler::new(settings(42, 1.0, 0, 1.0));
    let text = sampler.save_rng();
    assert!(text.starts_with("42 3107752595 1895908407 "), "{}", &text[..40]);
    assert_eq!(text.split(' ').count(), 624);
}

#[test]
fn a_restored_state_continues_the_sequence() {
    let logits: Vec<f32> = (0..50).map(|i| (i as f32 * 0.7).sin()).collect();
    let mut a = Sampler::new(settings(7, 1.5, 0, 1.0));
    draws(&mut a, &logits, 401);
    let mut b = Sampler::new(settings(8, 1.5, 0, 1.0));
    b.restore_rng(&a.save_rng()).unwrap();
    assert_eq!(draws(&mut a, &logits, 900), draws(&mut b, &logits, 900));
    assert_eq!(
        Mt19937::from_text("1 2 x").unwrap_err().to_string(),
        "word 2 of the random state is `x`, expected a decimal number below 2^32"
    );
    assert_eq!(b.restore_rng("1 2 3").unwrap_err().to_string(), "the random state has 3 words, expected 624");
}

#[test]
fn the_draw_is_the_inverse_cdf_at_the_measured_u() {
    // Two equal logits: token 0 owns u < 0.5. The first word pairs of seed 42 give u by hand:
    // u = (r1 + r2 * 2^32) / 2^64, so its leading digits come from the second word: 3421126067 / 2^32 = 0.7965...
    let mut rng = Mt19937::new(42);
    assert!((rng.next_unit() - 0.796_543).abs() < 1e-6);
    let mut s = Sampler::new(settings(42, 1.0, 0, 1.0));
    assert_eq!(draws(&mut s, &[0.0, 0.0], 1), [1]);
    // Four equal ones: 0.7965 lies in the last quarter; ten equal ones: in the eighth tenth.
    let mut s = Sampler::new(settings(42, 1.0, 0, 1.0));
    assert_eq!(draws(&mut s, &[0.0; 4], 1), [3]);
    let mut s = Sampler::new(settings(42, 1.0, 0, 1.0));
    assert_eq!(draws(&mut s, &[0.0; 10], 1), [7]);
}

#[test]
fn order_of_the_cdf_depends_on_whether_a_filter_sorted() {
    // Logits ln 1, ln 2, ln 7 (probabilities 0.1, 0.2, 0.7), u = 0.7965.
    let logits = [0.0, 2f32.ln(), 7f32.ln()];
    // Token-id order: cumulative 0.1, 0.3, 1.0 -> token 2.
    assert_eq!(draws(&mut Sampler::new(settings(42, 1.0, 0, 1.0)), &logits, 1), [2]);
    // Sorted by top-k: 0.7, 0.9 -> token 1.
    assert_eq!(draws(&mut Sampler::new(settings(42, 1.0, 3, 1.0)), &logits, 1), [1]);
    // Sorted by top-p 0.95: nothing is cut, same order.
    assert_eq!(draws(&mut Sampler::new(settings(42, 1.0, 0, 0.95)), &logits, 1), [1]);
    // top-p 0.6: token 2 alone reaches it.
    assert_eq!(draws(&mut Sampler::new(settings(42, 1.0, 0, 0.6)), &logits, 1), [2]);
}

#[test]
fn top_p_looks_at_untempered_probabilities() {
    // Probabilities 0.7, 0.2, 0.1. At temp 0.1 the first alone has nearly all the mass, at temp 100 all are alike.
    // top-p 0.75 keeps tokens 2 and 1 in both cases; with tempered probabilities temp 100 would keep all three.
    let logits = [0.0, 2f32.ln(), 7f32.ln()];
    let hot = draws(&mut Sampler::new(settings(1, 100.0, 0, 0.75)), &logits, 400);
    assert!(hot.contains(&1) && hot.contains(&2) && !hot.contains(&0));
}

#[test]
fn argmax_needs_no_random_number_and_takes_the_lowest_id() {
    let logits = [1.0, 3.0, -2.0, 3.0];
    let argmaxes = [
        SamplerSettings::argmax(),
        settings(3, 0.0, 0, 1.0),
        settings(3, 0.8, 1, 1.0),
        settings(3, 0.8, 40, 0.9).with_greedy(true),
    ];
    for s in argmaxes {
        let mut sampler = Sampler::new(s.clone());
        let before = sampler.save_rng();
        assert_eq!(draws(&mut sampler, &logits, 5), [1; 5], "{s:?}");
        assert_eq!(sampler.save_rng(), before);
    }
}

#[test]
fn penalties_do_nothing_to_an_argmax_sampler_as_in_libgenie() {
    let penalty = TokenPenalty { last_n: 8, repetition: 100.0, presence: 9.0, frequency: 9.0 };
    let mut s = Sampler::new(SamplerSettings::argmax().with_penalty(penalty.clone()).unwrap());
    assert_eq!(draws(&mut s, &[2.0, 1.0], 4), [0; 4]);
    // With a random draw the same penalty pushes the first token out at once.
    let mut s = Sampler::new(settings(5, 0.01, 2, 1.0).with_penalty(penalty).unwrap());
    assert_eq!(draws(&mut s, &[2.0, 1.0], 2), [0, 1]);
}

#[test]
fn penalties_count_occurrences_in_the_window_only() {
    let mut p = Penalties::new(TokenPenalty { last_n: 3, repetition: 2.0, presence: 0.5, frequency: 0.25 });
    for t in [1, 4, 4, 2] {
        p.accept(TokenId(t));
    }
    let mut logits = [4.0, 4.0, 4.0, 4.0, -4.0];
    p.apply(&mut logits);
    // Token 1 has left; token 2: 4/2 - 0.5 - 0.25; token 4 twice: -4*2 - 0.5 - 0.5.
    assert_eq!(logits, [4.0, 4.0, 1.25, 4.0, -9.0]);
    p.clear();
    assert!(!p.is_active());
}

#[test]
fn absent_repetition_penalty_changes_nothing() {
    let penalty = TokenPenalty { last_n: 8, ..TokenPenalty::default() };
    let logits: Vec<f32> = (0..20).map(|i| (i as f32).cos()).collect();
    let mut with = Sampler::new(settings(5, 1.0, 0, 0.9).with_penalty(penalty).unwrap());
    let mut without = Sampler::new(settings(5, 1.0, 0, 0.9));
    assert_eq!(draws(&mut with, &logits, 30), draws(&mut without, &logits, 30));
}

#[test]
fn reset_seeds_again_and_empties_the_window() {
    let penalty = TokenPenalty { last_n: 4, repetition: 1.3, presence: 0.1, frequency: 0.2 };
    let logits: Vec<f32> = (0..64).map(|i| (i as f32 * 1.3).sin()).collect();
    let mut s = Sampler::new(settings(42, 1.0, 0, 0.9).with_penalty(penalty).unwrap());
    let first = draws(&mut s, &logits, 20);
    s.reset();
    assert_eq!(draws(&mut s, &logits, 20), first);
    assert_eq!(s.seed(), 42);
}

#[test]
fn defaults_are_the_measured_ones() {
    let s = SamplerSettings::default();
    assert_eq!((s.temp(), s.top_k(), s.top_p(), s.seed(), s.greedy()), (0.1, 0, 0.8, None, false));
    let table = genie_bundle::config::key_table();
    let listed = |key: &str| table.iter().find(|row| row.path == format!("sampler/{key}")).unwrap().default.unwrap();
    assert_eq!((listed("temp"), listed("top-k"), listed("top-p"), listed("greedy")), ("0.1", "0", "0.8", "false"));
    // Drawn seeds differ; two equal ones in a row are a 2^-32 event.
    assert_ne!(Sampler::new(s.clone()).seed(), Sampler::new(s).seed());
}

#[test]
fn rows_without_a_meaning_are_refused() {
    struct Case(&'static [f32], &'static str);
    let cases = [
        Case(&[], "cannot sample from an empty row of logits"),
        Case(&[0.0, f32::NAN, f32::NAN], "logit of token 1 is NaN, expected a finite number (2 of 3 logits are bad)"),
        Case(&[f32::INFINITY], "logit of token 0 is inf, expected a finite number (1 of 1 logits are bad)"),
        Case(&[f32::NEG_INFINITY; 3], "all 3 logits are -inf: every token is masked"),
    ];
    for Case(logits, message) in cases {
        for s in [SamplerSettings::argmax(), settings(1, 1.0, 0, 0.9)] {
            assert_eq!(Sampler::new(s).sample(logits).unwrap_err().to_string(), message);
        }
    }
    let mut s = Sampler::new(settings(1, 1.0, 0, 1.0));
    assert_eq!(draws(&mut s, &[f32::NEG_INFINITY, 0.0, f32::NEG_INFINITY], 50), [1; 50], "masked tokens never come");
}

#[test]
fn settings_out_of_range_are_refused() {
    let d = SamplerSettings::default;
    let penalty = |repetition| TokenPenalty { repetition, ..TokenPenalty::default() };
    let cases = [
        (d().with_temp(-1.0).unwrap_err(), "`temp` is -1, expected a finite number of at least 0"),
        (d().with_top_p(1.5).unwrap_err(), "`top-p` is 1.5, expected a number from 0 to 1"),
        (d().with_top_p(f32::NAN).unwrap_err(), "`top-p` is NaN, expected a number from 0 to 1"),
        (d().with_penalty(penalty(0.0)).unwrap_err(), "`repetition-penalty` is 0, expected a finite number above 0"),
    ];
    for (err, message) in cases {
        assert_eq!(err.to_string(), message);
    }
}

#[test]
fn sampling_allocates_nothing_after_the_first_token() {
    let logits: Vec<f32> = (0..5000).map(|i| (i as f32 * 0.37).sin() * 8.0).collect();
    let penalty = TokenPenalty { last_n: 16, repetition: 1.1, presence: 0.1, frequency: 0.1 };
    let mut s = Sampler::new(settings(9, 0.9, 0, 0.95).with_penalty(penalty).unwrap());
    draws(&mut s, &logits, 32);
    let before = (s.row.as_ptr(), s.row.capacity());
    draws(&mut s, &logits, 64);
    assert_eq!((s.row.as_ptr(), s.row.capacity()), before);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn mt19937_equals_the_rand_mt_crate(seed: u32) {
        let (mut ours, mut theirs) = (Mt19937::new(seed), rand_mt::Mt::new(seed));
        for _ in 0..1300 {
            prop_assert_eq!(ours.next_u32(), theirs.next_u32());
        }
    }

    #[test]
    fn tokens_equal_the_reference(
        logits in prop::collection::vec(-12.0f32..12.0, 1..300),
        seed: u32,
        temp in 0.05f32..3.0,
        top_k in prop_oneof![Just(0usize), 2usize..80],
        top_p in prop_oneof![Just(1.0f32), 0.0f32..1.0],
        last_n in 0usize..6,
        repetition in 0.5f32..2.0,
        presence in -1.0f32..1.0,
        frequency in -0.5f32..0.5,
    ) {
        let penalty = TokenPenalty { last_n, repetition, presence, frequency };
        let s = settings(seed, temp, top_k, top_p).with_penalty(penalty).unwrap();
        let (mut reference, mut sampler) = (Reference::new(&s), Sampler::new(s));
        let mut generated = Vec::new();
        for _ in 0..16 {
            let token = sampler.sample(&logits).unwrap();
            prop_assert_eq!(token.0, reference.sample(&logits, &generated));
            sampler.accept(token);
            generated.push(token.0);
        }
    }

    #[test]
    fn ties_are_broken_by_the_lowest_id(ids in prop::collection::vec(0u8..4, 1..200), seed: u32, k in 2usize..60) {
        let logits: Vec<f32> = ids.iter().map(|&v| f32::from(v)).collect();
        let s = settings(seed, 1.0, k, 0.9);
        let (mut reference, mut sampler) = (Reference::new(&s), Sampler::new(s));
        for _ in 0..8 {
            prop_assert_eq!(sampler.sample(&logits).unwrap().0, reference.sample(&logits, &[]));
        }
    }
}
