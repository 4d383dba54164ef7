//! libGenie's recorded draws, over its own logits: an excerpt of each recording (`tests/data/sampler_draws.json`).
//!
//! The whole recordings run where Qualcomm's library is: conformance/tests/sampler_htp.rs.

use dialog::sampler::SamplerRules;
use dialog::{DialogConfig, Sampler, SamplerSettings};
use genie_types::TokenId;
use half::f16;
use serde::Deserialize;
use serde_json::{Value, json};

const N_VOCAB: usize = 512;

#[derive(Deserialize)]
struct Recording {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    sampler: Value,
    /// Prompt with BOS.
    input: Vec<u32>,
    tokens: Vec<u32>,
    /// Numbers of the rows of logits that the tokens were drawn from.
    rows: Vec<usize>,
}

fn cases() -> Vec<Case> {
    serde_json::from_str::<Recording>(include_str!("data/sampler_draws.json")).unwrap().cases
}

fn row(number: usize) -> Vec<f32> {
    let bytes = &include_bytes!("data/sampler_rows.f16")[number * N_VOCAB * 2..][..N_VOCAB * 2];
    bytes.chunks_exact(2).map(|pair| f16::from_le_bytes([pair[0], pair[1]]).to_f32()).collect()
}

/// The settings as a bundle's config gives them.
fn settings(sampler: &Value) -> SamplerSettings {
    let mut sampler = sampler.clone();
    sampler["version"] = json!(1);
    let document = json!({"dialog": {
        "version": 1, "type": "basic", "sampler": sampler,
        "context": {"version": 1, "size": 128, "n-vocab": N_VOCAB, "bos-token": 256, "eos-token": -1},
        "tokenizer": {"version": 1, "path": "t.json"},
        "engine": {
            "version": 1, "n-threads": 0,
            "backend": {"version": 1, "type": "QnnHtp", "QnnHtp": {"version": 1, "use-mmap": true, "spill-fill-bufsize": 0,
                "mmap-budget": 0, "poll": false, "cpu-mask": ""}},
            "model": {"version": 1, "type": "binary", "binary": {"version": 1, "ctx-bins": ["m.bin"]}}
        }
    }});
    DialogConfig::from_json(&document.to_string(), "/bundle").unwrap().sampler().clone()
}

/// Draws as many tokens as were recorded, each after the recorded ones.
fn draws(case: &Case, rules: SamplerRules) -> Vec<u32> {
    let mut sampler = Sampler::new(settings(&case.sampler).with_rules(rules));
    sampler.observe(&case.input.iter().copied().map(TokenId).collect::<Vec<_>>());
    let draw = |(number, token): (&usize, &u32)| {
        let drawn = sampler.sample(&row(*number)).map_or(u32::MAX, |t| t.0);
        sampler.accept(TokenId(*token));
        drawn
    };
    case.rows.iter().zip(&case.tokens).map(draw).collect()
}

#[test]
fn every_draw_under_libgenies_rules() {
    let cases = cases();
    assert!(cases.len() > 50);
    for case in &cases {
        assert_eq!(draws(case, SamplerRules::Genie), case.tokens, "{}: {}", case.name, case.sampler);
    }
}

/// Where the two differ: without these the rules would be one.
#[test]
fn the_documented_rules_differ_where_libgenie_misbehaves() {
    let cases = cases();
    let of = |name: &str| cases.iter().find(|case| case.name == name).unwrap_or_else(|| panic!("{name}"));
    // The nucleus without top-k, and an absent repetition penalty.
    for name in ["fp16/only seed", "fp16/greedy+seed", "fp16/T1 all pres2 only", "pres only dflt"] {
        assert_ne!(draws(of(name), SamplerRules::Documented), of(name).tokens, "{name}");
    }
    // With top-k, with top-p 1, and where the likeliest is taken, they are the same.
    for name in [
        "fp16/T1 k40",
        "fp16/T2 k40 p.9",
        "fp16/d temp3 p1",
        "fp16/topk1",
        "fp16/T0 rep2 n4",
        "rep2 q k40",
        "all pen k p",
    ] {
        assert_eq!(draws(of(name), SamplerRules::Documented), of(name).tokens, "{name}");
    }
}

/// libGenie's window holds the prompt as well.
#[test]
fn penalties_look_at_the_prompt() {
    let case = cases().into_iter().find(|case| case.name == "rep2 q T1").unwrap();
    let mut sampler = Sampler::new(settings(&case.sampler));
    assert_ne!(sampler.sample(&row(case.rows[0])).unwrap().0, case.tokens[0]);
    assert_eq!(draws(&case, SamplerRules::Documented)[0], case.tokens[0]);
}

#[test]
fn greedy_takes_the_likeliest_unless_libgenie_is_followed() {
    let greedy = settings(&json!({"greedy": true, "seed": 42, "temp": 2.0, "top-k": 0}));
    assert!(greedy.is_argmax() && !greedy.clone().with_rules(SamplerRules::Genie).is_argmax());
    assert!(SamplerSettings::argmax().with_rules(SamplerRules::Genie).is_argmax());
}
