//! Graphs of GGUF files against those of the checkpoints that they were made of.

use super::super::BlockFormat;
use super::*;
use crate::Weights;
use crate::checkpoint::Checkpoint;
use crate::lower::tests::recorder::{Graph, Held};
use genie_types::{Dtype, Quant};
use std::path::Path;

/// Scales and values of a tensor's blocks, one after the other.
type Quantised = (Vec<f32>, Vec<i8>);

fn of_file(file: &Path, name: &str, head_dim: usize, format: BlockFormat) -> Quantised {
    let checkpoint = Checkpoint::of_gguf(&Gguf::open(file).unwrap(), head_dim).unwrap();
    let mut found = Quantised::default();
    crate::checkpoint::for_each_raw(&checkpoint, name, &checkpoint.tensors()[name], &mut |_| Ok(()), |raw| {
        for block in raw.chunks(format.bytes()) {
            let mut q = [0; 32];
            found.0.push(format.unpack(block, &mut q));
            found.1.extend(q);
        }
        Ok(())
    })
    .unwrap();
    found
}

fn of_graph(graph: &Graph, name: &str) -> Quantised {
    let tensor = graph.tensors.iter().find(|t| t.info.name == name.replace('.', "_")).unwrap();
    let (Held::Constant(bytes), Quant::Block { scale_offsets, .. }) = (&tensor.held, &tensor.info.quant) else {
        panic!("{name}: {:?}", tensor.info)
    };
    let q = match tensor.info.dtype {
        Dtype::SFixed8 => bytes.iter().map(|b| b.cast_signed()).collect(),
        _ => bytes.iter().flat_map(|b| [(b << 4).cast_signed() >> 4, b.cast_signed() >> 4]).collect(),
    };
    (scale_offsets.iter().map(|(scale, _)| *scale).collect(), q)
}

#[test]
fn blocks_are_copied_bit_for_bit_at_any_head_width() {
    for head_dim in [16, 32, 96, 128] {
        for (matrices, format, weights) in [
            (Matrices::Q8_0, BlockFormat::Q8_0, Weights::Q8_0),
            (Matrices::Q4_0, BlockFormat::Q4_0, Weights::Q4_0),
            // Four bits fit into eight.
            (Matrices::Q4_0, BlockFormat::Q4_0, Weights::Q8_0),
        ] {
            for family in [Family::Llama, Family::Qwen2] {
                let model = TestModel { head_dim, tied: false, ..TestModel::tiny(family) };
                let place = tempfile::tempdir().unwrap();
                let file = place.path().join("model.gguf");
                std::fs::write(&file, model.gguf(matrices).unwrap().bytes()).unwrap();
                let mut options = CompileOptions::new(&file, place.path().join("bundle"));
                (options.ars, options.cls, options.weights) = (vec![1], vec![16], Some(weights));
                let mut target = FakeTarget::default();
                compile_with(&options, &mut target, &mut Silent).unwrap();
                let graph = &target.saved.take()[0][0];
                let scaled =
                    graph.nodes.iter().filter(|n| n.params.is_empty() && n.op == "ElementWiseMultiply").count();
                assert_eq!(scaled, 3 * model.layers, "two of the MLP's, and the scores' factor");
                for part in ["q", "k", "v", "o"] {
                    let name = format!("model.layers.1.self_attn.{part}_proj.weight");
                    assert!(
                        of_graph(graph, &name) == of_file(&file, &name, head_dim, format),
                        "{family} {head_dim} {weights}: {name}"
                    );
                }
            }
        }
    }
}

/// Of a file of its own, and beside blocks.
#[test]
fn bfloat16_is_copied_bit_for_bit() {
    let model = TestModel { head_dim: 32, ffn: 256, tied: false, ..TestModel::tiny(Family::Qwen2) };
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("model.gguf");
    let (all, mut bfloats, mut some) =
        (model.gguf(Matrices::Bf16).unwrap(), model.gguf(Matrices::Bf16).unwrap(), model.gguf(Matrices::Q4_0).unwrap());
    for name in ["token_embd.weight", "blk.0.attn_v.weight", "output.weight"] {
        *some.tensor(name) = bfloats.tensor(name).clone();
    }
    for (draft, weights) in [(all, Weights::Bf16), (some, Weights::Q4_0)] {
        std::fs::write(&file, draft.bytes()).unwrap();
        let checkpoint = Checkpoint::of_gguf(&Gguf::open(&file).unwrap(), model.head_dim).unwrap();
        let mut options = CompileOptions::new(&file, place.path().join("bundle"));
        (options.ars, options.cls, options.force) = (vec![1], vec![16], true);
        let mut target = FakeTarget::default();
        let manifest = compile_with(&options, &mut target, &mut Silent).unwrap();
        assert_eq!(manifest.options.weights, weights);
        let graph = &target.saved.take()[0][0];
        for name in
            ["model.embed_tokens", "model.layers.0.self_attn.v_proj", "lm_head", "model.layers.1.self_attn.q_proj"]
        {
            let name = format!("{name}.weight");
            let mut expected = Vec::new();
            let entry = &checkpoint.tensors()[&name];
            crate::checkpoint::for_each_raw(&checkpoint, &name, entry, &mut |_| Ok(()), |raw| {
                expected.extend_from_slice(raw);
                Ok(())
            })
            .unwrap();
            let found = graph.tensors.iter().find(|t| t.info.name == name.replace('.', "_")).unwrap();
            if name.contains("q_proj") && weights == Weights::Q4_0 {
                assert_eq!(found.info.dtype, Dtype::SFixed4);
                continue;
            }
            assert_eq!(found.info.dtype, Dtype::Bf16, "{name}");
            assert!(matches!(&found.held, Held::Constant(bytes) if **bytes == *expected), "{weights}: {name}");
        }
    }
}

