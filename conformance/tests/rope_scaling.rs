//! Models with scaled rotary positions, compiled and run on the embedded backend by what the compiler wrote into the config:
//! every position within 1e-4 of the largest logit of the model in double precision, whose angles are written down from
//! transformers (`compiler/src/lower/tests/reference.rs`).

use compiler::testmodel::TestModel;
use compiler::{Family, Precision, Splits};
use conformance::backends;
use conformance::bundles::Bundle;
use engine::{RopeScaling, TokenModel};
use genie_types::{LongRopeScaling, TokenId, YarnScaling};
use serde_json::{Value, json};

use crate::reference::Reference;

const TOLERANCE: f64 = 1e-4;
const CL: usize = 96;
const N_TOKENS: u32 = 90;

/// Logits of a bundle at every position, from the checkpoint's own folder and from the compiled graphs.
fn check(name: &str, model: &TestModel) -> Value {
    let backend = backends::linked();
    let bundle = Bundle::make(model, &backend, |o| {
        (o.ars, o.cls, o.splits, o.precision) = (vec![1, 8, 32], vec![CL as u32], Splits::Mono, Precision::F32);
    });
    let tokens: Vec<u32> = (0..N_TOKENS).map(|i| (i * 37 + 11) % model.vocab as u32).collect();
    let expected = Reference::open(&bundle.model_dir()).in_context(CL).logits(&tokens);
    let plain = TestModel { scaling: None, ..model.clone() };
    let unscaled = tempfile::tempdir().unwrap();
    plain.write(unscaled.path()).unwrap();
    let unscaled = Reference::open(unscaled.path()).in_context(CL).logits(&tokens);

    let mut engine = bundle.engine(&backend);
    let ids: Vec<TokenId> = tokens.iter().copied().map(TokenId).collect();
    let compare = |how: &str, position: usize, found: &[f32]| {
        let of = |row: &[f64]| {
            let largest = row.iter().fold(0.0f64, |m, x| m.max(x.abs()));
            found.iter().zip(row).fold(0.0f64, |m, (a, b)| m.max((f64::from(*a) - b).abs())) / largest
        };
        let off = of(&expected[position]);
        assert!(off <= TOLERANCE, "{name}, {how} at position {position}: off by {off:e} of the largest logit");
        of(&unscaled[position])
    };
    let mut furthest = 0.0f64;
    for (position, id) in ids.iter().enumerate() {
        furthest = furthest.max(compare("decode", position, engine.process(std::slice::from_ref(id)).unwrap()));
    }
    for n in [7, 32, 33, 64, 90] {
        engine.reset().unwrap();
        compare("prefill", n - 1, engine.process(&ids[..n]).unwrap());
    }
    assert!(furthest > 100.0 * TOLERANCE, "{name}: the scaling changes nothing that this test could see: {furthest:e}");
    let config = std::fs::read(bundle.dir().join(compiler::CONFIG_FILE)).unwrap();
    let config: Value = serde_json::from_slice(&config).unwrap();
    config["dialog"]["engine"]["model"]["positional-encoding"].clone()
}

fn longrope(original: f64, angles: usize) -> RopeScaling {
    let list = |first: f64, step: f64| (0..angles).map(|j| first + step * j as f64).collect();
    RopeScaling::LongRope(LongRopeScaling {
        factor: 4.0,
        original_max_position: original,
        short_factor: list(1.0, 0.05),
        long_factor: list(1.5, 0.75),
    })
}

fn yarn(attn_factor: f64, angles: usize) -> RopeScaling {
    RopeScaling::Yarn(YarnScaling {
        factor: 4.0,
        original_max_position: 24.0,
        dim: 2 * angles,
        extrapolation_factor: 1.0,
        attn_factor,
        beta_fast: 8.0,
        beta_slow: 0.5,
    })
}

#[test]
fn yarn_on_qwen() {
    for family in [Family::Qwen2, Family::Qwen3] {
        let tiny = TestModel::tiny(family);
        let scaling = Some(yarn(1.0, tiny.head_dim / 2));
        let written = check("yarn", &TestModel { scaling, max_positions: 96, ..tiny.clone() });
        let expected = json!({
            "rope-type": "yarnrope", "factor": 4, "dim": tiny.head_dim, "original-max-position-embeddings": 24,
            "extrapolation-factor": 1, "attn-factor": 1, "beta-fast": 8, "beta-slow": 0.5,
        });
        assert_eq!(written["rope-scaling"], expected);
        // An attention factor of its own.
        check("yarn, attention factor", &TestModel { scaling: Some(yarn(0.5, tiny.head_dim / 2)), ..tiny });
    }
}

#[test]
fn longrope_on_phi3_by_the_size_of_the_context() {
    // Longer than in training, as long, and shorter.
    for original in [64usize, 96, 128] {
        let tiny = TestModel { head_dim: 16, rotary_part: 0.75, ..TestModel::tiny(Family::Phi3) };
        let scaling = Some(longrope(original as f64, 6));
        let model = TestModel { scaling, max_positions: 4 * original, ..tiny };
        let written = check(&format!("longrope, trained on {original}"), &model);
        assert_eq!(written["rope-scaling"]["rope-type"], "longrope");
        assert_eq!((&written["rope-dim"], &written["rope-scaling"]["factor"]), (&json!(6), &json!(4)));
    }
}

#[test]
fn linear_on_llama_is_written_as_itself() {
    let scaling = Some(RopeScaling::Linear { factor: 2.5 });
    let written = check("linear", &TestModel { scaling, ..TestModel::tiny(Family::Llama) });
    assert_eq!(written["rope-scaling"], json!({ "rope-type": "linear", "factor": 2.5 }));
}
