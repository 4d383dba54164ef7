//! Images in a prompt: rows of embeddings from a file, and pixels through an image encoder.

use std::path::Path;

use compiler::Family;
use compiler::testmodel::TestModel;
use genie_types::{Dtype, TensorInfo};
use open_genie::{BackendChoice, Options};
use qnn_api::{Context, Param, TensorKind};
use serde_json::Value;

use crate::program::{done, genie};

/// Pixels: three rows of 16.
const PIXELS: [usize; 4] = [1, 3, 4, 4];

/// A bundle that takes embeddings, and its width.
fn bundle(folder: &Path) -> usize {
    let model = TestModel::tiny(Family::Llama);
    model.write(&folder.join("model")).unwrap();
    let args =
        ["compile", "model", "-o", "bundle", "--ar", "1,8", "--cl", "64", "--precision", "f32", "--inputs-embeds"];
    done(folder, &args);
    model.hidden
}

fn run(folder: &Path, prompt: &str, flags: &[&str]) -> Value {
    let args = ["run", "-c", "bundle", "--prompt-tokens", prompt, "-n", "6", "--greedy", "--json"];
    serde_json::from_slice(&done(folder, &[&args, flags].concat()).stdout).unwrap()
}

fn refused(folder: &Path, flags: &[&str]) -> String {
    let args = ["run", "-c", "bundle", "--prompt-tokens", "3,11,9", "-n", "2"];
    let output = genie(folder, &[&args, flags].concat());
    assert!(!output.status.success(), "{flags:?}");
    String::from_utf8(output.stderr).unwrap()
}

fn bytes(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|x| x.to_le_bytes()).collect()
}

fn npy(dims: &str, numbers: &[f32]) -> Vec<u8> {
    let header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {dims}, }}\n");
    [b"\x93NUMPY\x01\x00", &(header.len() as u16).to_le_bytes()[..], header.as_bytes(), &bytes(numbers)].concat()
}

/// Weights of the encoder, `[width, 16]`.
fn weights(width: usize) -> Vec<f32> {
    (0..width * 16).map(|i| (i as f32 * 0.71).sin() * 0.3).collect()
}

/// A context binary whose graph maps each row of 16 pixels to a row of embeddings.
fn save_encoder(path: &Path, width: usize) {
    let backend = open_genie::open_backend(&Options::new().backend(BackendChoice::Embedded)).unwrap();
    let context = Context::create(&backend, &Default::default()).unwrap();
    let mut graph = context.compose("vision", &Default::default()).unwrap();
    let info = |name: &str, dims: &[usize]| TensorInfo::new(name, dims, Dtype::F32);
    let pixels = graph.tensor(&info("pixel_values", &PIXELS), TensorKind::Input).unwrap();
    let gain = graph.tensor(&info("gain", &[1]), TensorKind::Input).unwrap();
    let rows = graph.tensor(&info("rows", &[3, 16]), TensorKind::Native).unwrap();
    graph.node("rows", "Reshape", &[], &[pixels], &[rows]).unwrap();
    let scaled = graph.tensor(&info("scaled", &[3, 16]), TensorKind::Native).unwrap();
    graph.node("scaled", "ElementWiseMultiply", &[], &[rows, gain], &[scaled]).unwrap();
    let weight = graph.constant(&info("weight", &[width, 16]), &bytes(&weights(width))).unwrap();
    let out = graph.tensor(&info("image_features", &[3, width]), TensorKind::Output).unwrap();
    let keep: [(&str, Param); 0] = [];
    graph.node("features", "FullyConnected", &keep, &[scaled, weight], &[out]).unwrap();
    graph.finalize().unwrap();
    context.save(path).unwrap();
}

