//! Bundles that we compile for a Hexagon chip, run by our engine on Qualcomm's emulator.
//!
//! For every case of `conformance::compiled`: 100 greedy tokens on the emulator; then the same steps, fed with the same
//! tokens, by a host bundle of the same model and by `candle-transformers` in float32. Weights of w8 cases are rounded for
//! candle by a few lines of their own, so the quantiser is not held against itself.
//!
//! A step may prefer another token only where the reference's margin is within twice the tolerance: both logits could have
//! moved by it. Each case prints what it found: `cargo test --workspace --test tests compiled_htp:: -- --ignored --nocapture`.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use compiler::testmodel::TestModel;
use compiler::{CONFIG_FILE, CompileOptions, Family, HtpOptions, Manifest, Silent, Splits, Weights, compile};
use conformance::backends;
use conformance::compiled::{CASES, Case, N_TOKENS};
use conformance::greedy::{self, Comparison};
use dialog::{Dialog, DialogConfig, SamplerSettings, SentenceCode, StopReason};
use engine::Engine;
use genie_types::{Dtype, Quant, TensorInfo};
use half::f16;
use qnn_api::library::runtime;
use qnn_api::{
    Backend, BackendOptions, Context, ContextOptions, GraphOptions, HtpGraphOptions, TensorKind, binary_info,
};

use crate::candle_reference;
use crate::rounded;

/// Largest difference of a logit, relative to the largest logit: float16 in every op of the emulator.
const TOLERANCE: f32 = 0.012;

/// The emulator keeps state for the whole process: backends of two tests at a time have crashed it.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn open(folder: &Path, backend: &Arc<Backend>) -> (DialogConfig, Engine) {
    let config = DialogConfig::from_file(folder.join("bundle").join(CONFIG_FILE)).expect("our own config");
    let engine = Engine::open(config.engine(), backend).expect("our own bundle");
    (config, engine)
}

fn check(case: &Case) {
    let folder = tempfile::tempdir().unwrap();
    let (chip, host) = (folder.path().join("chip"), folder.path().join("host"));
    case.make_htp(&chip);
    let linked = backends::linked();
    case.make(&host, &linked, None);

    let input = case.input();
    let (_, mut engine) = open(&chip, &backends::htp(&BackendOptions::default()));
    let found = greedy::generate(&mut engine, &input, N_TOKENS);
    let by_host = greedy::forced(&mut open(&host, &linked).1, &input, &found.tokens);
    hold(case, "qnn-host", &found.against(&by_host.logits));

    let model = host.join("model");
    if case.weights == Weights::W8 {
        rounded::round_weights(&model);
    }
    let fed: Vec<u32> = input.iter().chain(&found.tokens).map(|t| t.0).collect();
    let by_candle = candle_reference::logits(&model, &fed[..fed.len() - 1]);
    hold(case, "candle", &found.against(&by_candle[input.len() - 1..]));
}

