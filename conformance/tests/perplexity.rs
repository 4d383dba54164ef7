//! Perplexity of an unseen text under the demo model with quantised weights, against float32: at most 0.5 % more for w8 and
//! q8_0, 4 % for q4_0.
//!
//! The text is `testdata/sonnets.txt`: five of Shakespeare's sonnets, typed in for this; the model was trained on plays.
//! docs/compile.md has the figures for the whole held-out part of what it was trained on.

use std::path::Path;

use compiler::{CONFIG_FILE, CompileOptions, Precision, Silent, Weights, compile};
use conformance::backends;
use dialog::{DialogConfig, Tokenizer};
use engine::Engine;
use engine::perplexity::{NllStats, of_window};

const TEXT: &str = include_str!("../testdata/sonnets.txt");
/// Tokens of a window.
const WINDOW: usize = 256;

fn measure(precision: Precision, weights: Weights) -> NllStats {
    let (place, backend) = (tempfile::tempdir().unwrap(), backends::linked());
    let options = CompileOptions {
        ars: vec![128],
        cls: vec![WINDOW as u32],
        precision,
        weights: Some(weights),
        ..CompileOptions::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/demo"), place.path().join("bundle"))
    };
    compile(&options, &backend, &mut Silent).unwrap();
    let config = DialogConfig::from_file(options.out_dir.join(CONFIG_FILE)).unwrap();
    let mut engine = Engine::open(config.engine(), &backend).unwrap();
    let tokens = Tokenizer::from_file(config.tokenizer()).unwrap().encode(TEXT).unwrap();
    let mut all = NllStats::default();
    for window in tokens.chunks(WINDOW) {
        all.join(of_window(&mut engine, config.context().bos, window).unwrap());
    }
    all
}

#[test]
fn quantised_weights_cost_no_more_perplexity_than_they_may() {
    let reference = measure(Precision::F32, Weights::Float);
    println!("float: {:.4} nats over {} tokens", reference.mean(), reference.tokens);
    assert!(reference.tokens > 1000 && (3.0..5.0).contains(&reference.mean()), "{reference:?}");
    for (precision, weights, limit) in [
        (Precision::F16, Weights::Float, 0.001),
        // Of all formats it moves the weights least.
        (Precision::F16, Weights::Bf16, 0.005),
        (Precision::F32, Weights::W8, 0.005),
        (Precision::F16, Weights::W8, 0.005),
        (Precision::F32, Weights::Q8_0, 0.005),
        (Precision::F16, Weights::Q8_0, 0.005),
        (Precision::F32, Weights::Q4_0, 0.04),
        (Precision::F16, Weights::Q4_0, 0.04),
        // Four bits with a scale per row have no limit; they are printed for comparison.
        (Precision::F32, Weights::W4, 0.2),
    ] {
        let found = measure(precision, weights);
        let more = (found.mean() - reference.mean()).exp() - 1.0;
        println!("{weights} {precision:?}: {:.4} nats, perplexity {:+.2} %", found.mean(), 100.0 * more);
        assert!(more.abs() <= limit, "{weights} {precision:?}: perplexity {:+.2} %", 100.0 * more);
    }
}
