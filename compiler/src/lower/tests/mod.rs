//! What is lowered, looked at in a recorder; and what it computes, against a plain model in double.

mod as_they_are;
mod host;
pub(crate) mod interp;
pub(crate) mod recorder;
pub(crate) mod reference;

use crate::family::Family;
use crate::testing::edit_tensors;
use crate::testmodel::{FileDtype, TestModel};
use crate::{CompileOptions, Manifest, Precision, Silent, Splits, Weights, compile::compile_with};
use genie_types::Dtype;
use interp::RecordedModel;
use recorder::{FakeTarget, Graph, Held};
use reference::Reference;
use std::path::Path;

/// A compiled test model: the recorded contexts, one per split.
struct Compiled {
    dir: tempfile::TempDir,
    contexts: Vec<Vec<Graph>>,
    manifest: Manifest,
}

fn compiled(model: &TestModel, change: impl FnOnce(&mut CompileOptions)) -> Compiled {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("model");
    model.write(&source).unwrap();
    let mut options = CompileOptions::new(source, dir.path().join("bundle"));
    (options.ars, options.cls, options.precision) = (vec![1, 4, 16], vec![16, 24], Precision::F32);
    change(&mut options);
    let mut target = FakeTarget::default();
    let manifest = compile_with(&options, &mut target, &mut Silent).unwrap();
    let contexts = target.saved.take();
    Compiled { dir, contexts, manifest }
}

/// Runs `tokens` through the recorded graphs, `chunk` at a time on the AR given, and gives every row of logits.
fn run(model: &TestModel, contexts: &[Vec<Graph>], ar: usize, cl: usize, tokens: &[u32]) -> Vec<Vec<f32>> {
    let mut model_run = RecordedModel::new(model, contexts, ar, cl);
    tokens.chunks(ar).flat_map(|chunk| model_run.step(chunk)).collect()
}

/// Largest difference over the largest reference value.
fn relative_error(found: &[Vec<f32>], expected: &[Vec<f64>]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let largest = expected.iter().flatten().fold(0.0_f64, |m, v| m.max(v.abs()));
    let pairs = found.iter().flatten().zip(expected.iter().flatten());
    pairs.fold(0.0_f64, |m, (f, e)| m.max((f64::from(*f) - e).abs())) / largest
}

fn check_logits(model: &TestModel, change: impl FnOnce(&mut CompileOptions), tolerance: f64) {
    let compiled = compiled(model, change);
    let reference = Reference::open(&compiled.dir.path().join("model"));
    let tokens: Vec<u32> = (0..16).map(|i| (i * 37 + 11) % model.vocab as u32).collect();
    let expected = reference.logits(&tokens);
    // Token by token, in chunks with a padded tail, and all at once without any cache.
    for (ar, cl) in [(1, 24), (4, 24), (16, 16)] {
        let tokens = if ar == 4 { &tokens[..14] } else { &tokens[..] };
        let found = run(model, &compiled.contexts, ar, cl, tokens);
        let error = relative_error(&found, &expected[..tokens.len()]);
        assert!(error < tolerance, "{:?} ar{ar}_cl{cl}: relative error {error:e}", model.family);
    }
}

#[test]
fn graphs_compute_the_model_they_were_lowered_from() {
    for &family in Family::ALL {
        for tied in [true, false] {
            check_logits(&TestModel { tied, ..TestModel::tiny(family) }, |_| {}, 2e-5);
        }
    }
    let biased = TestModel { attention_bias: true, mlp_bias: true, ..TestModel::tiny(Family::Llama) };
    check_logits(&biased, |_| {}, 2e-5);
    for splits in [Splits::DecoderLmhead, Splits::LutDecoderLmhead] {
        let gpt2 = TestModel { layers: 3, ..TestModel::tiny(Family::Gpt2) };
        check_logits(&gpt2, |o| (o.splits, o.layers_per_split) = (splits, Some(2)), 2e-5);
    }
    let wide_heads = TestModel { head_dim: 24, kv_heads: 1, ..TestModel::tiny(Family::Llama) };
    check_logits(&wide_heads, |_| {}, 2e-5);
    let biased_qwen = TestModel { attention_bias: true, ..TestModel::tiny(Family::Qwen3) };
    check_logits(&biased_qwen, |_| {}, 2e-5);
}

