//! Kinds of graphs that `genie compile` makes for a chip, on Qualcomm's emulator: our tokens are those of the plain bundle, and what the real
//! libGenie does with the same files is what the table in `docs/graph-contract.md` says.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use compiler::testmodel::TestModel;
use compiler::{CONFIG_FILE, CacheUpdate, CompileOptions, Family, GraphKinds, HtpOptions, Silent, Splits, compile};
use conformance::backends;
use conformance::compiled::TARGET;
use conformance::genie::{self, Act, Sentence, Session};
use engine::RopeScaling;
use genie_types::{Dtype, TensorInfo};
use qnn_api::{Backend, Context, GraphOptions, HtpGraphOptions, Param, TensorKind};
use serde_json::Value;

const N_PROMPT: u32 = 21;
const N_TOKENS: u32 = 6;

/// What libGenie does with a bundle.
#[derive(Debug, PartialEq)]
enum Real {
    /// It answers with our tokens.
    Runs,
    /// It answers without an error, with other tokens.
    OtherTokens,
    /// It makes no dialog.
    Refuses,
    /// The query ends with that status.
    Fails(i32),
}

fn backend() -> (HtpOptions, Arc<Backend>) {
    let htp = HtpOptions::for_target(TARGET).unwrap();
    let backend = backends::htp(&htp.backend_options());
    (htp, backend)
}

/// A bundle in `folder/NAME`, and its config.
fn bundle(folder: &Path, name: &str, model: &TestModel, choose: impl FnOnce(&mut CompileOptions)) -> PathBuf {
    let checkpoint = folder.join(format!("{name}_model"));
    model.write(&checkpoint).unwrap();
    let (htp, backend) = backend();
    let mut options = CompileOptions::new(checkpoint, folder.join(name));
    (options.ars, options.cls, options.htp) = (vec![1, 8], vec![64], Some(htp));
    choose(&mut options);
    compile(&options, &backend, &mut Silent).unwrap_or_else(|error| panic!("{name}: {error}"));
    folder.join(name).join(CONFIG_FILE)
}

fn plain_model() -> TestModel {
    TestModel { head_dim: 32, seed: 3, ..TestModel::tiny(Family::Llama) }
}

fn kind(kinds: GraphKinds, splits: Splits) -> impl FnOnce(&mut CompileOptions) {
    move |options| (options.kinds, options.splits) = (kinds, splits)
}

fn ask(config: PathBuf) -> Session {
    let prompt = (0..N_PROMPT).map(|i| i * 7 % 50 + 3).collect();
    let acts = vec![Act::MaxTokens(N_TOKENS), Act::Tokens(prompt, Sentence::Complete)];
    Session::greedy(genie::library(), config, acts).endless()
}

/// Our tokens, and what libGenie does.
fn both(name: &str, config: PathBuf) -> (Vec<u32>, Real) {
    let session = ask(config);
    let ours = session.play_ours(&backend().1).unwrap_or_else(|e| panic!("{name}: {e}")).tokens().concat();
    assert_eq!(ours.len(), N_TOKENS as usize, "{name}");
    let real = match session.run() {
        Err(error) => {
            eprintln!("{name}: {error}");
            Real::Refuses
        }
        Ok(run) if run.codes()[1] < 0 => Real::Fails(run.codes()[1]),
        Ok(run) if run.tokens().concat() == ours => Real::Runs,
        Ok(run) => {
            eprintln!("{name}: libGenie {:?}, ours {ours:?}", run.tokens());
            Real::OtherTokens
        }
    };
    eprintln!("{name}: {real:?}");
    (ours, real)
}

#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn each_kind_of_the_compiler_in_both() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (plain, real) = both("plain", bundle(folder, "plain", &plain_model(), |_| ()));
    assert_eq!(real, Real::Runs);
    let kinds = GraphKinds::default;
    let cases = [
        ("rows only", kind(GraphKinds { rows_only: vec![8], ..kinds() }, Splits::Mono), Real::Refuses),
        ("a head of one row", kind(GraphKinds { head: vec![1], ..kinds() }, Splits::DecoderLmhead), Real::Fails(-6)),
        ("the first slot", kind(GraphKinds { cache: CacheUpdate::ScatterFrom, ..kinds() }, Splits::Mono), Real::Runs),
        ("each slot", kind(GraphKinds { cache: CacheUpdate::ScatterEach, ..kinds() }, Splits::Mono), Real::Runs),
        (
            "the head's weight",
            kind(GraphKinds { head_weight_input: true, ..kinds() }, Splits::DecoderLmhead),
            Real::OtherTokens,
        ),
        (
            "rows of embeddings",
            kind(GraphKinds { embeddings_input: true, ..kinds() }, Splits::DecoderLmhead),
            Real::Runs,
        ),
    ];
    let mut found = Vec::new();
    for (i, (name, choose, want)) in cases.into_iter().enumerate() {
        let config = bundle(folder, &format!("kind{i}"), &plain_model(), choose);
        let (tokens, real) = both(name, config);
        assert_eq!(tokens, plain, "{name}");
        found.push((name, real, want));
    }
    for (name, real, want) in &found {
        assert_eq!(real, want, "{name}: {found:?}");
    }
}

