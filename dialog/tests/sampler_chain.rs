//! Each stage of the chain against a reference that is written from its definition: plain vectors, sorted whole, in f64.

use std::collections::BTreeMap;

use dialog::sampler::{
    Chain, Chances, Dry, DynamicTemp, Logprobs, Mirostat, MirostatVersion, SamplerRules, Stage, TokenPenalty, Xtc,
};
use dialog::{Sampler, SamplerError, SamplerSettings};
use genie_types::TokenId;
use proptest::prelude::*;

type Rows = Vec<(u32, f64)>;

/// Softmax, as (token, probability).
fn softmax(rows: &Rows) -> Rows {
    let max = rows.iter().map(|r| r.1).fold(f64::NEG_INFINITY, f64::max);
    let total: f64 = rows.iter().map(|r| (r.1 - max).exp()).sum();
    rows.iter().map(|r| (r.0, (r.1 - max).exp() / total)).collect()
}

fn sorted(mut rows: Rows) -> Rows {
    rows.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    rows
}

fn entropy(rows: &Rows) -> f64 {
    softmax(rows).iter().filter(|r| r.1 > 0.0).map(|r| -r.1 * r.1.ln()).sum()
}

/// One stage by its definition. `removes`: XTC's chance fell so.
fn stage(rows: Rows, stage: Stage, s: &SamplerSettings, removes: bool) -> Rows {
    let chain = s.chain();
    let chances = softmax(&rows);
    let top = chances.iter().map(|r| r.1).fold(0.0, f64::max);
    let keep = |kept: Vec<u32>| rows.iter().copied().filter(|r| kept.contains(&r.0)).collect::<Rows>();
    match stage {
        Stage::TopNSigma if chain.top_n_sigma > 0.0 => {
            let n = rows.len() as f64;
            let mean = rows.iter().map(|r| r.1).sum::<f64>() / n;
            let deviation = (rows.iter().map(|r| (r.1 - mean) * (r.1 - mean)).sum::<f64>() / n).sqrt();
            let max = rows.iter().map(|r| r.1).fold(f64::NEG_INFINITY, f64::max);
            rows.into_iter().filter(|r| r.1 >= max - f64::from(chain.top_n_sigma) * deviation).collect()
        }
        Stage::TopK if s.top_k() > 0 => sorted(rows).into_iter().take(s.top_k()).collect(),
        Stage::Typical if chain.typical_p < 1.0 => {
            let h = entropy(&rows);
            let mut by_type = chances.clone();
            by_type.sort_by(|a, b| (-a.1.ln() - h).abs().total_cmp(&(-b.1.ln() - h).abs()));
            let (mut sum, mut kept) = (0.0, Vec::new());
            for (id, p) in by_type {
                kept.push(id);
                sum += p;
                if sum > f64::from(chain.typical_p) {
                    break;
                }
            }
            keep(kept)
        }
        Stage::TopP if s.top_p() < 1.0 => {
            let (mut sum, mut kept) = (0.0, Vec::new());
            for (id, p) in sorted(chances) {
                kept.push(id);
                sum += p;
                if sum >= f64::from(s.top_p()) {
                    break;
                }
            }
            keep(kept)
        }
        Stage::MinP => keep(chances.iter().filter(|r| r.1 >= f64::from(chain.min_p) * top).map(|r| r.0).collect()),
        Stage::Xtc if removes => {
            let likely: Rows = sorted(chances).into_iter().filter(|r| r.1 >= f64::from(chain.xtc.threshold)).collect();
            let gone: Vec<u32> = likely.iter().take(likely.len().saturating_sub(1)).map(|r| r.0).collect();
            rows.into_iter().filter(|r| !gone.contains(&r.0)).collect()
        }
        Stage::Temperature => {
            let (temp, range) = (f64::from(s.temp()), f64::from(chain.dynamic_temp.range));
            let temp = if range > 0.0 && rows.len() > 1 {
                let share = entropy(&rows) / (rows.len() as f64).ln();
                let (least, most) = ((temp - range).max(0.0), temp + range);
                least + (most - least) * share.powf(f64::from(chain.dynamic_temp.exponent))
            } else {
                temp
            };
            rows.into_iter().map(|r| (r.0, r.1 / temp)).collect()
        }
        _ => rows,
    }
}

/// The distribution after all stages.
fn reference(logits: &[f32], s: &SamplerSettings) -> BTreeMap<u32, f64> {
    let share = f64::from(s.chain().xtc.probability);
    let mut all = BTreeMap::new();
    for (removes, part) in [(false, 1.0 - share), (true, share)] {
        let mut rows: Rows = (0..).zip(logits.iter().map(|l| f64::from(*l))).collect();
        for (id, bias) in &s.chain().logit_bias {
            rows[id.0 as usize].1 += f64::from(*bias);
        }
        for one in &s.chain().order {
            rows = stage(rows, *one, s, removes);
        }
        for (id, p) in softmax(&rows) {
            *all.entry(id).or_insert(0.0) += part * p;
        }
    }
    all
}

