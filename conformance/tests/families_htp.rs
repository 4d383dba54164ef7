//! Every model family compiled for a Hexagon chip and run on Qualcomm's emulator, against the model in double precision.
//!
//! `cargo test --workspace --test tests families_htp:: -- --ignored --nocapture` prints what each is off by.

use compiler::testmodel::TestModel;
use compiler::{CONFIG_FILE, CompileOptions, Family, HtpOptions, Silent, Splits, compile};
use conformance::backends;
use conformance::compiled::TARGET;
use dialog::DialogConfig;
use engine::{Engine, RopeScaling, TokenModel};
use genie_types::TokenId;
use qnn_api::BackendOptions;

use crate::reference::Reference;

/// Largest difference of a logit, relative to the largest logit: float16 in every op of the emulator.
const TOLERANCE: f64 = 0.02;

/// Compiles a model for the chip, runs it in a wide step, single ones and another wide one, and returns the largest difference.
fn worst(model: &TestModel, splits: Splits, n_tokens: u32) -> f64 {
    let folder = tempfile::tempdir().unwrap();
    let (source, out) = (folder.path().join("model"), folder.path().join("bundle"));
    model.write(&source).unwrap();
    let htp = HtpOptions::for_target(TARGET).unwrap();
    let options = CompileOptions {
        ars: vec![1, 16],
        cls: vec![64],
        splits,
        htp: Some(htp),
        ..CompileOptions::new(source.clone(), out.clone())
    };
    compile(&options, &backends::htp(&htp.backend_options()), &mut Silent).unwrap();

    let config = DialogConfig::from_file(out.join(CONFIG_FILE)).unwrap();
    let mut engine = Engine::open(config.engine(), &backends::htp(&BackendOptions::default())).unwrap();
    let tokens: Vec<u32> = (0..n_tokens).map(|i| (i * 37 + 11) % 250).collect();
    let ids: Vec<TokenId> = tokens.iter().copied().map(TokenId).collect();
    let expected = Reference::open(&source).logits(&tokens);
    let wide = ids.len() - 10;
    let mut worst = 0.0f64;
    for range in [0..wide, wide..wide + 1, wide + 1..wide + 2, wide + 2..wide + 3, wide + 3..wide + 10] {
        let wanted = &expected[range.end - 1];
        let found = engine.process(&ids[range]).unwrap();
        let largest = wanted.iter().fold(0.0f64, |m, x| m.max(x.abs()));
        let off = found.iter().zip(wanted).fold(0.0f64, |m, (a, b)| m.max((f64::from(*a) - b).abs()));
        worst = worst.max(off / largest);
    }
    println!("{}: {worst:.2e} of the largest logit", model.family);
    worst
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn the_emulator_runs_every_family() {
    let mut faults = Vec::new();
    for (i, &family) in Family::ALL.iter().enumerate() {
        let splits = if i % 2 == 0 { Splits::Mono } else { Splits::LutDecoderLmhead };
        let worst = worst(&TestModel { seed: 11, ..TestModel::tiny(family) }, splits, 30);
        if worst.is_nan() || worst > TOLERANCE {
            faults.push(format!("{family} is off by {worst:e}"));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join(", "));
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn the_emulator_runs_contexts_beyond_a_window() {
    let linear = Some(RopeScaling::Linear { factor: 8.0 });
    for (family, scaling, n_tokens) in [
        (Family::Gemma2, None, 60),
        // A second pair of position tables.
        (Family::Gemma3, linear, 60),
        // Beyond the compiled context.
        (Family::Mistral, None, 100),
    ] {
        let model = TestModel { window: 20, scaling, max_positions: 200, seed: 11, ..TestModel::tiny(family) };
        let worst = worst(&model, Splits::Mono, n_tokens);
        assert!(worst <= TOLERANCE, "{family} is off by {worst:e}");
    }
}
