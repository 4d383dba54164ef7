//! Every model family that the compiler knows, by its graphs on the embedded backend: every position, over the cache and in chunks,
//! within 1e-4 of the largest logit of two implementations that share no code with it.
//!
//! One is the model written down in double precision (`compiler/src/lower/tests/reference.rs`), for all families and for what their
//! configurations may vary. The other is `candle-transformers`, for what it has: it ignores Granite's factors, always scales scores by
//! the width of a head, and knows no tied StableLM.

use std::path::Path;

use compiler::testmodel::TestModel;
use compiler::{Activation, Checkpoint, CompileOptions, Family, Manifest, Precision, Splits, Weights, dequantize};
use conformance::backends;
use conformance::bundles::Bundle;
use engine::{Engine, EngineConfig, RopeScaling, TokenModel};
use genie_types::{TokenId, YarnScaling};
use kvmanager::SeqId;
use serde_json::json;

use crate::candle_reference;
use crate::reference::Reference;

const TOLERANCE: f64 = 1e-4;
const N_TOKENS: u32 = 90;

/// Both references over the same bundle; candle where it has the model.
fn check(model: &TestModel, splits: Splits, with_candle: bool) {
    let backend = backends::linked();
    let bundle = Bundle::make(model, &backend, |o| {
        (o.ars, o.cls, o.splits, o.precision) = (vec![1, 8, 32], vec![48, 96], splits, Precision::F32);
    });
    let tokens: Vec<u32> = (0..N_TOKENS).map(|i| (i * 37 + 11) % model.vocab as u32).collect();
    let mut expected = vec![("the reference", Reference::open(&bundle.model_dir()).logits(&tokens))];
    if with_candle {
        let wide = |row: Vec<f32>| row.into_iter().map(f64::from).collect();
        let rows = candle_reference::logits(&bundle.model_dir(), &tokens);
        expected.push(("candle", rows.into_iter().map(wide).collect()));
    }

    let compare = |how: &str, position: usize, found: &[f32]| {
        for (whose, expected) in &expected {
            let expected = &expected[position];
            assert_eq!(found.len(), expected.len());
            let largest = expected.iter().fold(0.0f64, |m, x| m.max(x.abs()));
            let off = found.iter().zip(expected).fold(0.0f64, |m, (a, b)| m.max((f64::from(*a) - b).abs())) / largest;
            assert!(
                off <= TOLERANCE,
                "{}, {how} at position {position}, against {whose}: off by {off:e} of the largest logit {largest}",
                model.family
            );
        }
    };
    let mut engine = bundle.engine(&backend);
    let ids: Vec<TokenId> = tokens.iter().copied().map(TokenId).collect();
    for (position, id) in ids.iter().enumerate() {
        compare("decode", position, engine.process(std::slice::from_ref(id)).unwrap());
    }
    for n in [1, 7, 8, 9, 31, 32, 33, 47, 48, 64, 90] {
        engine.reset().unwrap();
        compare("prefill", n - 1, engine.process(&ids[..n]).unwrap());
    }
}

/// Tied and not, in one piece and in three.
fn check_both(family: Family, candle: impl Fn(&TestModel) -> bool) {
    for (tied, splits) in [(true, Splits::LutDecoderLmhead), (false, Splits::Mono)] {
        let model = TestModel { tied, layers: 3, seed: 7, ..TestModel::tiny(family) };
        check(&model, splits, candle(&model));
    }
}

#[test]
fn mistral() {
    // Candle's Mistral is never tied.
    check_both(Family::Mistral, |model| !model.tied);
    // Contexts as long as the window: it changes nothing.
    let windowed = TestModel { window: 96, head_dim: 24, tied: false, ..TestModel::tiny(Family::Mistral) };
    check(&windowed, Splits::Mono, true);
}

#[test]
fn phi3() {
    check_both(Family::Phi3, |_| true);
    let part = TestModel { rotary_part: 0.75, head_dim: 16, kv_heads: 1, ..TestModel::tiny(Family::Phi3) };
    check(&part, Splits::DecoderLmhead, true);
}

#[test]
fn granite() {
    check_both(Family::Granite, |_| false);
    let biased = TestModel { attention_bias: true, mlp_bias: true, ..TestModel::tiny(Family::Granite) };
    check(&biased, Splits::DecoderLmhead, false);
}

#[test]
fn smollm3() {
    check_both(Family::SmolLm3, |_| true);
    // A split of a layer that does not rotate: it takes no position tables.
    let model = TestModel { layers: 4, ..TestModel::tiny(Family::SmolLm3) };
    check(&model, Splits::LutDecoderLmhead, true);
}