/// Layers, table and head in Q8_0 of a file that is taken as `q4_0`.
#[test]
fn eight_bits_among_four_are_copied_bit_for_bit() {
    let model = TestModel { ffn: 256, tied: false, ..TestModel::tiny(Family::Llama) };
    let (mut draft, mut eight) = (model.gguf(Matrices::Q4_0).unwrap(), model.gguf(Matrices::Q8_0).unwrap());
    for name in ["token_embd.weight", "blk.0.attn_q.weight", "blk.1.attn_v.weight"] {
        *draft.tensor(name) = eight.tensor(name).clone();
    }
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("model.gguf");
    std::fs::write(&file, draft.bytes()).unwrap();
    for (weights, copied) in [(None, true), (Some(Weights::Q4_0), false)] {
        let mut options = CompileOptions::new(&file, place.path().join("bundle"));
        (options.ars, options.cls, options.weights, options.force) = (vec![1], vec![16], weights, true);
        let mut target = FakeTarget::default();
        compile_with(&options, &mut target, &mut Silent).unwrap();
        let graph = &target.saved.take()[0][0];
        for name in ["0.self_attn.q", "1.self_attn.v"] {
            let name = format!("model.layers.{name}_proj.weight");
            let expected = of_file(&file, &name, model.head_dim, BlockFormat::Q8_0);
            assert_eq!(of_graph(graph, &name) == expected, copied, "{weights:?}: {name}");
        }
        let table = "model.embed_tokens.weight";
        let expected = of_file(&file, table, model.head_dim, BlockFormat::Q8_0);
        assert!(of_graph(graph, table) == expected, "tables have eight bits in either: {weights:?}");
        let four = "model.layers.1.self_attn.q_proj.weight";
        let expected = of_file(&file, four, model.head_dim, BlockFormat::Q4_0);
        assert!(of_graph(graph, four) == expected, "{weights:?}: {four}");
    }
}

/// The tensors of a first graph that are not those of a second one.
fn differing(a: &[Vec<Graph>], b: &[Vec<Graph>]) -> Vec<String> {
    let tensors = |graphs: &[Vec<Graph>]| graphs.iter().flatten().next().map_or(vec![], |graph| graph.tensors.clone());
    tensors(a).into_iter().zip(tensors(b)).filter(|(a, b)| a != b).map(|(a, _)| a.info.name).collect()
}

#[test]
fn a_gguf_file_and_its_checkpoint_give_the_same_graphs() {
    for family in Family::of_gguf() {
        for tied in [true, false] {
            // Every fourth layer of SmolLM3 does not rotate, whatever a file says.
            let layers = if family == Family::SmolLm3 { 4 } else { 2 };
            let model = TestModel { tied, layers, no_rope_interval: 4, ..TestModel::tiny(family) };
            let place = tempfile::tempdir().unwrap();
            let dir = place.path().join("model");
            model.write(&dir).unwrap();
            let file = place.path().join("model.gguf");
            std::fs::write(&file, model.gguf(Matrices::F32).unwrap().bytes()).unwrap();
            let compiled = |from: &Path, weights| {
                let mut options = CompileOptions::new(from, place.path().join("bundle"));
                (options.ars, options.cls, options.weights, options.force) =
                    (vec![1, 4], vec![16], Some(weights), true);
                let mut target = FakeTarget::default();
                compile_with(&options, &mut target, &mut Silent).unwrap();
                target.saved.take()
            };
            let expected = compiled(&dir, Weights::Float);
            assert!(compiled(&file, Weights::Float) == expected, "{family} tied: {tied}");

            // Blocks of the file's own format are copied bit for bit: rounding them again finds the same values.
            let blocks = place.path().join("q8_0.gguf");
            std::fs::write(&blocks, model.gguf(Matrices::Q8_0).unwrap().bytes()).unwrap();
            let (found, expected) = (compiled(&blocks, Weights::Q8_0), compiled(&dir, Weights::Q8_0));
            assert!(found == expected, "{family} tied: {tied}, blocks: {:?}", differing(&found, &expected));
        }
    }
}
