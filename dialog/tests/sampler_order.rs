//! The order of the tokens that libGenie keeps, place by place: draws with seeds that fall on each of them
//! (`tests/data/sampler_order.json`), over its own logits.

use dialog::sampler::SamplerRules;
use dialog::{Sampler, SamplerSettings};
use half::f16;
use serde::Deserialize;

const N_VOCAB: usize = 512;

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Recording {
    top_p: Vec<TopP>,
    top_k: Vec<TopK>,
}

#[derive(Deserialize)]
struct TopP {
    p: f32,
    draws: Vec<(u32, u32)>,
}

#[derive(Deserialize)]
struct TopK {
    k: usize,
    draws: Vec<(u32, u32)>,
}

fn recording() -> Recording {
    serde_json::from_str(include_str!("data/sampler_order.json")).unwrap()
}

fn logits() -> Vec<f32> {
    let bytes = &include_bytes!("data/sampler_rows.f16")[..N_VOCAB * 2];
    bytes.chunks_exact(2).map(|pair| f16::from_le_bytes([pair[0], pair[1]]).to_f32()).collect()
}

/// How many draws are not the recorded ones.
fn n_other(settings: &SamplerSettings, draws: &[(u32, u32)]) -> usize {
    let logits = logits();
    let draw = |seed| Sampler::new(settings.clone().with_seed(Some(seed))).sample(&logits).unwrap().0;
    draws.iter().filter(|(seed, token)| draw(*seed) != *token).count()
}

fn settings(rules: SamplerRules) -> SamplerSettings {
    SamplerSettings::default().with_top_k(0).with_temp(1000.0).unwrap().with_rules(rules)
}

#[test]
fn tokens_kept_by_top_p_stand_where_libgenie_has_them() {
    let recorded = recording().top_p;
    assert!(recorded.len() > 20);
    for TopP { p, draws } in &recorded {
        let with = |rules| settings(rules).with_top_p(*p).unwrap();
        assert_eq!(n_other(&with(SamplerRules::Genie), draws), 0, "top-p {p}: {} draws", draws.len());
        if draws.len() > 20 {
            assert!(n_other(&with(SamplerRules::Documented), draws) > 0, "the rules differ at top-p {p}");
        }
    }
}

#[test]
fn equal_logits_stand_where_libgenies_top_k_has_them() {
    let recorded = recording().top_k;
    assert!(recorded.iter().any(|case| case.k > N_VOCAB));
    for TopK { k, draws } in &recorded {
        let with = |rules| settings(rules).with_top_p(1.0).unwrap().with_top_k(*k);
        assert_eq!(n_other(&with(SamplerRules::Genie), draws), 0, "top-k {k}: {} draws", draws.len());
        assert!(n_other(&with(SamplerRules::Documented), draws) > 0, "the rules differ at top-k {k}");
    }
}
