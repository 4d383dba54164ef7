//! The embedded backend against the interpreter: the same graphs, the same inputs, the same outputs.

use super::interp::execute;
use super::recorder::{FakeTarget, Graph, Held};
use crate::compile::compile_with;
use crate::family::Family;
use crate::testmodel::TestModel;
use crate::{CompileOptions, Precision, Silent, Splits, Weights, compile};
use genie_types::{Dtype, TensorInfo};
use half::f16;
use qnn_api::{Backend, BackendOptions, Context, ContextOptions, Library};
use std::collections::HashMap;
use std::sync::Arc;

pub(super) fn host() -> Arc<Backend> {
    let library = Library::linked(qnn_host::providers()).unwrap();
    Backend::new(&library, &BackendOptions::default()).unwrap()
}

pub(super) fn to_bytes(info: &TensorInfo, values: &[f32]) -> Vec<u8> {
    match info.dtype {
        Dtype::F32 => values.iter().flat_map(|v| v.to_le_bytes()).collect(),
        Dtype::F16 => values.iter().flat_map(|v| f16::from_f32(*v).to_le_bytes()).collect(),
        Dtype::I32 => values.iter().flat_map(|v| (*v as i32).to_le_bytes()).collect(),
        other => panic!("no input should be {other}"),
    }
}

/// Plausible contents: ids in range, a causal mask, angles, a past of some size.
pub(super) fn inputs(graph: &Graph, vocab: usize) -> HashMap<String, Vec<f32>> {
    let fill = |info: &TensorInfo| -> Vec<f32> {
        let wave = |i: usize| ((i * 7919 % 1009) as f32 / 1009.0 - 0.5) * 2.0;
        let n = info.n_elems();
        match info.name.as_str() {
            "input_ids" => (0..n).map(|i| (i * 31 % vocab) as f32).collect(),
            "position_ids" => (0..n).map(|i| (i * 5 % 64) as f32).collect(),
            "attention_mask" => {
                let (rows, cols) = (info.dims[2], info.dims[3]);
                let hidden =
                    |i: usize| i % cols > cols - rows + i / cols || i % cols % 3 == 2 && i % cols < cols - rows;
                (0..n).map(|i| if hidden(i) { -1000.0 } else { 0.0 }).collect()
            }
            "position_ids_cos" => (0..n).map(|i| (i as f32 * 0.3).cos()).collect(),
            "position_ids_sin" => (0..n).map(|i| (i as f32 * 0.3).sin()).collect(),
            _ => (0..n).map(wave).collect(),
        }
    };
    let tensors = graph.tensors.iter().filter(|t| t.held == Held::Input);
    tensors.map(|t| (t.info.name.clone(), fill(&t.info))).collect()
}

fn check(model: &TestModel, splits: Splits, precision: Precision, tolerance: f32) {
    check_weights(model, (splits, precision, Weights::Float), tolerance);
}

fn check_weights(model: &TestModel, (splits, precision, weights): (Splits, Precision, Weights), tolerance: f32) {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("model");
    model.write(&source).unwrap();
    let options = CompileOptions {
        ars: vec![1, 4, 16],
        cls: vec![16, 24],
        splits,
        precision,
        weights: Some(weights),
        force: true,
        ..CompileOptions::new(source, dir.path().join("bundle"))
    };
    let mut target = FakeTarget::default();
    compile_with(&options, &mut target, &mut Silent).unwrap();
    let recorded = target.saved.take();

    let backend = host();
    let manifest = compile(&options, &backend, &mut Silent).unwrap();
    assert_eq!(manifest.graphs.len(), recorded.iter().map(Vec::len).sum::<usize>());
    for (entry, graph) in manifest.graphs.iter().zip(recorded.iter().flatten()) {
        assert_eq!(entry.name, graph.name);
        let file = dir.path().join("bundle").join(&entry.file);
        let context = Context::from_file(&backend, file, &ContextOptions::default()).unwrap();
        let mut made = context.graph(&entry.name).unwrap();
        let info = made.info().clone();
        let given = inputs(graph, model.vocab);
        let expected = execute(graph, &given);

        let bytes: Vec<Vec<u8>> = info.inputs.iter().map(|t| to_bytes(t, &given[&t.name])).collect();
        let mut results: Vec<Vec<u8>> = info.outputs.iter().map(|t| vec![0; t.size_bytes()]).collect();
        let mut session = made.session();
        for (i, bytes) in bytes.iter().enumerate() {
            session.input(i, bytes).unwrap();
        }
        for (i, bytes) in results.iter_mut().enumerate() {
            session.output(i, bytes).unwrap();
        }
        session.run().unwrap();
        assert_eq!(info.outputs.len(), expected.len(), "{}", entry.name);
        for (tensor, bytes) in info.outputs.iter().zip(&results) {
            let found = super::interp::decode(tensor, bytes);
            let expected = &expected[&tensor.name];
            let largest = expected.iter().fold(0.0_f32, |m, v| m.max(v.abs()));
            let worst = found.iter().zip(expected).fold(0.0_f32, |m, (a, b)| m.max((a - b).abs()));
            let error = worst / largest;
            assert!(error < tolerance, "{} {}: relative error {error:e}", entry.name, tensor.name);
        }
    }
}

