//! Graphs with quantised weights against the float32 graph of the same weights after rounding: logits and greedy tokens.
//!
//! What is left between the two is how activations are multiplied. `w8` and `w4` multiply them as they are, so their logits
//! are float32's. In front of weights in blocks they become codes of 8 bits, a scale for each block of 32: the largest of a
//! block is 104 to 127 steps (a step's scale is rounded up to three bits, in the root mean square by 1.1), so each number is off by up to half
//! a step, `1.1 max / (127 sqrt 12)` in the root mean square. For normally
//! distributed numbers, whose largest of 32 is 2.4 deviations, that is [`EPSILON`] of a block's own root mean square (1.3 % if one
//! number is all there is in a block), and so much of a product's, whatever the weights, as long as errors and weights
//! are independent. A model of `L` layers rounds on its way `4 L + 1` times: before Q, K, V; before O; before gate and up;
//! before down; before the head. Errors that are independent and neither grow nor fade would make
//!
//! `sigma = EPSILON * sqrt(4 L + 1)` of the logits' root mean square.
//!
//! Softmax and gates make errors grow or fade, so the tests allow twice that in the root mean square, and
//! [`PEAK`] sigma for the worst of 100 x vocabulary logits. A step may prefer another token only where the
//! reference's margin is within twice the peak: both logits could have moved by it.
//! What was found: `cargo test --workspace --test tests quantised:: -- --nocapture`.

use std::path::Path;
use std::sync::Arc;

use compiler::testmodel::TestModel;
use compiler::{CONFIG_FILE, CompileOptions, Family, Precision, Silent, Weights, compile, dequantize};
use conformance::backends;
use conformance::greedy;
use dialog::DialogConfig;
use engine::Engine;
use genie_types::TokenId;
use qnn_api::Backend;

/// Relative error of a block of codes: `1.1 * 2.4 / (127 sqrt 12)`.
const EPSILON: f32 = 0.0060;
/// Worst of some 10^5 logits over sigma. A normal distribution has 4.5; but errors are not alike in all steps: one step of one model,
/// where attention stands between two keys, has 11.2, the others at most 6.9.
const PEAK: f32 = 14.0;
/// Of float activations, relative to the largest logit: sums in another order.
const FLOAT: f32 = 1e-4;
const N_TOKENS: usize = 100;
const FORMATS: [Weights; 4] = [Weights::W8, Weights::W4, Weights::Q8_0, Weights::Q4_0];

fn engine(model: &Path, weights: Weights, to: &Path, backend: &Arc<Backend>) -> Engine {
    let options = CompileOptions {
        ars: vec![1, 32],
        cls: vec![256],
        precision: Precision::F32,
        weights: Some(weights),
        ..CompileOptions::new(model, to)
    };
    compile(&options, backend, &mut Silent).expect("it compiles");
    let config = DialogConfig::from_file(to.join(CONFIG_FILE)).expect("our own config");
    Engine::open(config.engine(), backend).expect("our own bundle")
}

/// Root mean square of the numbers of all rows.
fn rms(rows: impl Iterator<Item = f32>) -> f32 {
    let (n, sum) = rows.fold((0, 0.0), |(n, sum), v| (n + 1, sum + f64::from(v).powi(2)));
    (sum / f64::from(n)).sqrt() as f32
}

fn check(name: &str, model: &Path, layers: usize, input: &[TokenId]) {
    let backend = backends::linked();
    for weights in FORMATS {
        let place = tempfile::tempdir().unwrap();
        let at = |part: &str| place.path().join(part);
        dequantize(model, Precision::F32, weights, &at("rounded")).unwrap();
        let mut reference = engine(&at("rounded"), Weights::Float, &at("reference"), &backend);
        let expected = greedy::generate(&mut reference, input, N_TOKENS);
        let mut quantised = engine(model, weights, &at("bundle"), &backend);
        let found = greedy::forced(&mut quantised, input, &expected.tokens);
        let comparison = found.against(&expected.logits);

        let all = || found.logits.iter().flatten().zip(expected.logits.iter().flatten());
        let size = rms(all().map(|(_, b)| *b));
        let off = rms(all().map(|(a, b)| a - b));
        let (limit, peak) = match weights {
            Weights::Q8_0 | Weights::Q4_0 => {
                let sigma = EPSILON * ((4 * layers + 1) as f32).sqrt() * size;
                println!(
                    "{name} {weights}: {:.2} sigma, at most {:.2}; {comparison}",
                    off / sigma,
                    comparison.worst / sigma
                );
                (2.0 * sigma, PEAK * sigma)
            }
            _ => {
                println!("{name} {weights}: {comparison}");
                (FLOAT * comparison.scale, FLOAT * comparison.scale)
            }
        };
        assert!(off <= limit && comparison.worst <= peak, "{name} {weights}: {off} of {limit}, {comparison}");
        assert!(comparison.flips.iter().all(|(_, margin)| *margin <= 2.0 * peak), "{name} {weights}: {comparison}");
        assert!(off > 0.0, "{name} {weights}: the two are not the same graph");
    }
}

fn random(name: &str, model: &TestModel) {
    let folder = tempfile::tempdir().unwrap();
    model.write(folder.path()).unwrap();
    let input: Vec<TokenId> = (0..41).map(|i| TokenId((i * 37 + 11) % 250)).collect();
    check(name, folder.path(), model.layers, &input);
}

#[test]
fn llama() {
    let tiny = TestModel::tiny(Family::Llama);
    random("llama, tied", &tiny);
    random("llama, untied, as many keys as queries", &TestModel { tied: false, kv_heads: 4, ..tiny.clone() });
    let wide = TestModel { hidden: 128, heads: 6, kv_heads: 1, head_dim: 128, ffn: 352, layers: 3, ..tiny };
    random("llama, heads of 128 that share one key", &wide);
}

#[test]
fn qwen2() {
    let tiny = TestModel::tiny(Family::Qwen2);
    random("qwen2, tied", &tiny);
    random("qwen2, untied, heads of 32", &TestModel { tied: false, head_dim: 32, layers: 4, ..tiny });
}

#[test]
fn qwen3() {
    let tiny = TestModel::tiny(Family::Qwen3);
    random("qwen3, tied", &tiny);
    random("qwen3, untied, heads of 128", &TestModel { tied: false, head_dim: 128, vocab: 1000, ..tiny });
}

#[test]
fn the_demo_model() {
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/demo");
    let tokenizer = dialog::Tokenizer::from_file(model.join("tokenizer.json")).unwrap();
    let prompt = tokenizer.encode("ROMEO:\nO, she doth teach the torches").unwrap();
    let input: Vec<TokenId> = std::iter::once(TokenId(0)).chain(prompt).collect();
    check("demo", &model, 6, &input);
}
