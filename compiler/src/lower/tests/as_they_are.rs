//! Files in blocks of many kinds, compiled as they are: against the same numbers as floats, and in bytes.

use super::host::{host, inputs, to_bytes};
use super::recorder::{FakeTarget, Graph, Held};
use crate::checkpoint::BlockFormat;
use crate::compile::compile_with;
use crate::family::Family;
use crate::testmodel::{GgufDraft, Matrices, TestModel};
use crate::{CompileOptions, Precision, Silent, Splits, Weights, compile};
use genie_types::{Dtype, Quant};
use half::f16;
use qnn_api::{Context, ContextOptions};
use std::collections::BTreeMap;
use std::path::Path;

/// How a matrix is stored: the format, its number, and where a block has float16 numbers of about which size.
type Stored = (BlockFormat, u32, &'static [(usize, f32)]);

// With these numbers, values are of the order of 0.1.
const Q4_0: Stored = (BlockFormat::Q4_0, 2, &[(0, 0.01)]);
const Q5_0: Stored = (BlockFormat::Q5_0, 6, &[(0, 0.006)]);
const Q8_0: Stored = (BlockFormat::Q8_0, 8, &[(0, 0.000_8)]);
const Q2_K: Stored = (BlockFormat::Q2K, 10, &[(80, 0.003), (82, 0.004)]);
const Q3_K: Stored = (BlockFormat::Q3K, 11, &[(108, 0.001)]);
const Q4_K: Stored = (BlockFormat::Q4K, 12, &[(0, 0.000_2), (2, 0.001_6)]);
const Q5_K: Stored = (BlockFormat::Q5K, 13, &[(0, 0.000_1), (2, 0.001_6)]);
const Q6_K: Stored = (BlockFormat::Q6K, 14, &[(208, 0.000_05)]);
const IQ4_NL: Stored = (BlockFormat::IQ4_NL, 20, &[(0, 0.000_8)]);
const IQ4_XS: Stored = (BlockFormat::IQ4_XS, 23, &[(0, 0.000_02)]);
const MXFP4: Stored = (BlockFormat::MXFP4, 39, &[]);

/// A model whose matrices are blocks, the embedding and an LM head of its own as `whole`, and the same numbers as floats.
fn blocks_and_floats(model: &TestModel, whole: Stored, layers: &[Stored]) -> [GgufDraft; 2] {
    let floats = model.gguf(Matrices::F32).unwrap();
    let (mut blocks, mut floats) = (floats.clone(), floats);
    let mut state = 7u64;
    let mut byte = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u8
    };
    let matrices = blocks.tensors.iter_mut().zip(&mut floats.tensors).filter(|(tensor, _)| tensor.dims.len() == 2);
    for (i, (tensor, float)) in matrices.enumerate() {
        let is_whole = tensor.name.contains("token_embd") || tensor.name.starts_with("output");
        let (format, ty, halves) = if is_whole { whole } else { layers[i % layers.len()] };
        let n: usize = tensor.dims.iter().map(|&d| d as usize).product();
        tensor.bytes = (0..n / format.elems() * format.bytes()).map(|_| byte()).collect();
        for block in tensor.bytes.chunks_exact_mut(format.bytes()) {
            for &(at, size) in halves {
                let d = size * (1.0 + f32::from(byte()) / 256.0);
                block[at..at + 2].copy_from_slice(&f16::from_f32(d).to_le_bytes());
            }
            if format == BlockFormat::MXFP4 {
                // Mostly near 2^-5; of others float16 holds neither scales nor values, and zeros are as ggml has them.
                block[0] = [122, 121, 123, 122, 121, 123, 122, 60][usize::from(byte()) % 8];
                if byte().is_multiple_of(16) {
                    block.fill(0);
                }
            }
        }
        let mut numbers = vec![0.0f32; n];
        format.decode(&tensor.bytes, &mut numbers);
        (tensor.ty, float.bytes) = (ty, numbers.iter().flat_map(|v| v.to_le_bytes()).collect());
    }
    [blocks, floats]
}

/// A graph's outputs, and whether it does nothing but look rows up.
struct Outputs {
    graph: String,
    is_look_up: bool,
    values: Vec<Vec<f32>>,
}