fn plain() -> SamplerSettings {
    SamplerSettings::default().with_seed(Some(1)).with_temp(1.0).unwrap().with_top_p(1.0).unwrap()
}

/// Logits of which no two are near each other, so that rounding decides nothing.
fn apart() -> impl Strategy<Value = Vec<f32>> {
    (4usize..30, any::<u64>()).prop_map(|(n, seed)| {
        let mut places: Vec<usize> = (0..n).collect();
        let mut state = seed | 1;
        for i in (1..n).rev() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            places.swap(i, (state >> 33) as usize % (i + 1));
        }
        places.into_iter().map(|p| p as f32 * 0.37 - 3.0 + (p as f32).sin() * 0.1).collect()
    })
}

fn check(logits: &[f32], settings: &SamplerSettings) {
    let mut found = Chances::default();
    Sampler::new(settings.clone()).chances(logits, &mut found).unwrap();
    let wanted = reference(logits, settings);
    for id in 0..logits.len() as u32 {
        let (own, other) = (found.of(TokenId(id)), wanted.get(&id).copied().unwrap_or(0.0));
        assert!((own - other).abs() < 1e-5, "token {id}: {own}, expected {other}; {settings:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn the_distribution_is_that_of_the_definitions(
        logits in apart(),
        temp in 0.3f32..2.0,
        top in (prop_oneof![Just(0usize), 1..12usize], prop_oneof![Just(1.0f32), 0.2..0.99f32]),
        cuts in (prop_oneof![Just(0.0f32), 0.01..0.5f32], prop_oneof![Just(1.0f32), 0.2..0.95f32], prop_oneof![Just(0.0f32), 0.3..2.5f32]),
        xtc in (prop_oneof![Just(0.0f32), 0.1..1.0f32], 0.02..0.4f32),
        dynamic in (prop_oneof![Just(0.0f32), 0.1..0.25f32], 0.5..2.0f32),
        bias in -2.0f32..2.0,
        order in Just(Stage::ORDER.to_vec()).prop_shuffle(),
        shuffled: bool,
    ) {
        let chain = Chain {
            logit_bias: vec![(TokenId(2), bias + 0.013)],
            min_p: cuts.0,
            typical_p: cuts.1,
            top_n_sigma: cuts.2,
            xtc: Xtc { probability: xtc.0, threshold: xtc.1 },
            dynamic_temp: DynamicTemp { range: dynamic.0, exponent: dynamic.1 },
            order: if shuffled { order } else { Stage::ORDER.to_vec() },
            ..Chain::default()
        };
        // A single candidate is an argmax, which skips the filters.
        let top_k = if top.0 == 1 { 2 } else { top.0 };
        let settings = plain().with_temp(temp).unwrap().with_top_k(top_k).with_top_p(top.1).unwrap().with_chain(chain).unwrap();
        check(&logits, &settings);
    }

    /// What is drawn is drawn by those chances: counts over many draws.
    #[test]
    fn stages_that_cut_nothing_leave_every_draw_as_it_was(logits in apart(), seed: u32, top_k in 2..9usize) {
        let settings = plain().with_seed(Some(seed)).with_top_k(top_k).with_temp(0.7).unwrap();
        let chain = Chain { min_p: 1e-30, ..Chain::default() };
        let mut old = Sampler::new(settings.clone());
        let mut new = Sampler::new(settings.with_chain(chain).unwrap());
        for _ in 0..50 {
            prop_assert_eq!(old.sample(&logits).unwrap(), new.sample(&logits).unwrap());
        }
    }
}

#[test]
fn draws_are_as_often_as_their_chances() {
    let logits: Vec<f32> = (0..12).map(|i| (i as f32 * 1.3).sin() * 2.0).collect();
    let xtc = Xtc { probability: 0.4, threshold: 0.1 };
    let chain = Chain { min_p: 0.05, xtc, ..Chain::default() };
    let mut sampler = Sampler::new(plain().with_chain(chain).unwrap());
    let mut chances = Chances::default();
    sampler.chances(&logits, &mut chances).unwrap();
    let n = 40_000;
    let mut counts = vec![0u32; logits.len()];
    (0..n).for_each(|_| counts[sampler.sample(&logits).unwrap().0 as usize] += 1);
    for (id, count) in counts.iter().enumerate() {
        let p = chances.of(TokenId(id as u32));
        let (wanted, spread) = (p * f64::from(n), (p * (1.0 - p) * f64::from(n)).sqrt());
        assert!((f64::from(*count) - wanted).abs() <= 5.0 * spread + 1e-9, "token {id}: {count} of {wanted}");
    }
}

#[test]
fn drafted_tokens_are_kept_so_that_the_distribution_stays() {
    let logits = [0.1f32, 1.2, 0.7, -0.4, 0.9];
    let chain = Chain { min_p: 0.2, xtc: Xtc { probability: 0.5, threshold: 0.2 }, ..Chain::default() };
    let mut sampler = Sampler::new(plain().with_chain(chain).unwrap());
    let mut drafter = Sampler::new(plain().with_seed(Some(9)));
    let (mut own, mut draft) = (Chances::default(), Chances::default());
    sampler.chances(&logits, &mut own).unwrap();
    let other = [1.0f32, 0.2, 0.3, 0.9, -0.5];
    drafter.chances(&other, &mut draft).unwrap();
    let n = 40_000;
    let mut counts = [0u32; 5];
    for _ in 0..n {
        let offered = drafter.sample(&other).unwrap();
        counts[sampler.accept_or_replace(&logits, offered, &draft).unwrap().0 as usize] += 1;
    }
    for (id, count) in counts.iter().enumerate() {
        let p = own.of(TokenId(id as u32));
        let spread = (p * (1.0 - p) * f64::from(n)).sqrt();
        assert!((f64::from(*count) - p * f64::from(n)).abs() <= 5.0 * spread + 1e-9, "token {id}: {count}, {p}");
    }
}

/// Both mirostats by their authors' steps, over the same draws: what is kept, and the bound from draw to draw.
#[test]
fn mirostat_keeps_what_its_bound_allows() {
    let logits: Vec<f32> = (0..60).map(|i| -1.1 * ((i + 1) as f32).ln() + (i as f32 * 0.7).sin() * 0.05).collect();
    for version in [MirostatVersion::One, MirostatVersion::Two] {
        let rule = Mirostat { version, tau: 2.5, eta: 0.3 };
        let chain = Chain { mirostat: Some(rule), ..Chain::default() };
        let mut sampler = Sampler::new(plain().with_temp(0.9).unwrap().with_chain(chain).unwrap());
        let mut mu = 5.0f64;
        let mut surprise = 0.0;
        for draw in 0..300 {
            let rows = sorted((0..).zip(logits.iter().map(|l| f64::from(*l) / f64::from(0.9f32))).collect());
            let probs = softmax(&rows);
            let n = match version {
                MirostatVersion::Two => probs.iter().take_while(|r| -r.1.log2() <= mu).count().max(1),
                MirostatVersion::One => {
                    let (mut over, mut under) = (0.0, 0.0);
                    for i in 0..rows.len() - 1 {
                        let t = ((i as f64 + 2.0) / (i as f64 + 1.0)).ln();
                        over += t * (probs[i].1 / probs[i + 1].1).ln();
                        under += t * t;
                    }
                    let s = over / under;
                    let e = s - 1.0;
                    let k = (e * 2f64.powf(mu) / (1.0 - (rows.len() as f64).powf(-e))).powf(1.0 / s);
                    (k as usize).clamp(1, rows.len())
                }
            };
            let kept = softmax(&rows[..n].to_vec());
            let mut found = Chances::default();
            sampler.chances(&logits, &mut found).unwrap();
            let differ: Vec<u32> =
                kept.iter().filter(|(id, p)| (found.of(TokenId(*id)) - p).abs() > 1e-5).map(|r| r.0).collect();
            assert!(differ.is_empty(), "{version:?}, draw {draw}: {differ:?} of {n}");
            let token = sampler.sample(&logits).unwrap();
            sampler.accept(token);
            let p = kept.iter().find(|r| r.0 == token.0).expect("a kept token is drawn").1;
            surprise += -p.log2();
            mu -= 0.3 * (-p.log2() - 2.5);
        }
        let mean = surprise / 300.0;
        assert!((mean - 2.5).abs() < 0.4, "{version:?}: the surprise is {mean:.2} bits on average, wanted 2.5");
    }
}

#[test]
fn penalties_and_dry_act_in_the_chain() {
    let penalty = TokenPenalty { last_n: 8, repetition: 2.0, presence: 0.5, frequency: 0.25 };
    let dry = Dry { multiplier: 3.0, base: 2.0, allowed_length: 2, ..Dry::default() };
    let settings = plain().with_penalty(penalty).unwrap();
    let mut sampler = Sampler::new(settings.with_chain(Chain { dry, ..Chain::default() }).unwrap());
    // 1 2 3 and again 1 2: what follows is 3, with two tokens in common.
    sampler.observe(&[1, 2, 3, 1, 2].map(TokenId));
    let logits = [0.0f32, 1.0, 2.0, 4.0];
    let wanted = softmax(&vec![(0, 0.0), (1, 0.5 - 1.0), (2, 1.0 - 1.0), (3, 2.0 - 0.75 - 3.0)]);
    let mut found = Chances::default();
    sampler.chances(&logits, &mut found).unwrap();
    for (id, p) in wanted {
        assert!((found.of(TokenId(id)) - p).abs() < 1e-6, "token {id}: {}, expected {p}", found.of(TokenId(id)));
    }
}

#[test]
fn a_bias_moves_the_most_likely_token_and_forbids_tokens() {
    let logits = [1.0f32, 3.0, 2.0];
    let with = |bias: Vec<(TokenId, f32)>| {
        let chain = Chain { logit_bias: bias, ..Chain::default() };
        Sampler::new(SamplerSettings::argmax().with_chain(chain).unwrap())
    };
    assert_eq!(with(vec![(TokenId(0), 5.0)]).sample(&logits).unwrap(), TokenId(0));
    assert_eq!(with(vec![(TokenId(1), f32::NEG_INFINITY)]).sample(&logits).unwrap(), TokenId(2));
    assert_eq!(with(vec![(TokenId(77), 9.0)]).sample(&logits).unwrap(), TokenId(1), "no such token");
    let all = (0..3).map(|id| (TokenId(id), f32::NEG_INFINITY)).collect();
    assert_eq!(with(all).sample(&logits).unwrap_err(), SamplerError::AllMasked { n_vocab: 3 });
}

#[test]
fn an_order_decides() {
    // Probabilities 0.7, 0.2, 0.1. Heated to 100 they are alike, and a share of 0.6 takes two of them in place of one.
    let logits = [0.0, 2f32.ln(), 7f32.ln()];
    let n_left = |order: &str| {
        let chain = Chain { order: Stage::parse_order(order).unwrap(), ..Chain::default() };
        let settings = plain().with_temp(100.0).unwrap().with_top_p(0.6).unwrap().with_chain(chain).unwrap();
        let mut found = Chances::default();
        Sampler::new(settings).chances(&logits, &mut found).unwrap();
        (0..3).filter(|id| found.of(TokenId(*id)) > 0.0).count()
    };
    assert_eq!((n_left("top_p;temperature;top_k"), n_left("temperature;top_p"), n_left("temperature")), (1, 2, 3));
}

#[test]
fn logarithms_are_of_the_models_own_distribution() {
    let _: Vec<Logprobs> = dialog::Reply::none(dialog::StopReason::Aborted).logprobs;
    let settings = plain().with_temp(0.2).unwrap().with_top_k(1).with_logprobs(Some(2));
    assert_eq!(settings.logprobs(), Some(2));
}

/// With a stage of the chain the documented rules hold under libGenie's, for penalties too; a logit that they make infinite is an error.
#[test]
fn penalties_beside_a_stage_follow_the_documented_rules() {
    let rows: Vec<f32> = (0..40).map(|i| (i as f32 * 0.37).sin() * 4.0).collect();
    let penalty = TokenPenalty { last_n: 64, presence: 0.1, ..TokenPenalty::default() };
    let draws = |rules: SamplerRules, chain: Chain| -> Vec<u32> {
        let settings = SamplerSettings::default()
            .with_seed(Some(7))
            .with_temp(0.8)
            .unwrap()
            .with_top_k(40)
            .with_penalty(penalty.clone())
            .unwrap();
        let settings = settings.with_rules(rules).with_repetition_absent().with_chain(chain).unwrap();
        let mut sampler = Sampler::new(settings);
        let mut draw = || {
            let token = sampler.sample(&rows).unwrap();
            sampler.accept(token);
            token.0
        };
        (0..20).map(|_| draw()).collect()
    };
    let stage = || Chain { min_p: 0.01, ..Chain::default() };
    assert_eq!(draws(SamplerRules::Genie, stage()), draws(SamplerRules::Documented, stage()));

    let tiny = TokenPenalty { repetition: 1e-38, ..penalty };
    let settings = SamplerSettings::default()
        .with_seed(Some(7))
        .with_temp(0.8)
        .unwrap()
        .with_top_k(40)
        .with_penalty(tiny)
        .unwrap()
        .with_chain(stage())
        .unwrap();
    let mut sampler = Sampler::new(settings);
    sampler.accept(TokenId(4));
    assert!(matches!(sampler.sample(&rows), Err(SamplerError::NotFinite { token: 4, .. })));
}