#[test]
fn olmo2() {
    check_both(Family::Olmo2, |_| true);
    check(&TestModel { attention_bias: true, kv_heads: 1, ..TestModel::tiny(Family::Olmo2) }, Splits::Mono, true);
}

#[test]
fn olmo3() {
    check_both(Family::Olmo3, |_| false);
    // Positions of the layers without a window are scaled: two pairs of tables.
    let yarn = TestModel { scaling: Some(yarn()), layers: 4, max_positions: 96, ..TestModel::tiny(Family::Olmo3) };
    check(&yarn, Splits::DecoderLmhead, false);
    let bundle = check_window(&TestModel { window: 20, seed: 9, ..yarn }, 96, |o| {
        (o.splits, o.layers_per_split) = (Splits::LutDecoderLmhead, Some(1));
    });
    let prefixes: Vec<String> = bundle.config().engine().prefixed_ropes.iter().map(|(p, _)| p.clone()).collect();
    assert_eq!(prefixes, ["local_"]);
}

/// Numbers that matter within a hundred tokens.
fn yarn() -> RopeScaling {
    RopeScaling::Yarn(YarnScaling {
        factor: 4.0,
        original_max_position: 24.0,
        dim: 16,
        extrapolation_factor: 1.0,
        attn_factor: 1.25,
        beta_fast: 8.0,
        beta_slow: 0.5,
    })
}

/// Positions by layer type, as later versions of transformers write them: either type may have any base and scaling.
#[test]
fn positions_by_layer_type() {
    let plain = |theta: f64| json!({ "rope_type": "default", "rope_theta": theta });
    let linear = |theta: f64| json!({ "rope_type": "linear", "factor": 4.0, "rope_theta": theta });
    let yarn = |theta: f64| {
        json!({ "rope_type": "yarn", "factor": 4.0, "rope_theta": theta, "beta_fast": 8.0, "beta_slow": 0.5,
            "attention_factor": 1.2, "original_max_position_embeddings": 24 })
    };
    for (family, full, windowed, prefixes) in [
        (Family::Gemma3, plain(1e6), plain(1e4), &[][..]),
        (Family::Gemma3, linear(1e6), plain(1e4), &["local_"]),
        (Family::Gemma3, plain(5e5), linear(1e4), &["local_"]),
        (Family::Olmo3, yarn(5e5), plain(5e5), &["local_"]),
        (Family::Olmo3, yarn(5e5), yarn(5e5), &[]),
        (Family::Olmo3, yarn(5e5), linear(1e4), &["local_"]),
        (Family::Olmo3, plain(5e5), plain(5e5), &[]),
    ] {
        let model = TestModel { layers: 4, seed: 9, ..TestModel::tiny(family) };
        let bundle = Bundle::make_changed(&model, &backends::linked(), few, |config| {
            let layers = (1..=4).map(|n| if n % 4 == 0 { "full_attention" } else { "sliding_attention" });
            config["layer_types"] = layers.collect();
            config["rope_parameters"] = json!({ "full_attention": full, "sliding_attention": windowed });
            config["sliding_window"] = json!(20);
            for old in ["rope_theta", "rope_scaling", "rope_local_base_freq", "sliding_window_pattern"] {
                config.as_object_mut().unwrap().remove(old);
            }
        });
        let tokens: Vec<u32> = (0..60).map(|i| (i * 37 + i * i + 11) % 250).collect();
        let ids: Vec<TokenId> = tokens.iter().copied().map(TokenId).collect();
        let expected = Reference::open(&bundle.model_dir()).logits(&tokens);
        let mut engine = bundle.engine(&backends::linked());
        for range in [0..33, 33..34, 34..55, 55..60] {
            let wanted = &expected[range.end - 1];
            let found = engine.process(&ids[range.clone()]).unwrap();
            let largest = wanted.iter().fold(0.0f64, |m, x| m.max(x.abs()));
            let off = found.iter().zip(wanted).fold(0.0f64, |m, (a, b)| m.max((f64::from(*a) - b).abs())) / largest;
            assert!(off <= TOLERANCE, "{family} {full} {windowed}, {range:?}: off by {off:e}");
        }
        let found: Vec<String> = bundle.config().engine().prefixed_ropes.iter().map(|(p, _)| p.clone()).collect();
        assert_eq!(found, prefixes, "{family} {full} {windowed}");
    }
}

fn few(options: &mut CompileOptions) {
    (options.ars, options.cls, options.precision) = (vec![1, 8, 32], vec![64], Precision::F32);
}

#[test]
fn gemma2() {
    // Candle's Gemma is always tied.
    check_both(Family::Gemma2, |model| model.tied);
    let scaled = TestModel { scores_scalar: Some(50.0), attention_bias: true, ..TestModel::tiny(Family::Gemma2) };
    check(&scaled, Splits::Mono, false);
}