/// What every graph of a file's bundle gives.
fn run(dir: &Path, draft: &GgufDraft, weights: Option<Weights>, inspect: impl FnOnce(&[Vec<Graph>])) -> Vec<Outputs> {
    let file = dir.join("model.gguf");
    std::fs::write(&file, draft.bytes()).unwrap();
    let options = CompileOptions {
        // The last of them is wide enough for a matrix unit where there is one.
        ars: vec![1, 4, 16, 64],
        cls: vec![80],
        precision: Precision::F32,
        splits: Splits::LutDecoderLmhead,
        weights,
        force: true,
        ..CompileOptions::new(file, dir.join("bundle"))
    };
    let mut target = FakeTarget::default();
    compile_with(&options, &mut target, &mut Silent).unwrap();
    let recorded = target.saved.take();
    inspect(&recorded);
    let backend = host();
    let manifest = compile(&options, &backend, &mut Silent).unwrap();
    let mut of_graphs = Vec::new();
    for (entry, graph) in manifest.graphs.iter().zip(recorded.iter().flatten()) {
        let file = dir.join("bundle").join(&entry.file);
        let context = Context::from_file(&backend, file, &ContextOptions::default()).unwrap();
        let mut made = context.graph(&entry.name).unwrap();
        let info = made.info().clone();
        let given = inputs(graph, 320);
        let bytes: Vec<Vec<u8>> = info.inputs.iter().map(|t| to_bytes(t, &given[&t.name])).collect();
        let mut outputs: Vec<Vec<u8>> = info.outputs.iter().map(|t| vec![0; t.size_bytes()]).collect();
        let mut session = made.session();
        for (i, bytes) in bytes.iter().enumerate() {
            session.input(i, bytes).unwrap();
        }
        for (i, bytes) in outputs.iter_mut().enumerate() {
            session.output(i, bytes).unwrap();
        }
        session.run().unwrap();
        let decoded = info.outputs.iter().zip(&outputs).map(|(tensor, bytes)| super::interp::decode(tensor, bytes));
        of_graphs.push(Outputs {
            graph: entry.name.clone(),
            is_look_up: info.inputs.iter().all(|t| t.name == "input_ids"),
            values: decoded.collect(),
        });
    }
    of_graphs
}

fn check(model: &TestModel, whole: Stored, layers: &[Stored], inspect: impl FnOnce(&[Vec<Graph>])) {
    check_files(blocks_and_floats(model, whole, layers), inspect);
}

/// Rows that are looked up are the file's; what is multiplied is off by what rounding activations costs. The second file has the same
/// numbers as floats.
fn check_files([blocks, floats]: [GgufDraft; 2], inspect: impl FnOnce(&[Vec<Graph>])) {
    let dir = tempfile::tempdir().unwrap();
    let found = run(dir.path(), &blocks, None, inspect);
    let expected = run(dir.path(), &floats, None, |_| {});
    // What rounding activations alone costs, and weights to 8 bits.
    let rounded = run(dir.path(), &floats, Some(Weights::Q8_0), |_| {});
    assert!(expected.iter().any(|outputs| outputs.is_look_up));
    // Of each output, over all widths: of a single graph's either may be the larger by chance.
    let mut squares: BTreeMap<(&str, usize), (f32, f32)> = BTreeMap::new();
    for ((found, expected), rounded) in found.iter().zip(&expected).zip(&rounded) {
        if expected.is_look_up {
            assert_eq!(found.values, expected.values, "{}", found.graph);
            continue;
        }
        let (_, split) = found.graph.split_once("_cl80_").unwrap();
        let values = found.values.iter().zip(&expected.values).zip(&rounded.values);
        for (index, ((found_values, expected), rounded)) in values.enumerate() {
            let size = expected.iter().map(|v| v * v).sum::<f32>().sqrt();
            let off =
                |found: &[f32]| found.iter().zip(expected).map(|(a, b)| (a - b) * (a - b)).sum::<f32>().sqrt() / size;
            let (off, rounded) = (off(found_values), off(rounded));
            assert!(off < 0.04, "{}: {off:e} off, rounded {rounded:e}", found.graph);
            let sums = squares.entry((split, index)).or_default();
            *sums = (sums.0 + off * off, sums.1 + rounded * rounded);
        }
    }
    for ((split, index), (off, rounded)) in squares {
        let (off, rounded) = (off.sqrt(), rounded.sqrt());
        assert!(off < 1.1 * rounded + 1e-3, "output {index} of {split}: {off:e} off, rounded {rounded:e}");
    }
}