#[test]
fn splits_and_half_precision_compute_the_same() {
    let model = TestModel { layers: 3, ..TestModel::tiny(Family::Llama) };
    for splits in [Splits::DecoderLmhead, Splits::LutDecoderLmhead] {
        for per_split in [None, Some(1), Some(2)] {
            check_logits(&model, |o| (o.splits, o.layers_per_split) = (splits, per_split), 2e-5);
        }
    }
    // The weights alone are rounded here: a half has 11 bits.
    check_logits(&model, |o| o.precision = Precision::F16, 5e-3);
    let half = TestModel { dtype: FileDtype::Bf16, shards: 3, ..model };
    check_logits(&half, |_| {}, 2e-5);
}

#[test]
fn quantised_weights_compute_the_same_up_to_rounding() {
    for (family, splits) in [
        (Family::Llama, Splits::Mono),
        (Family::Qwen2, Splits::DecoderLmhead),
        (Family::Qwen3, Splits::LutDecoderLmhead),
    ] {
        for tied in [true, false] {
            let model = TestModel { tied, ..TestModel::tiny(family) };
            // A code is off by half of 1/127 of its row's largest, at most; the errors of many add up as noise.
            check_logits(&model, |o| (o.weights, o.splits) = (Some(Weights::W8), splits), 3e-2);
        }
    }
}

#[test]
fn graphs_for_a_chip_compute_the_same_with_convolutions() {
    let htp = crate::HtpOptions::for_target("sm8650").unwrap();
    for (family, splits, weights, tolerance) in [
        // In float16 the weights alone are rounded here.
        (Family::Llama, Splits::Mono, Weights::Float, 5e-3),
        (Family::Qwen2, Splits::DecoderLmhead, Weights::W8, 3e-2),
        (Family::Qwen3, Splits::LutDecoderLmhead, Weights::W8, 3e-2),
    ] {
        for tied in [true, false] {
            let model = TestModel { tied, mlp_bias: true, ..TestModel::tiny(family) };
            let choose = |o: &mut CompileOptions| {
                (o.htp, o.precision, o.splits, o.weights) = (Some(htp), Precision::F16, splits, Some(weights));
            };
            check_logits(&model, choose, tolerance);
            let graph = &compiled(&model, choose).contexts.pop().unwrap()[0];
            assert!(graph.nodes.iter().all(|n| n.op != "FullyConnected"));
            let head = graph.tensors.iter().find(|t| t.info.name == "lm_head_weight").unwrap();
            assert_eq!(head.info.dims, [1, 1, model.hidden, model.vocab], "a copy of its own where tied");
        }
    }
}

#[test]
fn only_linear_weights_are_quantised() {
    let model = TestModel { tied: true, ..TestModel::tiny(Family::Qwen2) };
    let compiled = compiled(&model, |o| (o.weights, o.precision) = (Some(Weights::W8), Precision::F16));
    for graph in &compiled.contexts[0] {
        for tensor in graph.tensors.iter().filter(|t| matches!(t.held, Held::Constant(_))) {
            let linear = tensor.info.name.ends_with("_proj_weight") || tensor.info.name == "lm_head_weight";
            let expected = if linear { Dtype::SFixed8 } else { Dtype::F16 };
            assert_eq!(tensor.info.dtype, expected, "{}", tensor.info.name);
        }
        // The embedding table stays float, beside the quantised head of the same weights.
        assert!(graph.tensors.iter().any(|t| t.info.name == "model_embed_tokens_weight"));
        assert!(graph.tensors.iter().any(|t| t.info.name == "lm_head_weight"));
    }
    assert_eq!(compiled.manifest.options.weights, Weights::W8);
}

#[test]
fn weights_that_no_code_can_stand_for_are_refused_by_name() {
    let refused = |value: f32, precision: Precision| {
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join("model");
        TestModel::tiny(Family::Llama).write(&source).unwrap();
        edit_tensors(&source.join("model.safetensors"), |header, data| {
            let first = header["model.layers.1.mlp.up_proj.weight"]["data_offsets"][0].as_u64().unwrap() as usize;
            // Row 3, column 5 of 64.
            data[first + 4 * (3 * 64 + 5)..][..4].copy_from_slice(&value.to_le_bytes());
        });
        let mut options = CompileOptions::new(source, dir.path().join("bundle"));
        (options.ars, options.cls, options.precision) = (vec![1], vec![16], precision);
        options.weights = Some(Weights::W8);
        compile_with(&options, &mut FakeTarget::default(), &mut Silent).map_err(|error| error.to_string())
    };
    let at = "tensor `model.layers.1.mlp.up_proj.weight` has";
    for (value, shown) in [(f32::NAN, "NaN"), (f32::INFINITY, "inf"), (f32::NEG_INFINITY, "-inf")] {
        let message = format!("{at} {shown} at index [3, 5]: weights must be finite");
        assert_eq!(refused(value, Precision::F16).unwrap_err(), message);
    }
    let message = format!("{at} 70000 at index [3, 5], which float16 cannot hold (largest 65504)");
    assert_eq!(refused(70_000.0, Precision::F16).unwrap_err(), message);
    assert!(refused(70_000.0, Precision::F32).is_ok(), "a float32 scale holds it");
}