#[test]
fn the_host_computes_every_family_in_f32() {
    for &family in Family::ALL {
        check(&TestModel::tiny(family), Splits::Mono, Precision::F32, 2e-5);
    }
    let biased = TestModel { attention_bias: true, mlp_bias: true, tied: false, ..TestModel::tiny(Family::Llama) };
    check(&biased, Splits::LutDecoderLmhead, Precision::F32, 2e-5);
}

#[test]
fn the_host_computes_quantised_weights() {
    let llama = TestModel::tiny(Family::Llama);
    // Heads of 32: their factor is left to the scores of graphs with blocks, and the host must take it up.
    let wide = TestModel { head_dim: 32, ..TestModel::tiny(Family::Qwen2) };
    for model in [TestModel { tied: false, ..llama.clone() }, llama, wide] {
        // Per-row weights meet float activations; in blocks, activations are rounded to 8 bits too.
        for (weights, tolerance) in [
            (Weights::Bf16, 2e-5),
            (Weights::W8, 2e-5),
            (Weights::W4, 2e-5),
            (Weights::Q8_0, 3e-2),
            (Weights::Q4_0, 3e-2),
        ] {
            check_weights(&model, (Splits::LutDecoderLmhead, Precision::F32, weights), tolerance);
        }
    }
}

#[test]
fn the_host_computes_splits_in_f16() {
    for splits in [Splits::Mono, Splits::DecoderLmhead, Splits::LutDecoderLmhead] {
        check(&TestModel::tiny(Family::Llama), splits, Precision::F16, 5e-3);
    }
}

#[test]
fn a_file_holds_a_tied_table_once() {
    let dir = tempfile::tempdir().unwrap();
    let model = TestModel { vocab: 2000, ..TestModel::tiny(Family::Llama) };
    assert!(model.tied);
    model.write(&dir.path().join("model")).unwrap();
    let table = (model.vocab * model.hidden) as u64;
    for (weights, table) in [(Weights::Float, 2 * table), (Weights::Bf16, 2 * table), (Weights::Q8_0, table)] {
        let bytes = |splits, one_file| -> u64 {
            let options = CompileOptions {
                ars: vec![1, 8],
                cls: vec![32],
                splits,
                one_file,
                weights: Some(weights),
                force: true,
                ..CompileOptions::new(dir.path().join("model"), dir.path().join("bundle"))
            };
            let manifest = compile(&options, &host(), &mut Silent).unwrap();
            manifest.files.iter().filter(|f| f.path.ends_with(".bin")).map(|f| f.bytes).sum()
        };
        let whole = bytes(Splits::Mono, false);
        let [together, apart] = [true, false].map(|one_file| bytes(Splits::DecoderLmhead, one_file));
        assert!(together < whole + table / 2, "{weights}: {together} bytes, uncut {whole}");
        assert!(apart > whole + table, "{weights}: {apart} bytes, uncut {whole}");
    }
}
