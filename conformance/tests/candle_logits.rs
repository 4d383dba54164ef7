//! Logits against `candle-transformers`: the same random weights in float32, every position, within 1e-4 of the largest.

use compiler::testmodel::TestModel;
use compiler::{Family, Precision, Splits};
use conformance::backends;
use conformance::bundles::Bundle;
use engine::TokenModel;
use genie_types::TokenId;

use crate::candle_reference;

const TOLERANCE: f32 = 1e-4;

fn check(name: &str, model: &TestModel, splits: Splits) {
    let backend = backends::linked();
    let bundle = Bundle::make(model, &backend, |o| {
        (o.ars, o.cls, o.splits, o.precision) = (vec![1, 8, 32], vec![48, 96], splits, Precision::F32);
    });
    let tokens: Vec<u32> = (0..90).map(|i| (i * 37 + 11) % model.vocab as u32).collect();
    let expected = candle_reference::logits(&bundle.model_dir(), &tokens);

    let mut engine = bundle.engine(&backend);
    let ids: Vec<TokenId> = tokens.iter().copied().map(TokenId).collect();
    // One token at a time: every position over the cache.
    for (position, id) in ids.iter().enumerate() {
        compare(name, "decode", position, engine.process(std::slice::from_ref(id)).unwrap(), &expected[position]);
    }
    // Whole prompts: the chunked prefill, its padding and its promotion of the context.
    for n in [1, 7, 8, 9, 31, 32, 33, 47, 48, 64, 90] {
        engine.reset().unwrap();
        compare(name, "prefill", n - 1, engine.process(&ids[..n]).unwrap(), &expected[n - 1]);
    }
}

fn compare(name: &str, how: &str, position: usize, found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len());
    let largest = expected.iter().fold(0.0f32, |m, x| m.max(x.abs()));
    let off = found.iter().zip(expected).fold(0.0f32, |m, (a, b)| m.max((a - b).abs())) / largest;
    assert!(off <= TOLERANCE, "{name}, {how} at position {position}: off by {off:e} of the largest logit {largest}");
}

#[test]
fn llama_tied() {
    check("llama, tied", &TestModel::tiny(Family::Llama), Splits::Mono);
}

#[test]
fn llama_untied_with_scaled_positions() {
    let scaling = Some(TestModel::short_llama3_scaling());
    let model = TestModel { tied: false, scaling, layers: 3, ..TestModel::tiny(Family::Llama) };
    check("llama, untied, llama3 scaling", &model, Splits::DecoderLmhead);
}

#[test]
fn qwen2() {
    check("qwen2", &TestModel::tiny(Family::Qwen2), Splits::LutDecoderLmhead);
}

#[test]
fn qwen3() {
    check("qwen3", &TestModel { tied: false, ..TestModel::tiny(Family::Qwen3) }, Splits::Mono);
}