/// Tables of their own and learned positions are fed by the config that the compiler writes; windows are kept otherwise.
#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn windows_and_positions_of_families_in_both() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let scaling = Some(RopeScaling::Linear { factor: 8.0 });
    let tiny = |family| TestModel { head_dim: 32, seed: 3, ..TestModel::tiny(family) };
    let cases = [
        ("two tables", TestModel { scaling, layers: 4, ..tiny(Family::Olmo3) }, Real::Runs),
        ("learned positions", TestModel { seed: 3, ..TestModel::tiny(Family::Gpt2) }, Real::Runs),
        ("a group with a window", TestModel { window: 12, layers: 4, ..tiny(Family::Olmo3) }, Real::OtherTokens),
    ];
    let mut found = Vec::new();
    for (i, (name, model, want)) in cases.into_iter().enumerate() {
        let config = bundle(folder, &format!("model{i}"), &model, |_| ());
        found.push((name, both(name, config).1, want));
    }
    for (name, real, want) in &found {
        assert_eq!(real, want, "{name}: {found:?}");
    }
}

/// libGenie drops rows once the cache is full, and lets every token see what is there until then: here the window of 12 is kept from the
/// 13th token on.
#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn a_window_of_all_layers_in_both() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let model =
        |window| TestModel { window, head_dim: 32, seed: 3, max_positions: 300, ..TestModel::tiny(Family::Mistral) };
    let windowed = bundle(folder, "windowed", &model(12), |_| ());
    let whole = bundle(folder, "whole", &model(300), |_| ());
    let (of_window, real) = both("a window of all layers", windowed.clone());
    assert_eq!(real, Real::OtherTokens);
    let (of_all, real) = both("no window", whole);
    assert_eq!(real, Real::Runs);
    assert_ne!(of_window, of_all);
    assert_eq!(ask(windowed).run().unwrap().tokens().concat(), of_all);
}

/// The first graphs that libGenie meets in a binary with `pixel_values` are no decoder.
#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn an_image_encoder_beside_the_decoder() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let config = bundle(folder, "plain", &plain_model(), |_| ());
    let (plain, _) = both("plain", config.clone());
    save_encoder(&folder.join("plain/vision.bin"), plain_model().hidden);
    let mut changed: Value = serde_json::from_slice(&std::fs::read(&config).unwrap()).unwrap();
    let bins = changed.pointer_mut("/dialog/engine/model/binary/ctx-bins").unwrap().as_array_mut().unwrap();
    bins.push("vision.bin".into());
    std::fs::write(&config, changed.to_string()).unwrap();
    let (tokens, real) = both("with an image encoder", config);
    assert_eq!(tokens, plain, "it stands aside");
    assert_eq!(real, Real::Refuses);
}

/// Pixels through the encoder on the emulator: the rows of plain code.
#[test]
#[ignore = "needs the QNN runtime: cargo xtask qnn-runtime"]
fn an_image_encoder_on_the_emulator() {
    let folder = tempfile::tempdir().unwrap();
    let (path, width) = (folder.path().join("vision.bin"), 64);
    save_encoder(&path, width);
    let pixels: Vec<f32> = (0..48).map(|i| (i as f32 * 1.3).cos()).collect();
    let raw: Vec<u8> = pixels.iter().flat_map(|x| x.to_le_bytes()).collect();
    std::fs::write(folder.path().join("image.raw"), raw).unwrap();
    let reading = engine::Reading::of(&engine::EngineConfig::new([""; 0]));
    let mut encoder = engine::ImageEncoder::open(&backend().1, &path, reading).unwrap();
    let image = engine::NumberFile::read(folder.path().join("image.raw")).unwrap();
    let rows = encoder.encode(&[("pixel_values", &image)]).unwrap();
    assert_eq!((rows.width, rows.numbers.len()), (width, 3 * width));
    let weights = weights(width);
    for (i, row) in pixels.chunks(16).enumerate() {
        for (j, w) in weights.chunks(16).enumerate() {
            let want: f32 = w.iter().zip(row).map(|(w, x)| w * x).sum();
            let found = rows.numbers[i * width + j];
            assert!((found - want).abs() < 5e-3, "row {i}, {j}: {found}, expected {want}");
        }
    }
}

/// Of the encoder, `[width, 16]`.
fn weights(width: usize) -> Vec<f32> {
    (0..width * 16).map(|i| (i as f32 * 0.71).sin() * 0.3).collect()
}

/// A binary whose graph maps each row of 16 pixels to a row of embeddings, in float16.
fn save_encoder(path: &Path, width: usize) {
    let context = Context::create(&backend().1, &Default::default()).unwrap();
    let htp = HtpGraphOptions { float16: true, vtcm_mb: Some(8), optimization: Some(3), hvx_threads: None };
    let mut graph = context.compose("vision", &GraphOptions { htp: Some(htp), ..Default::default() }).unwrap();
    let info = |name: &str, dims: &[usize]| TensorInfo::new(name, dims, Dtype::F16);
    let pixels = graph.tensor(&info("pixel_values", &[1, 3, 4, 4]), TensorKind::Input).unwrap();
    let rows = graph.tensor(&info("rows", &[3, 16]), TensorKind::Native).unwrap();
    graph.node("rows", "Reshape", &[], &[pixels], &[rows]).unwrap();
    let bytes: Vec<u8> = weights(width).iter().flat_map(|x| half::f16::from_f32(*x).to_le_bytes()).collect();
    let weight = graph.constant(&info("weight", &[width, 16]), &bytes).unwrap();
    let out = graph.tensor(&info("image_features", &[3, width]), TensorKind::Output).unwrap();
    let keep: [(&str, Param); 0] = [];
    graph.node("features", "FullyConnected", &keep, &[rows, weight], &[out]).unwrap();
    graph.finalize().unwrap();
    context.save(path).unwrap();
}