#[test]
fn rows_of_the_table_are_its_tokens() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let width = bundle(folder);
    let table = std::fs::read(folder.join("bundle/embedding_weights.raw")).unwrap();
    let row = |token: usize| &table[token * width * 4..(token + 1) * width * 4];
    std::fs::write(folder.join("a.raw"), [row(5), row(6), row(7)].concat()).unwrap();
    std::fs::write(folder.join("b.raw"), row(20)).unwrap();
    let one = ["--image-token", "11", "--image-features", "a.raw"];
    let two = [&one[..], &["--image-features", "b.raw"]].concat();
    let plain = run(folder, "3,5,6,7,9,20,8", &[]);
    let with_rows = run(folder, "3,11,9,11,8", &two);
    assert_eq!(with_rows["tokens"], plain["tokens"]);
    assert_eq!(with_rows["executed"], plain["executed"]);
    // The token may be written as often as there are rows.
    assert_eq!(run(folder, "3,11,11,11,9", &one)["tokens"], run(folder, "3,5,6,7,9", &[])["tokens"]);
    // A dialog with rows is saved and goes on.
    let saved = [&one[..], &["--save", "saved"]].concat();
    run(folder, "3,11,9", &saved);
    run(folder, "3,5,6,7,9", &["--save", "saved_plain"]);
    let next = |from: &str| run(folder, "14,15", &["--restore", from])["tokens"].clone();
    assert_eq!(next("saved"), next("saved_plain"));

    let wrong = |flags: &[&str]| refused(folder, &[&["--image-token", "11"], flags].concat());
    let text = wrong(&["--image-features", "a.raw", "--image-features", "b.raw"]);
    assert!(text.contains("image token 11 in 1 places, expected 2"), "{text}");
    std::fs::write(folder.join("short.raw"), &row(5)[..8]).unwrap();
    let text = wrong(&["--image-features", "short.raw"]);
    assert!(text.contains("short.raw`: expected rows of") && text.contains("found 2 numbers"), "{text}");
    let text = refused(folder, &["--image-features", "a.raw"]);
    assert!(text.contains("none of the image tokens") && text.contains("--image-token"), "{text}");
    let text = wrong(&["--image", "a.raw"]);
    assert!(text.contains("no image encoder") && text.contains("--image-encoder"), "{text}");
}

#[test]
fn pixels_go_through_the_encoder() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let width = bundle(folder);
    save_encoder(&folder.join("vision.bin"), width);
    let pixels: Vec<f32> = (0..48).map(|i| (i as f32 * 1.3).cos()).collect();
    std::fs::write(folder.join("image.npy"), npy("(3, 4, 4)", &pixels)).unwrap();
    std::fs::write(folder.join("gain.raw"), bytes(&[2.0])).unwrap();
    // The same in plain code.
    let rows: Vec<f32> = pixels
        .chunks(16)
        .flat_map(|row| {
            let weights = weights(width);
            let feature = |w: &[f32]| w.iter().zip(row).map(|(w, x)| w * 2.0 * x).sum();
            weights.chunks(16).map(feature).collect::<Vec<f32>>()
        })
        .collect();
    std::fs::write(folder.join("rows.npy"), npy(&format!("(3, {width})"), &rows)).unwrap();
    let by_rows = run(folder, "3,11,9", &["--image-token", "11", "--image-features", "rows.npy"]);
    let gain = ["--image-token", "11", "--image", "image.npy", "--image-input", "gain=gain.raw"];
    let by_pixels = run(folder, "3,11,9", &[&gain[..], &["--image-encoder", "vision.bin"]].concat());
    assert_eq!(by_pixels["tokens"], by_rows["tokens"]);
    assert_ne!(by_pixels["tokens"], run(folder, "3,11,9", &[])["tokens"], "the image is seen");

    // As a part of the bundle, where it stands aside of the chain.
    std::fs::copy(folder.join("vision.bin"), folder.join("bundle/vision.bin")).unwrap();
    let config = folder.join("bundle/genie_config.json");
    let mut changed: Value = serde_json::from_slice(&std::fs::read(&config).unwrap()).unwrap();
    let bins = changed.pointer_mut("/dialog/engine/model/binary/ctx-bins").unwrap().as_array_mut().unwrap();
    bins.push("vision.bin".into());
    std::fs::write(&config, changed.to_string()).unwrap();
    assert_eq!(run(folder, "3,11,9", &gain)["tokens"], by_rows["tokens"]);

    let text = refused(folder, &["--image-token", "11", "--image", "image.npy"]);
    assert!(text.contains("input `gain` of image encoder `vision`: no file was given for it"), "{text}");
    std::fs::write(folder.join("small.npy"), npy("(3, 2, 4)", &pixels[..24])).unwrap();
    let text = refused(folder, &["--image-token", "11", "--image", "small.npy", "--image-input", "gain=gain.raw"]);
    assert!(text.contains("expected numbers for `pixel_values` [1, 3, 4, 4], found [3, 2, 4]"), "{text}");
    let text = refused(folder, &["--image-token", "11", "--image", "image.npy", "--image-input", "gain"]);
    assert!(text.contains("write it as `--image-input NAME=FILE`"), "{text}");
}
