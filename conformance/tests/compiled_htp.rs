//! Bundles that we compile for a Hexagon chip, run by our engine on Qualcomm's emulator.
//!
//! For every case of `conformance::compiled`: 100 greedy tokens on the emulator; then the same steps, fed with the same
//! tokens, by a host bundle of the same model and by `candle-transformers` in float32. Weights of w8 cases are rounded for
//! candle by a few lines of their own, so the quantiser is not held against itself.
//!
//! Tolerances, of the largest logit: see [`TOLERANCE`]. A step may choose another token only where the reference's margin
//! is within the tolerance: both logits could have moved by it.

#[path = "common/candle_reference.rs"]
mod candle_reference;
#[path = "common/rounded.rs"]
mod rounded;

use std::path::Path;

use compiler::{CONFIG_FILE, Weights};
use conformance::backends;
use conformance::compiled::{CASES, Case, N_TOKENS};
use conformance::greedy::{self, Comparison};
use dialog::DialogConfig;
use engine::Engine;
use qnn_api::BackendOptions;

/// Largest difference of a logit, relative to the largest logit.
const TOLERANCE: f32 = 0.02;

fn open(folder: &Path, backend: &std::sync::Arc<qnn_api::Backend>) -> Engine {
    let config = DialogConfig::from_file(folder.join("bundle").join(CONFIG_FILE)).expect("our own config");
    Engine::open(config.engine(), backend).expect("our own bundle")
}

fn check(case: &Case) {
    let folder = tempfile::tempdir().unwrap();
    let (chip, host) = (folder.path().join("chip"), folder.path().join("host"));
    let t = std::time::Instant::now();
    case.make_htp(&chip);
    eprintln!("{} compile {:?}", case.name, t.elapsed());
    let linked = backends::linked();
    case.make(&host, &linked, None);

    let input = case.input();
    let t = std::time::Instant::now();
    let found = greedy::generate(&mut open(&chip, &backends::htp(&BackendOptions::default())), &input, N_TOKENS);
    eprintln!("{} run {:?}", case.name, t.elapsed());
    let by_host = greedy::forced(&mut open(&host, &linked), &input, &found.tokens);
    hold(case, "qnn-host", &found.against(&by_host.logits));
    let t = std::time::Instant::now();

    let model = host.join("model");
    if case.weights == Weights::W8 {
        rounded::round_weights(&model);
    }
    let fed: Vec<u32> = input.iter().chain(&found.tokens).map(|t| t.0).collect();
    let by_candle = candle_reference::logits(&model, &fed[..fed.len() - 1]);
    hold(case, "candle", &found.against(&by_candle[input.len() - 1..]));
    eprintln!("{} candle {:?}", case.name, t.elapsed());
    let own = by_host.against(&by_candle[input.len() - 1..]);
    eprintln!("{}: host to candle: {own}", case.name);
}

fn hold(case: &Case, reference: &str, found: &Comparison) {
    eprintln!("{} against {reference}: {found}", case.name);
    let limit = TOLERANCE * found.scale;
    assert!(found.worst <= limit, "{} against {reference}: {found}", case.name);
    let wrong: Vec<_> = found.flips.iter().filter(|(_, margin)| *margin > 2.0 * limit).collect();
    assert!(wrong.is_empty(), "{} against {reference}: {found}", case.name);
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn the_emulator_says_what_the_host_says() {
    let only = std::env::var("ONLY").unwrap_or_default();
    CASES.iter().filter(|c| c.name.contains(&only)).for_each(check);
}