#[test]
fn the_contract_tensors_have_their_shapes() {
    let model = TestModel::tiny(Family::Llama);
    let compiled = compiled(&model, |o| o.precision = Precision::F16);
    let [graphs] = compiled.contexts.as_slice() else { panic!("one split makes one context") };
    let names: Vec<&str> = graphs.iter().map(|g| g.name.as_str()).collect();
    let expected = ["ar1_cl16_1_of_1", "ar4_cl16_1_of_1", "ar16_cl16_1_of_1", "ar1_cl24_1_of_1", "ar4_cl24_1_of_1"];
    assert_eq!(names, [&expected[..], &["ar16_cl24_1_of_1"]].concat());
    let shapes = |graph: &Graph, held: fn(&Held) -> bool| -> Vec<String> {
        let tensors = graph.tensors.iter().filter(|t| held(&t.held));
        tensors.map(|t| format!("{} {:?} {}", t.info.name, t.info.dims, t.info.dtype)).collect()
    };
    assert_eq!(
        shapes(&graphs[4], |h| *h == Held::Input),
        [
            "input_ids [1, 4] int32",
            "attention_mask [1, 1, 4, 24] float16",
            "position_ids_cos [1, 1, 4, 8] float16",
            "position_ids_sin [1, 1, 4, 8] float16",
            "past_key_0_in [2, 1, 16, 20] float16",
            "past_value_0_in [2, 1, 20, 16] float16",
            "past_key_1_in [2, 1, 16, 20] float16",
            "past_value_1_in [2, 1, 20, 16] float16",
        ]
    );
    assert_eq!(
        shapes(&graphs[4], |h| *h == Held::Output),
        [
            "past_key_0_out [2, 1, 16, 4] float16",
            "past_value_0_out [2, 1, 4, 16] float16",
            "past_key_1_out [2, 1, 16, 4] float16",
            "past_value_1_out [2, 1, 4, 16] float16",
            "logits [1, 4, 320] float16",
        ]
    );
    // AR == CL: no past goes in, new rows still come out.
    assert_eq!(shapes(&graphs[2], |h| *h == Held::Input).len(), 4);
    assert_eq!(shapes(&graphs[2], |h| *h == Held::Output).len(), 5);
}

#[test]
fn a_layer_is_lowered_to_the_dataflow_that_backends_fuse() {
    let model = TestModel { layers: 1, ..TestModel::tiny(Family::Qwen3) };
    let compiled = compiled(&model, |_| {});
    let graph = &compiled.contexts[0][4];
    let ops: Vec<&str> = graph.nodes.iter().map(|n| n.op.as_str()).collect();
    let expected = "Reshape Reshape Gather RmsNorm \
        FullyConnected Reshape RmsNorm Reshape Transpose RotaryEmbedding \
        FullyConnected Reshape RmsNorm Reshape Transpose FullyConnected Reshape Transpose RotaryEmbedding Transpose Reshape Reshape Concat Concat \
        Reshape MatMul ElementWiseAdd Softmax MatMul Reshape Transpose Reshape FullyConnected Reshape ElementWiseAdd \
        RmsNorm FullyConnected FullyConnected Sigmoid ElementWiseMultiply ElementWiseMultiply FullyConnected Reshape \
        ElementWiseAdd RmsNorm FullyConnected Reshape";
    let mut ops_sorted = ops.clone();
    let mut expected: Vec<&str> = expected.split_whitespace().collect();
    // The gather comes before or after the two reshapes of the position tables: no edge orders them.
    ops_sorted[..3].sort_unstable();
    expected[..3].sort_unstable();
    assert_eq!(ops_sorted, expected);
}

#[test]
fn each_weight_is_read_once_and_given_to_every_graph() {
    let model = TestModel::tiny(Family::Llama);
    let compiled = compiled(&model, |_| {});
    let constants = |graph: &Graph| -> Vec<(String, Vec<u8>)> {
        let all = graph.tensors.iter().filter_map(|t| match &t.held {
            Held::Constant(bytes) => Some((t.info.name.clone(), bytes.clone())),
            _ => None,
        });
        all.collect()
    };
    let first = constants(&compiled.contexts[0][0]);
    // Embedding, final norm, nine tensors a layer; the tied head is the embedding's own tensor.
    assert_eq!(first.len(), 2 + 9 * model.layers);
    assert_eq!(first[0].0, "model_embed_tokens_weight");
    for graph in &compiled.contexts[0][1..] {
        assert_eq!(constants(graph), first, "{}", graph.name);
    }
}