#[test]
fn gemma3() {
    check_both(Family::Gemma3, |model| model.tied);
    let scaled = TestModel { scores_scalar: Some(50.0), layers: 4, ..TestModel::tiny(Family::Gemma3) };
    check(&scaled, Splits::DecoderLmhead, false);
    // Positions of the layers without a window are scaled, as in the larger models: tables of their own, also where a split has one of the two.
    let scaling = Some(RopeScaling::Linear { factor: 8.0 });
    let scaled = TestModel { scaling, layers: 4, ..TestModel::tiny(Family::Gemma3) };
    check(&scaled, Splits::Mono, false);
    let bundle = check_window(&TestModel { window: 20, ..scaled }, 96, |o| {
        (o.splits, o.layers_per_split) = (Splits::LutDecoderLmhead, Some(1));
    });
    let prefixes: Vec<String> = bundle.config().engine().prefixed_ropes.iter().map(|(p, _)| p.clone()).collect();
    assert_eq!(prefixes, ["local_"]);
}

#[test]
fn stablelm() {
    // Candle's StableLM is never tied.
    check_both(Family::StableLm, |model| !model.tied);
    let biased =
        TestModel { attention_bias: true, rotary_part: 0.25, tied: false, ..TestModel::tiny(Family::StableLm) };
    check(&biased, Splits::DecoderLmhead, true);
}

#[test]
fn gpt2() {
    check_both(Family::Gpt2, |_| false);
    for activation in [Activation::Gelu, Activation::Relu] {
        check(&TestModel { activation, ..TestModel::tiny(Family::Gpt2) }, Splits::DecoderLmhead, false);
    }
}

/// The function of the feed-forward part is the configuration's, whatever the family usually has.
#[test]
fn activations_are_those_of_the_configuration() {
    for activation in [Activation::Gelu, Activation::GeluTanh, Activation::Silu] {
        for family in [Family::Llama, Family::Gemma2] {
            let model = TestModel { activation, seed: 4, ..TestModel::tiny(family) };
            // Candle's models of these families have the usual one.
            check(&model, Splits::DecoderLmhead, false);
        }
    }
}

/// What is folded into weights is folded before they are rounded, and taken out of them again by `dequantize`; blocks are not scaled.
#[test]
fn quantised_weights_compute_the_model_of_the_rounded_ones() {
    let backend = backends::linked();
    let tokens: Vec<u32> = (0..30).map(|i| (i * 37 + 11) % 250).collect();
    let ids: Vec<TokenId> = tokens.iter().copied().map(TokenId).collect();
    for family in Family::ALL.iter().copied() {
        // With blocks, activations are rounded too.
        for (weights, tolerance) in [(Weights::W8, 2e-4), (Weights::Q8_0, 5e-2)] {
            let model = TestModel { seed: 3, ..TestModel::tiny(family) };
            let bundle = Bundle::make(&model, &backend, |o| {
                (o.ars, o.cls, o.precision, o.weights) = (vec![1, 8], vec![32], Precision::F32, Some(weights));
            });
            let folder = tempfile::tempdir().unwrap();
            dequantize(&bundle.model_dir(), Precision::F32, weights, folder.path()).unwrap();
            let names = |dir: &Path| Checkpoint::open(dir).unwrap().tensors().keys().cloned().collect::<Vec<_>>();
            let mut stored = names(folder.path());
            stored.retain(|name| name != "lm_head.weight");
            assert_eq!(stored, names(&bundle.model_dir()), "{family} {weights}");

            let expected = Reference::open(folder.path()).logits(&tokens);
            let mut engine = bundle.engine(&backend);
            for range in [0..28, 28..29, 29..30] {
                let wanted = &expected[range.end - 1];
                let found = engine.process(&ids[range]).unwrap();
                let largest = wanted.iter().fold(0.0f64, |m, x| m.max(x.abs()));
                let off = found.iter().zip(wanted).fold(0.0f64, |m, (a, b)| m.max((f64::from(*a) - b).abs()));
                assert!(off <= tolerance * largest, "{family} {weights}: off by {off:e}, largest logit {largest}");
            }
        }
    }
}

