//! No stage of the chain allocates once it has seen a row of the vocabulary's size.

use dialog::sampler::{Chain, Chances, Dry, DynamicTemp, Mirostat, MirostatVersion, Xtc};
use dialog::{Sampler, SamplerSettings};
use genie_types::TokenId;

const VOCAB: u32 = 512;

/// Logits that differ from step to step.
fn row(step: u32) -> Vec<f32> {
    (0..VOCAB).map(|id| ((id * 37 + step * 101) % 499) as f32 / 60.0).collect()
}

#[test]
fn no_stage_allocates_per_token() {
    let chain = Chain::default;
    let dry = Dry { multiplier: 0.8, last_n: Some(64), ..Dry::default() };
    let stages: [(&str, Chain); 9] = [
        ("bias", Chain { logit_bias: vec![(TokenId(3), 1.5)], ..chain() }),
        ("min-p", Chain { min_p: 0.05, ..chain() }),
        ("typical", Chain { typical_p: 0.7, ..chain() }),
        ("top-n-sigma", Chain { top_n_sigma: 1.0, ..chain() }),
        ("xtc", Chain { xtc: Xtc { probability: 1.0, threshold: 0.001 }, ..chain() }),
        ("dynamic temperature", Chain { dynamic_temp: DynamicTemp { range: 0.5, exponent: 1.0 }, ..chain() }),
        ("mirostat 1", Chain { mirostat: Some(Mirostat::new(MirostatVersion::One)), ..chain() }),
        ("mirostat 2", Chain { mirostat: Some(Mirostat::new(MirostatVersion::Two)), ..chain() }),
        ("dry", Chain { dry, ..chain() }),
    ];
    let rows: Vec<Vec<f32>> = (0..300).map(row).collect();
    for (name, chain) in stages {
        let settings = SamplerSettings::default().with_seed(Some(7)).with_temp(1.2).expect("a temperature");
        let settings = settings.with_top_p(1.0).expect("a probability").with_chain(chain).expect("a chain");
        let mut sampler = Sampler::new(settings);
        let mut chances = Chances::default();
        let mut step = |row: &[f32]| {
            let token = sampler.sample(row).expect("a token");
            sampler.accept(token);
            sampler.chances(row, &mut chances).expect("a distribution");
        };
        rows[..200].iter().for_each(|row| step(row));
        let counted = allocation_counter::measure(|| rows[200..].iter().for_each(|row| step(row)));
        assert_eq!(counted.count_total, 0, "{name}: {counted:?}");
    }
}
