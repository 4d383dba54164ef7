//! The sampler against libGenie's recorded draws, over the logits of the same graphs on Qualcomm's library.
//!
//! `sampler.json` of the recordings' folder: settings, prompt, tokens of a first reply and of one after a reset. Recordings without a seed
//! cannot be repeated; each of their draws must be one that the settings can give.

use std::collections::BTreeMap;

use conformance::backends::shared_htp;
use conformance::golden;
use dialog::sampler::SamplerRules;
use dialog::{Dialog, DialogConfig, Sampler, SamplerSettings, SentenceCode};
use engine::{Engine, EngineConfig, Policy, TokenModel as _};
use genie_types::TokenId;
use serde::Deserialize;
use serde_json::{Value, json};

/// Seeds that are tried for a draw of an unknown one. The recorded nuclei have a few tokens.
const SEEDS: u32 = 512;

#[derive(Deserialize)]
struct Recording {
    cases: BTreeMap<String, Case>,
}

#[derive(Deserialize)]
struct Case {
    sampler: Value,
    prompt: Vec<u32>,
    tokens: Vec<u32>,
    tokens_after_reset: Option<Vec<u32>>,
}

/// The bundle of a case's name, `fp16/top-k 40`.
fn folder_of(name: &str) -> &str {
    match name.split('/').next() {
        Some("fp16") => "fp16_ar1_32_cl128",
        other => other.expect("a name has a part before the slash"),
    }
}

fn config(name: &str, case: &Case) -> DialogConfig {
    let folder = golden::folder().join(folder_of(name));
    let mut document = golden::json(&folder.join("genie_config.json"));
    let mut sampler = case.sampler.clone();
    sampler["version"] = json!(1);
    document["dialog"]["sampler"] = sampler;
    // Recorded to a number of tokens, whatever they are.
    document["dialog"]["context"]["eos-token"] = json!(-1);
    document["dialog"]["context"]["pad-token"] = json!(0);
    DialogConfig::from_json(&document.to_string(), &folder).unwrap()
}

fn engine(config: &DialogConfig) -> Engine {
    let as_genie = EngineConfig { policy: Policy::Genie, ..config.engine().clone() };
    Engine::open(&as_genie, &shared_htp()).unwrap()
}

fn ids(tokens: &[u32]) -> Vec<TokenId> {
    tokens.iter().copied().map(TokenId).collect()
}

fn settings(config: &DialogConfig) -> SamplerSettings {
    config.sampler().clone().with_rules(SamplerRules::Genie)
}

fn is_random(settings: &SamplerSettings) -> bool {
    settings.seed().is_none() && !settings.is_argmax()
}

fn draws(dialog: &mut Dialog, prompt: &[u32], n: usize) -> Vec<u32> {
    dialog.control().set_max_num_tokens(Some(n));
    let reply = dialog.token_query(&ids(prompt), SentenceCode::Complete, |_| ()).unwrap();
    reply.tokens.iter().map(|t| t.0).collect()
}

/// Every draw is one that some seed gives after the tokens before it.
fn every_draw_is_possible(name: &str, config: &DialogConfig, prompt: &[u32], tokens: &[u32]) {
    let mut engine = engine(config);
    let mut input = ids(&[&[256], prompt].concat());
    let mut seen = input.clone();
    for (i, token) in tokens.iter().enumerate() {
        let row = engine.process(&input).unwrap();
        let given = (0..SEEDS).any(|seed| {
            let mut sampler = Sampler::new(settings(config).with_seed(Some(seed)));
            sampler.observe(&seen);
            sampler.sample(row).unwrap().0 == *token
        });
        assert!(given, "{name}: draw {i}, {token}, is none of these settings");
        input = ids(&[*token]);
        seen.extend_from_slice(&input);
    }
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn every_recorded_draw() {
    let recorded = golden::json(&golden::folder().join("sampler.json"));
    let Recording { cases } = serde_json::from_value(recorded).unwrap();
    assert!(!cases.is_empty());
    let mut failed = Vec::new();
    for (name, case) in &cases {
        let config = config(name, case);
        if is_random(&settings(&config)) {
            every_draw_is_possible(name, &config, &case.prompt, &case.tokens);
            continue;
        }
        let mut dialog = Dialog::new(&config, Box::new(engine(&config))).unwrap();
        dialog.set_sampler(settings(&config));
        for want in [Some(&case.tokens), case.tokens_after_reset.as_ref()].into_iter().flatten() {
            let found = draws(&mut dialog, &case.prompt, want.len());
            if found != *want {
                failed.push(format!("{name}: {found:?}, recorded {want:?}"));
            }
            dialog.reset().unwrap();
        }
    }
    assert!(failed.is_empty(), "{} of {} cases: {failed:#?}", failed.len(), cases.len());
}