/// Logits at every position of a model in a bundle whose contexts are longer than its window, from steps of several widths.
fn check_window(model: &TestModel, n_tokens: u32, choose: impl FnOnce(&mut CompileOptions)) -> Bundle {
    let backend = backends::linked();
    let bundle = Bundle::make(model, &backend, |o| {
        (o.ars, o.cls, o.precision) = (vec![1, 8, 32], vec![48, 96], Precision::F32);
        choose(o);
    });
    let tokens: Vec<u32> = (0..n_tokens).map(|i| (i * 37 + i * i + 11) % 250).collect();
    let ids: Vec<TokenId> = tokens.iter().copied().map(TokenId).collect();
    let reference = Reference::open(&bundle.model_dir());
    let expected = reference.logits(&tokens);
    let whole = reference.without_windows().logits(&tokens);
    let mut engine = bundle.engine(&backend);
    let mut changed = 0.0f64;
    for widths in [&[1usize][..], &[33, 8, 1, 20, 1, 7], &[90, 5]] {
        engine.reset().unwrap();
        let (mut at, mut next) = (0, widths.iter().cycle());
        while at < ids.len() {
            let end = (at + next.next().unwrap()).min(ids.len());
            let found = engine.process(&ids[at..end]).unwrap();
            let largest = expected[end - 1].iter().fold(0.0f64, |m, x| m.max(x.abs()));
            let off = |row: &[f64]| {
                found.iter().zip(row).fold(0.0f64, |m, (a, b)| m.max((f64::from(*a) - b).abs())) / largest
            };
            let is = off(&expected[end - 1]);
            assert!(is <= TOLERANCE, "{} to position {end} in {widths:?}: off by {is:e}", model.family);
            changed = changed.max(off(&whole[end - 1]));
            at = end;
        }
    }
    assert!(changed > 100.0 * TOLERANCE, "{}: the window changes nothing here: {changed:e}", model.family);
    bundle
}

#[test]
fn contexts_beyond_a_window_of_some_layers_are_exact() {
    for family in [Family::Gemma2, Family::Gemma3, Family::Olmo3] {
        let model = TestModel { window: 20, layers: 4, seed: 9, ..TestModel::tiny(family) };
        let bundle = check_window(&model, 96, |_| ());
        let engine = bundle.config();
        let rules: Vec<String> = engine.engine().long_context.iter().map(|(prefix, _)| prefix.clone()).collect();
        assert_eq!(rules, ["swa_"], "{family}");
        // A split for each layer: some have no layer of the default group, others none of the window's.
        check_window(&model, 96, |o| (o.splits, o.layers_per_split) = (Splits::LutDecoderLmhead, Some(1)));
        // A window and a step that together are wider than the context: narrower steps run where they must.
        check_window(&TestModel { window: 80, ..model }, 96, |o| o.cls = vec![96]);
    }
}

#[test]
fn a_window_of_all_layers_goes_on_to_the_trained_positions() {
    for family in [Family::Mistral, Family::Phi3] {
        let model = TestModel { window: 24, max_positions: 200, seed: 9, ..TestModel::tiny(family) };
        let bundle = check_window(&model, 200, |_| ());
        let config = bundle.config();
        assert_eq!(config.engine().context_size, Some(200), "{family}: beyond CL-96");
        let mut engine = bundle.engine(&backends::linked());
        let refused = engine.process(&vec![TokenId(1); 201]).unwrap_err().to_string();
        assert!(refused.contains("context limit exceeded"), "{refused}");
    }
}

#[test]
fn a_window_as_long_as_the_context_is_a_plain_bundle() {
    let backend = backends::linked();
    for family in [Family::Mistral, Family::Gemma2] {
        let bundle = Bundle::make(&TestModel { window: 40, ..TestModel::tiny(family) }, &backend, |o| {
            (o.ars, o.cls) = (vec![1], vec![40]);
        });
        let config = bundle.config();
        assert!(config.engine().long_context.is_empty() && config.engine().cache_groups.is_empty(), "{family}");
        assert_eq!(config.engine().context_size, Some(40));
    }
}

#[test]
fn rows_are_not_moved_where_layers_rotate_keys_in_different_ways() {
    for family in Family::ALL.iter().copied() {
        let backend = backends::linked();
        let bundle = Bundle::make(&TestModel::tiny(family), &backend, |o| (o.ars, o.cls) = (vec![1, 8], vec![32]));
        let mixed = Manifest::read(&bundle.dir()).unwrap().source.mixed_rotation;
        assert_eq!(mixed, matches!(family, Family::SmolLm3 | Family::Gemma3), "{family}");
        // Rows of learned positions are added to the embeddings: keys cannot be turned to others.
        let learned = family == Family::Gpt2;
        let config = EngineConfig { mixed_rotation: mixed, ..bundle.config().engine().clone() };
        let mut engine = Engine::open(&config, &backend).unwrap();
        let ids: Vec<TokenId> = (0..20).map(TokenId).collect();
        engine.process(&ids).unwrap();
        match engine.shift_out(SeqId(0), 4, 8) {
            Ok(n_past) => assert!(!mixed && !learned && n_past == 12, "{family}: {n_past}"),
            Err(error) => {
                assert!((mixed || learned) && error.to_string().contains("keys must be rotated"), "{family}: {error}")
            }
        }
    }
}