fn hold(case: &Case, reference: &str, found: &Comparison) {
    println!("{} against {reference}: {found}", case.name);
    let limit = TOLERANCE * found.scale;
    assert!(found.worst <= limit, "{} against {reference}: {found}", case.name);
    let unexcused = found.flips.iter().any(|(_, margin)| *margin > 2.0 * limit);
    assert!(!unexcused, "{} against {reference}: {found}", case.name);
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn the_emulator_says_what_host_and_candle_say() {
    let _alone = alone();
    CASES.iter().for_each(check);
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn a_dialog_over_a_chips_bundle_says_what_the_engine_says() {
    let _alone = alone();
    let (case, folder) = (&CASES[0], tempfile::tempdir().unwrap());
    case.make_htp(folder.path());
    let backend = backends::htp(&BackendOptions::default());
    let (_, mut engine) = open(folder.path(), &backend);
    let expected = greedy::generate(&mut engine, &case.input(), 20).tokens;

    let (config, engine) = open(folder.path(), &backend);
    let mut dialog = Dialog::new(&config, Box::new(engine)).unwrap();
    dialog.set_sampler(SamplerSettings::argmax());
    dialog.control().set_max_num_tokens(Some(20));
    let reply = dialog.token_query(&case.prompt(), SentenceCode::Complete, |_| ()).unwrap();
    assert_eq!((reply.tokens, reply.stop), (expected, StopReason::MaxTokens));
    let runs = dialog.model().steps().runs();
    assert_eq!(runs, [("ar32_cl128_1_of_1", 2), ("ar1_cl128_1_of_1", 19)]);
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn every_chip_has_binaries_of_its_own() {
    let _alone = alone();
    let place = tempfile::tempdir().unwrap();
    let model = place.path().join("model");
    TestModel { layers: 1, ..TestModel::tiny(Family::Llama) }.write(&model).unwrap();
    for (target, id) in [("sm8550", 43), ("sm8650", 57), ("sm8750", 69), ("sm8850", 87), ("x-elite", 60)] {
        let htp = HtpOptions::for_target(target).unwrap();
        let backend = backends::htp(&htp.backend_options());
        let out = place.path().join(target);
        let options =
            CompileOptions { ars: vec![1], cls: vec![64], htp: Some(htp), ..CompileOptions::new(&model, &out) };
        let manifest = compile(&options, &backend, &mut Silent).unwrap_or_else(|e| panic!("{target}: {e}"));
        assert_eq!(manifest.options.target.as_deref(), Some(target));
        let info = binary_info(backend.library(), &std::fs::read(out.join("model.bin")).unwrap()).unwrap();
        assert_eq!((info.soc, &info.build_id), (Some(id), &manifest.backend.build_id), "{target}");
        assert_eq!(info.graphs.len(), 1);
    }
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn compilations_repeat_and_other_libraries_are_refused() {
    let _alone = alone();
    let place = tempfile::tempdir().unwrap();
    let model = place.path().join("model");
    TestModel { layers: 1, ..TestModel::tiny(Family::Qwen2) }.write(&model).unwrap();
    let htp = HtpOptions::for_target("sm8650").unwrap();
    let options = CompileOptions {
        ars: vec![1, 8],
        cls: vec![64],
        splits: Splits::LutDecoderLmhead,
        weights: Some(Weights::W8),
        htp: Some(htp),
        force: true,
        ..CompileOptions::new(&model, place.path().join("bundle"))
    };
    let backend = backends::htp(&htp.backend_options());
    let first = compile(&options, &backend, &mut Silent).unwrap();
    first.verify_files(&options.out_dir).unwrap();
    // The library counts contexts within a process, so only a new process gives the same bytes again (`genie-cli` tests it).
    let second = compile(&options, &backend, &mut Silent).unwrap();
    second.verify_files(&options.out_dir).unwrap();
    assert_eq!(Manifest::read(&options.out_dir).unwrap(), second);
    let outline = |m: &Manifest| m.files.iter().map(|f| (f.path.clone(), f.bytes)).collect::<Vec<_>>();
    assert_eq!((outline(&second), &second.graphs, &second.options), (outline(&first), &first.graphs, &first.options));
    let files: Vec<&str> = first.files.iter().map(|f| f.path.as_str()).collect();
    let config = ["tokenizer.json", "genie_config.json", "htp_backend_ext_config.json"];
    assert_eq!(files, [&["lut.bin", "decoder.bin", "lmhead.bin"][..], &config].concat());

    // Opened for another chip, or for none.
    for (soc, found) in [(Some(43), "chip 43"), (None, "no chip at all")] {
        let other = backends::htp(&BackendOptions { soc, ..BackendOptions::default() });
        let error = compile(&options, &other, &mut Silent).unwrap_err().to_string();
        assert_eq!(error, format!("the backend was opened for {found}, but target `sm8650` is chip 57"));
    }
    // A QNN library, but not one for the HTP.
    let saver = runtime::find("libQnnSaver.so").expect("it comes with the runtime");
    let error = htp.open(&saver).unwrap_err().to_string();
    assert!(error.contains("does not compile for target `sm8650`"), "{error}");
    let host = htp.open(&backends::host_library()).unwrap_err().to_string();
    assert!(host.ends_with("it is `HOST_OPEN_GENIE`, expected an HTP backend"), "{host}");
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn shared_weights_are_in_the_file_once() {
    let _alone = alone();
    let place = tempfile::tempdir().unwrap();
    let model = place.path().join("model");
    let wide = TestModel { layers: 1, hidden: 256, ffn: 1024, vocab: 2048, ..TestModel::tiny(Family::Llama) };
    TestModel { head_dim: 64, tied: false, ..wide }.write(&model).unwrap();
    let length = |share_weights| {
        let htp = HtpOptions { share_weights, ..HtpOptions::for_target("sm8650").unwrap() };
        let options = CompileOptions {
            ars: vec![1, 8],
            cls: vec![64],
            htp: Some(htp),
            force: true,
            ..CompileOptions::new(&model, place.path().join("bundle"))
        };
        let manifest = compile(&options, &backends::htp(&htp.backend_options()), &mut Silent).unwrap();
        assert_eq!(manifest.options.shared_weights, share_weights);
        manifest.files[0].bytes
    };
    let (apart, shared) = (length(false), length(true));
    assert!(shared * 10 < apart * 6, "{shared} bytes shared, {apart} bytes apart");
}

/// Rows of codes whose scales are far apart, one of zeros among them, as a layer on both backends.
#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn rows_of_any_scale_are_multiplied_right() {
    let _alone = alone();
    const WIDTH: usize = 64;
    const STEP: f32 = 1.0 / 16_777_216.0;
    // All of them float16 numbers, as the compiler writes them: the first has no weight, the next are next to nothing.
    const SCALES: [f32; 8] = [1.0, STEP, 17.0 * STEP, 1.0 / 1024.0, 0.03125, 0.5, 4.0, 0.75];
    let x: Vec<f16> = (0..WIDTH).map(|i| f16::from_f32((i * 29 % 64) as f32 / 64.0 - 0.5)).collect();
    let code = |row: usize, column: usize| if row == 0 { 0 } else { ((row * 37 + column * 53) % 255) as i32 - 127 };
    let codes: Vec<u8> =
        (0..SCALES.len() * WIDTH).map(|i| (code(i / WIDTH, i % WIDTH) as i8).cast_unsigned()).collect();
    let run = |backend: &Arc<Backend>| {
        let context = Context::create(backend, &ContextOptions::default()).unwrap();
        let htp = HtpGraphOptions { float16: true, ..HtpGraphOptions::default() };
        let mut graph = context.compose("rows", &GraphOptions { htp: Some(htp), ..GraphOptions::default() }).unwrap();
        let scale_offsets = SCALES.iter().map(|&scale| (scale, 0)).collect();
        let quant = Quant::PerAxis { axis: 0, bits: None, scale_offsets };
        let weights = TensorInfo::new("w", [SCALES.len(), WIDTH], Dtype::SFixed8).with_quant(quant);
        let input = graph.tensor(&TensorInfo::new("x", [1, WIDTH], Dtype::F16), TensorKind::Input).unwrap();
        let weights = graph.constant(&weights, &codes).unwrap();
        let y = TensorInfo::new("y", [1, SCALES.len()], Dtype::F16);
        let output = graph.tensor(&y, TensorKind::Output).unwrap();
        graph.node("layer", "FullyConnected", &[], &[input, weights], &[output]).unwrap();
        let mut graph = graph.finalize().unwrap();
        let bytes: Vec<u8> = x.iter().flat_map(|v| v.to_le_bytes()).collect();
        let mut made = vec![0; 2 * SCALES.len()];
        let mut session = graph.session();
        session.input(0, &bytes).unwrap().output(0, &mut made).unwrap();
        session.run().unwrap();
        made.as_chunks().0.iter().map(|b| f16::from_le_bytes(*b).to_f64()).collect::<Vec<_>>()
    };
    for (name, backend) in [("host", backends::linked()), ("emulator", backends::htp(&BackendOptions::default()))] {
        for (row, found) in run(&backend).into_iter().enumerate() {
            let sum: f64 = (0..WIDTH).map(|c| x[c].to_f64() * f64::from(code(row, c))).sum();
            let expected = sum * f64::from(SCALES[row]);
            // The products' sizes, not their sum's, set what float16 loses; the smallest float16 steps are 6e-8.
            let limit = f64::from(SCALES[row]) * 127.0 * 0.01 + 1e-6;
            assert!((found - expected).abs() <= limit, "{name}, row {row}: {found}, expected {expected}");
        }
    }
}