#[test]
fn k_blocks_of_a_file_are_computed_as_they_are() {
    let model = TestModel { hidden: 256, head_dim: 64, ffn: 512, tied: false, ..TestModel::tiny(Family::Llama) };
    // The table and the head as llama.cpp's files have them; a gate and its layer of different kinds in the second layer.
    check(&model, Q6_K, &[Q4_K, Q4_K, Q5_K, IQ4_XS], |recorded| {
        let graph = &recorded[1][0];
        let constants = graph.tensors.iter().filter(|t| matches!(t.held, Held::Constant(_)));
        let minima = constants.clone().filter(|t| t.info.name.ends_with("_minima")).count();
        let four = constants.filter(|t| t.info.dtype == Dtype::UFixed4).count();
        assert_eq!(minima, graph.nodes.iter().filter(|node| node.op == "ElementWiseSubtract").count());
        assert!(minima > four && four > 4, "{four} of 4 bits, {minima} with minima");
    });
}

#[test]
fn three_bits_and_two_are_computed_as_they_are() {
    for (tied, few) in [(true, Q3_K), (false, Q3_K), (true, Q2_K), (false, Q2_K)] {
        let model = TestModel { hidden: 256, head_dim: 64, ffn: 512, tied, ..TestModel::tiny(Family::Llama) };
        check(&model, few, &[few, few, Q4_K, Q5_K, Q3_K], |_| {});
    }
}

#[test]
fn tables_with_minima_are_looked_up_as_they_are() {
    for (tied, whole) in [(true, Q4_K), (false, Q5_K)] {
        let model = TestModel { hidden: 256, head_dim: 64, ffn: 512, tied, ..TestModel::tiny(Family::Llama) };
        check(&model, whole, &[Q4_K], |recorded| {
            let minima = |t: &&super::recorder::Tensor| t.info.name == "model_embed_tokens_weight_minima";
            assert_eq!(recorded[0][0].tensors.iter().filter(minima).count(), 1);
        });
    }
}

#[test]
fn blocks_with_one_scale_are_computed_as_they_are_in_rows_of_any_number_of_them() {
    for (tied, whole) in [(true, Q5_0), (false, IQ4_NL), (true, Q8_0), (false, Q4_0)] {
        let model = TestModel { hidden: 96, head_dim: 64, ffn: 224, tied, ..TestModel::tiny(Family::Llama) };
        check(&model, whole, &[Q5_0, Q5_0, Q8_0, IQ4_NL, IQ4_NL], |_| {});
    }
}

#[test]
fn floats_of_four_bits_are_computed_as_they_are() {
    for (tied, whole) in [(true, MXFP4), (false, MXFP4), (true, Q8_0)] {
        let model = TestModel { hidden: 96, head_dim: 64, ffn: 224, tied, ..TestModel::tiny(Family::Llama) };
        check(&model, whole, &[MXFP4, MXFP4, MXFP4, IQ4_NL], |recorded| {
            let scales = recorded[1][0].tensors.iter().filter_map(|t| match &t.info.quant {
                Quant::Block { scale_offsets, .. } => Some(scale_offsets),
                _ => None,
            });
            let beyond = scales.flatten().filter(|(scale, _)| *scale == 2f32.powi(60 - 128)).count();
            assert!(beyond > 10, "{beyond} scales that float16 does not hold");
        });
    }
}