#[test]
fn a_tied_head_of_its_own_split_has_the_embedding_bytes() {
    let model = TestModel::tiny(Family::Llama);
    let compiled = compiled(&model, |o| o.splits = Splits::LutDecoderLmhead);
    let table = |context: &[Graph]| {
        let tensor = context[0].tensors.iter().find(|t| t.info.name == "model_embed_tokens_weight").unwrap().clone();
        tensor.held
    };
    let [lut, _, lmhead] = compiled.contexts.as_slice() else { panic!("three splits") };
    assert_eq!(table(lut), table(lmhead));
    assert!(matches!(table(lut), Held::Constant(bytes) if bytes.len() == 4 * model.vocab * model.hidden));
    let files: Vec<&str> = compiled.manifest.files.iter().map(|f| f.path.as_str()).collect();
    assert_eq!(files, ["lut.bin", "decoder.bin", "lmhead.bin", "tokenizer.json", "genie_config.json"]);
}

#[test]
fn split_wires_have_stable_names() {
    let model = TestModel { layers: 5, ..TestModel::tiny(Family::Qwen2) };
    let compiled = compiled(&model, |o| (o.splits, o.layers_per_split) = (Splits::LutDecoderLmhead, Some(2)));
    let wire = |graph: &Graph| {
        let name = |held: fn(&Held) -> bool| {
            let mut tensors = graph.tensors.iter().filter(|t| held(&t.held) && t.info.dims == [1, 4, model.hidden]);
            tensors.next().map_or("-".to_string(), |t| t.info.name.clone())
        };
        format!("{}: {} -> {}", graph.name, name(|h| *h == Held::Input), name(|h| *h == Held::Output))
    };
    let wires: Vec<String> = compiled.contexts.iter().map(|graphs| wire(&graphs[4])).collect();
    assert_eq!(
        wires,
        [
            "ar4_cl24_1_of_5: - -> model_embed_tokens_out",
            "ar4_cl24_2_of_5: model_embed_tokens_out -> model_layers_1_out",
            "ar4_cl24_3_of_5: model_layers_1_out -> model_layers_3_out",
            "ar4_cl24_4_of_5: model_layers_3_out -> model_layers_4_out",
            "ar4_cl24_5_of_5: model_layers_4_out -> -",
        ]
    );
    let files: Vec<&str> = compiled.manifest.files.iter().map(|f| f.path.as_str()).take(5).collect();
    assert_eq!(files, ["lut.bin", "decoder_1.bin", "decoder_2.bin", "decoder_3.bin", "lmhead.bin"]);
}

#[test]
fn more_than_nine_splits_stay_in_order_by_name() {
    let model = TestModel { layers: 9, ..TestModel::tiny(Family::Llama) };
    let compiled = compiled(&model, |o| {
        (o.ars, o.cls, o.splits, o.layers_per_split) = (vec![1], vec![16], Splits::LutDecoderLmhead, Some(1));
    });
    let names: Vec<&str> = compiled.manifest.graphs.iter().map(|g| g.name.as_str()).collect();
    assert_eq!((names.len(), names[0], names[10]), (11, "ar1_cl16_01_of_11", "ar1_cl16_11_of_11"));
    assert!(names.is_sorted());
}

#[test]
fn the_demo_shape_compiles() {
    let model = TestModel {
        layers: 6,
        hidden: 192,
        heads: 6,
        kv_heads: 2,
        head_dim: 32,
        ffn: 512,
        vocab: 2048,
        dtype: FileDtype::F16,
        ..TestModel::tiny(Family::Llama)
    };
    let compiled = compiled(&model, |o| (o.ars, o.cls, o.precision) = (vec![1, 32, 128], vec![512], Precision::F16));
    assert_eq!(compiled.manifest.graphs.len(), 3);
    let nodes = compiled.contexts[0][0].nodes.len();
    assert_eq!(nodes, 6 + 37 * 6);
    let bundle = compiled.dir.path().join("bundle");
    assert_eq!(Manifest::read(&bundle).unwrap(), compiled.manifest);
    compiled.manifest.verify_files(&bundle).unwrap();
    assert!(Path::new(&bundle).join("model.bin").is_file());
}