/// Matrices that a file of blocks has as floats are those floats in graphs, few or most of them.
#[test]
fn floats_among_blocks_are_computed_as_they_are() {
    let model = TestModel { hidden: 96, head_dim: 64, ffn: 224, tied: false, ..TestModel::tiny(Family::Llama) };
    let all_but_one = |name: &str| name != "blk.0.attn_q.weight";
    let kept: [fn(&str) -> bool; 4] = [
        |name| name == "output.weight",
        |name| name == "token_embd.weight",
        |name| name.contains("ffn_down") || name == "blk.1.attn_q.weight",
        all_but_one,
    ];
    for is_kept in kept {
        let [mut blocks, floats] = blocks_and_floats(&model, Q8_0, &[Q4_0, Q5_0, Q8_0]);
        let matrices = |draft: &GgufDraft| draft.tensors.iter().filter(|tensor| tensor.dims.len() == 2).count();
        let n_blocks = matrices(&blocks);
        let mut expected: Vec<Vec<u8>> = Vec::new();
        for (tensor, float) in blocks.tensors.iter_mut().zip(&floats.tensors) {
            if float.dims.len() == 2 && is_kept(&float.name) {
                *tensor = float.clone();
                expected.push(float.bytes.clone());
            }
        }
        assert!(!expected.is_empty() && expected.len() < n_blocks);
        check_files([blocks, floats], |recorded| {
            let graphs = [&recorded[0][0], &recorded[1][0], &recorded[2][0]];
            let held = graphs.iter().flat_map(|graph| &graph.tensors).filter_map(|tensor| match &tensor.held {
                Held::Constant(bytes) if tensor.info.dtype == Dtype::F32 && tensor.info.dims.len() == 2 => Some(bytes),
                _ => None,
            });
            let held: Vec<&Vec<u8>> = held.collect();
            // Rows of Q and K stand in another order in files.
            let sorted = |bytes: &[u8]| {
                let mut numbers = bytes.as_chunks::<4>().0.to_vec();
                numbers.sort_unstable();
                numbers
            };
            for bytes in &expected {
                assert!(held.iter().any(|held| sorted(held) == sorted(bytes)), "a matrix of floats is no constant");
            }
        });
    }
}

/// Bytes of a bundle's graphs over those of the file's tensors.
#[test]
fn a_bundle_is_as_large_as_its_file() {
    let dir = tempfile::tempdir().unwrap();
    let model =
        |tied| TestModel { hidden: 256, head_dim: 64, ffn: 2048, vocab: 2000, tied, ..TestModel::tiny(Family::Llama) };
    for (name, whole, layers, most) in [
        ("Q5_0", Q5_0, &[Q5_0][..], 1.02),
        ("IQ4_NL", IQ4_NL, &[IQ4_NL], 1.02),
        ("MXFP4", MXFP4, &[MXFP4], 1.02),
        ("MXFP4 beside Q8_0", Q8_0, &[MXFP4, MXFP4, MXFP4, Q8_0], 1.02),
        ("Q4_0", Q4_0, &[Q4_0, Q8_0], 1.02),
        ("Q4_K_M of odd rows", Q8_0, &[Q5_0, Q5_0, Q5_0, Q8_0], 1.02),
        ("Q2_K", Q6_K, &[Q2_K, Q2_K, Q2_K, Q3_K], 1.08),
        ("Q2_K alone", Q2_K, &[Q2_K], 1.08),
        ("Q3_K", Q3_K, &[Q3_K], 1.08),
        ("Q3_K_M", Q6_K, &[Q3_K, Q3_K, Q4_K, Q5_K], 1.06),
        ("Q4_K_S", Q4_K, &[Q4_K, Q4_K, Q5_K], 1.08),
        ("Q4_K_M", Q6_K, &[Q4_K, Q4_K, Q4_K, Q6_K], 1.08),
        ("Q5_K", Q6_K, &[Q5_K], 1.08),
        ("IQ4_XS", IQ4_XS, &[IQ4_XS], 1.08),
    ] {
        for tied in [true, false] {
            let [draft, _] = blocks_and_floats(&model(tied), whole, layers);
            let file = dir.path().join("model.gguf");
            std::fs::write(&file, draft.bytes()).unwrap();
            let options = CompileOptions {
                ars: vec![1],
                cls: vec![16],
                splits: Splits::Mono,
                precision: Precision::F32,
                force: true,
                ..CompileOptions::new(file, dir.path().join("bundle"))
            };
            let manifest = compile(&options, &host(), &mut Silent).unwrap();
            let bundle: u64 = manifest.files.iter().filter(|f| f.path.ends_with(".bin")).map(|f| f.bytes).sum();
            let tensors: usize = draft.tensors.iter().map(|t| t.bytes.len()).sum();
            let over = bundle as f64 / tensors as f64;
            eprintln!("{name}, {}: {over:.4} times the file", if tied { "tied" } else { "not tied" });
            assert!(over < most, "{name}: {bundle} bytes of {tensors}");
        }
    }
}
