//! Files made here, byte by byte; block formats against numbers that `reference.py` printed.

use super::*;
use crate::checkpoint::{Checkpoint, for_each_chunk};
use crate::compile::compile_with;
use crate::family::Family;
use crate::lower::tests::recorder::{FakeTarget, Graph, Held};
use crate::model::Model;
use crate::testmodel::TestModel;
use crate::{CompileOptions, Silent, Weights};
use genie_types::{Dtype, Quant};
use half::f16;
use proptest::prelude::*;

/// A file in the making.
#[derive(Clone, Default)]
pub(crate) struct Draft {
    values: Vec<Vec<u8>>,
    tensors: Vec<(String, Vec<u64>, u32, Vec<u8>)>,
}

fn text(s: &str) -> Vec<u8> {
    [&(s.len() as u64).to_le_bytes()[..], s.as_bytes()].concat()
}

impl Draft {
    fn value(mut self, key: &str, kind: u32, bytes: &[u8]) -> Self {
        self.values.push([&text(key), &kind.to_le_bytes()[..], bytes].concat());
        self
    }

    fn tensor(mut self, name: &str, dims: &[u64], ty: u32, bytes: Vec<u8>) -> Self {
        self.tensors.push((name.into(), dims.to_vec(), ty, bytes));
        self
    }

    fn bytes(&self) -> Vec<u8> {
        let mut file = b"GGUF\x03\0\0\0".to_vec();
        file.extend((self.tensors.len() as u64).to_le_bytes());
        file.extend((self.values.len() as u64).to_le_bytes());
        file.extend(self.values.concat());
        let mut data = Vec::new();
        for (name, dims, ty, bytes) in &self.tensors {
            data.resize(data.len().next_multiple_of(32), 0);
            file.extend(text(name));
            file.extend((dims.len() as u32).to_le_bytes());
            dims.iter().for_each(|d| file.extend(d.to_le_bytes()));
            file.extend(ty.to_le_bytes());
            file.extend((data.len() as u64).to_le_bytes());
            data.extend(bytes);
        }
        file.resize(file.len().next_multiple_of(32), 0);
        file.extend(data);
        file
    }
}

fn draft() -> Draft {
    Draft::default()
        .value("general.architecture", 8, &text("llama"))
        .value("llama.block_count", 4, &2u32.to_le_bytes())
        .value("llama.rope.freq_base", 6, &1e4f32.to_le_bytes())
        .value("tokenizer.ggml.add_bos_token", 7, &[1])
        .value(
            "tokenizer.ggml.tokens",
            9,
            &[&8u32.to_le_bytes()[..], &2u64.to_le_bytes(), &text("a"), &text("b")].concat(),
        )
        .value(
            "tokenizer.ggml.scores",
            9,
            &[&6u32.to_le_bytes()[..], &1u64.to_le_bytes(), &1f32.to_le_bytes()].concat(),
        )
        .tensor("output_norm.weight", &[3], 0, vec![1; 12])
        .tensor("blk.0.attn_q.weight", &[32, 2], 8, vec![2; 68])
}

fn open(bytes: &[u8]) -> Result<Gguf> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    Gguf::open(file.path())
}

#[test]
fn values_and_tensors_come_back() {
    let gguf = open(&draft().bytes()).unwrap();
    let value = |key: &str| &gguf.values[key];
    assert_eq!(value("general.architecture").text(), Some("llama"));
    assert_eq!(value("llama.block_count").unsigned(), Some(2));
    assert_eq!(value("llama.rope.freq_base").number(), Some(1e4));
    assert_eq!(value("tokenizer.ggml.add_bos_token").bool(), Some(true));
    assert_eq!(value("tokenizer.ggml.tokens").texts(), Some(&["a".to_string(), "b".to_string()][..]));
    assert_eq!(value("tokenizer.ggml.scores").numbers(), Some(vec![1.0]));
    let q = &gguf.tensors["blk.0.attn_q.weight"];
    assert_eq!((q.dims.as_slice(), q.ty, q.bytes), (&[2, 32][..], GgmlType::Blocks(BlockFormat::Q8_0), 68));
    assert_eq!(q.offset % 32, 0);
}

#[test]
fn bad_files_are_refused_with_the_reason() {
    let good = draft().bytes();
    let cut = good.len() - 1;
    let cases: [(&str, Vec<u8>, &str); 8] = [
        ("empty", vec![], "4 bytes expected at byte 0, 0 are left"),
        ("foreign", b"\x7fELF0000".to_vec(), "it begins with [7f, 45, 4c, 46], expected `GGUF`"),
        ("old", [b"GGUF\x01\0\0\0", &good[8..]].concat(), "it has version 1, expected little-endian of version 2 or 3"),
        ("turned", [b"GGUF\0\0\0\x03", &good[8..]].concat(), "it has big-endian numbers"),
        ("torn", good[..cut].to_vec(), "tensor `blk.0.attn_q.weight` ends at byte"),
        (
            "half a block",
            Draft::default().tensor("w", &[31, 2], 8, vec![0; 68]).bytes(),
            "tensor `w` has rows of 31 elements, no multiple of 32",
        ),
        ("no axes", Draft::default().tensor("w", &[], 0, vec![]).bytes(), "tensor `w` has 0 axes"),
        ("twice", Draft::default().value("a", 7, &[1]).value("a", 7, &[0]).bytes(), "key `a` comes twice"),
    ];
    for (what, bytes, message) in cases {
        let error = open(&bytes).unwrap_err().to_string();
        assert!(error.contains(message), "{what}: {error}");
    }
}

proptest! {
    #[test]
    fn damage_is_an_error_or_another_file_but_never_a_panic(at in 0usize..400, flip in 1u8.., cut in 0usize..500) {
        let mut bytes = draft().bytes();
        let at = at % bytes.len();
        bytes[at] ^= flip;
        let _ = open(&bytes);
        bytes.truncate(cut);
        let _ = open(&bytes);
    }
}

#[test]
fn blocks_decode_as_the_reference_does() {
    struct Case {
        format: BlockFormat,
        halves: &'static [usize],
        sampled: [f32; 8],
        sum: f64,
    }
    // Printed by `reference.py`.
    let cases = [
        Case {
            format: BlockFormat::Q4_0,
            halves: &[0],
            sampled: [-0.125, 0.125, 0.375, -0.375, 0.0625, 0.1875, 0.3125, -0.5],
            sum: -2.0625,
        },
        Case {
            format: BlockFormat::Q4_1,
            halves: &[0, 2],
            sampled: [0.625, 0.875, 0.125, 0.375, 0.25, 0.375, 0.5625, 0.6875],
            sum: 18.0625,
        },
        Case {
            format: BlockFormat::Q5_0,
            halves: &[0],
            sampled: [0.625, 0.875, -0.875, -0.625, 0.6875, -0.1875, -1.0, 0.125],
            sum: -2.8125,
        },
        Case {
            format: BlockFormat::Q5_1,
            halves: &[0, 2],
            sampled: [1.875, 0.125, 0.375, 1.625, 1.375, 1.5625, 1.6875, 0.8125],
            sum: 35.3125,
        },
        Case {
            format: BlockFormat::Q8_0,
            halves: &[0],
            sampled: [-6.625, -4.375, -2.125, 0.125, 2.375, 4.625, 6.875, -6.875],
            sum: -3.0,
        },
        Case {
            format: BlockFormat::Q4K,
            halves: &[0, 2],
            sampled: [-2.875, 5.125, 7.375, 26.0, 2.125, 31.75, 13.5, -2.875],
            sum: 2683.5,
        },
        Case {
            format: BlockFormat::Q5K,
            halves: &[0, 2],
            sampled: [-2.875, 7.875, 38.375, 31.0, 23.125, 37.5, 13.5, -2.875],
            sum: 6228.5,
        },
        Case {
            format: BlockFormat::Q6K,
            halves: &[208],
            sampled: [40.25, -92.25, -26.0, -12.125, -85.75, 45.75, 21.25, -9.375],
            sum: -927.75,
        },
    ];
    for Case { format, halves, sampled, sum } in cases {
        let mut block: Vec<u8> = (0..format.bytes()).map(|i| (i * 73 + 41) as u8).collect();
        for (n, &at) in halves.iter().enumerate() {
            block[at..at + 2].copy_from_slice(&f16::from_f32(0.0625 * (n + 1) as f32).to_le_bytes());
        }
        let mut numbers = vec![f32::NAN; format.elems()];
        format.decode(&block, &mut numbers);
        let step = numbers.len() / 8;
        let found: Vec<f32> = numbers.iter().copied().skip(3).step_by(step).collect();
        assert_eq!(found, sampled, "{format:?}");
        assert_eq!(numbers.iter().map(|&x| f64::from(x)).sum::<f64>(), sum, "{format:?}");
    }
}

/// Number of a block format in files, and its encoder.
type Encoder = (u32, fn(&[f32]) -> Vec<u8>);

/// The tensors of a checkpoint as llama.cpp's converter names, orders and stores them, matrices as blocks if an encoder is given.
fn converted(dir: &Path, model: &TestModel, blocks: Option<Encoder>) -> Draft {
    let spec = model.spec();
    let name = spec.family.name();
    let number =
        |draft: Draft, key: &str, n: usize| draft.value(&format!("{name}.{key}"), 4, &(n as u32).to_le_bytes());
    let float = |draft: Draft, key: &str, x: f32| draft.value(&format!("{name}.{key}"), 6, &x.to_le_bytes());
    let mut draft = Draft::default().value("general.architecture", 8, &text(name));
    for (key, n) in [
        ("block_count", spec.n_layers),
        ("embedding_length", spec.hidden),
        ("feed_forward_length", spec.ffn),
        ("attention.head_count", spec.n_heads),
        ("attention.head_count_kv", spec.n_kv_heads),
        ("attention.key_length", spec.head_dim),
        ("context_length", 4096),
    ] {
        draft = number(draft, key, n);
    }
    draft = float(draft, "attention.layer_norm_rms_epsilon", spec.rms_eps);
    draft = float(draft, "rope.freq_base", spec.rope.theta as f32);
    let tokens: Vec<u8> = (0..spec.vocab).flat_map(|i| text(&format!("t{i}"))).collect();
    let list = |kind: u32, n: usize, bytes: &[u8]| [&kind.to_le_bytes()[..], &(n as u64).to_le_bytes(), bytes].concat();
    draft = draft
        .value("tokenizer.ggml.model", 8, &text("gpt2"))
        .value("tokenizer.ggml.tokens", 9, &list(8, spec.vocab, &tokens))
        .value("tokenizer.ggml.merges", 9, &list(8, 0, &[]))
        .value("tokenizer.ggml.eos_token_id", 4, &257u32.to_le_bytes());
    let checkpoint = Checkpoint::open(dir).unwrap();
    for (name, entry) in checkpoint.tensors() {
        let mut values = Vec::new();
        for_each_chunk(&checkpoint, name, entry, |run| {
            values.extend_from_slice(run);
            Ok(())
        })
        .unwrap();
        if model.family == Family::Llama && (name.contains("q_proj") || name.contains("k_proj")) {
            values = paired(&values, values.len() / entry.dims[0], spec.head_dim);
        }
        let dims: Vec<u64> = entry.dims.iter().rev().map(|&d| d as u64).collect();
        let theirs = (0..spec.n_layers)
            .flat_map(their_names)
            .chain(["token_embd.weight", "output_norm.weight", "output.weight"].map(String::from))
            .find(|theirs| hugging_face_name(theirs).as_deref() == Some(name.as_str()))
            .unwrap_or_else(|| panic!("`{name}` has a name there"));
        draft = match blocks.filter(|_| dims.len() == 2) {
            Some((ty, encode)) => draft.tensor(&theirs, &dims, ty, encode(&values)),
            None => draft.tensor(&theirs, &dims, 0, values.iter().flat_map(|v| v.to_le_bytes()).collect()),
        };
    }
    draft
}

fn their_names(layer: usize) -> impl Iterator<Item = String> {
    let parts = "attn_norm attn_q attn_k attn_v attn_q_norm attn_k_norm attn_output ffn_norm ffn_gate ffn_up ffn_down";
    let named = move |part: &str| ["weight", "bias"].map(|end| format!("blk.{layer}.{part}.{end}"));
    parts.split(' ').flat_map(named).collect::<Vec<_>>().into_iter()
}

/// Rows of each head as llama.cpp orders them: 0, d/2, 1, d/2 + 1, ...
fn paired(values: &[f32], cols: usize, head_dim: usize) -> Vec<f32> {
    let rows: Vec<&[f32]> = values.chunks(cols).collect();
    let order =
        |head: usize| (0..head_dim / 2).flat_map(move |j| [0, 1].map(|p| head * head_dim + p * head_dim / 2 + j));
    (0..rows.len() / head_dim).flat_map(order).flat_map(|row| rows[row].iter().copied()).collect()
}

fn q8_0(values: &[f32]) -> Vec<u8> {
    let block = |block: &[f32]| {
        let scale = f16::from_f32(block.iter().fold(0.0f32, |m, v| m.max(v.abs())) / 127.0);
        let code = |v: &f32| ((v / scale.to_f32()).round().clamp(-127.0, 127.0) as i8).cast_unsigned();
        scale.to_le_bytes().into_iter().chain(block.iter().map(code)).collect::<Vec<u8>>()
    };
    values.chunks(32).flat_map(block).collect()
}

fn q4_0(values: &[f32]) -> Vec<u8> {
    let block = |block: &[f32]| {
        let scale = f16::from_f32(block.iter().fold(0.0f32, |m, v| if v.abs() > m.abs() { *v } else { m }) / -8.0);
        let code = |v: f32| (v / scale.to_f32() + 8.0).round().clamp(0.0, 15.0) as u8;
        scale
            .to_le_bytes()
            .into_iter()
            .chain((0..16).map(|i| code(block[i]) | code(block[i + 16]) << 4))
            .collect::<Vec<u8>>()
    };
    values.chunks(32).flat_map(block).collect()
}

/// Scales and values of a tensor's blocks, one after the other.
type Quantised = (Vec<f32>, Vec<i8>);

fn of_file(file: &Path, name: &str, head_dim: usize, format: BlockFormat) -> Quantised {
    let checkpoint = Checkpoint::of_gguf(&Gguf::open(file).unwrap(), head_dim).unwrap();
    let mut found = Quantised::default();
    crate::checkpoint::for_each_raw(&checkpoint, name, &checkpoint.tensors()[name], |raw| {
        for block in raw.chunks(format.bytes()) {
            let mut q = [0; 32];
            found.0.push(format.unpack(block, &mut q).to_f32());
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
    // 1 / sqrt(16) is a power of two, the others are not.
    for head_dim in [16, 32, 96, 128] {
        for (encoder, format, weights) in [
            ((8, q8_0 as fn(&[f32]) -> Vec<u8>), BlockFormat::Q8_0, Weights::Q8_0),
            ((2, q4_0), BlockFormat::Q4_0, Weights::Q4_0),
            // Four bits fit into eight.
            ((2, q4_0), BlockFormat::Q4_0, Weights::Q8_0),
        ] {
            for family in [Family::Llama, Family::Qwen2] {
                let model = TestModel { head_dim, tied: false, ..TestModel::tiny(family) };
                let place = tempfile::tempdir().unwrap();
                let (dir, file) = (place.path().join("model"), place.path().join("model.gguf"));
                model.write(&dir).unwrap();
                std::fs::write(&file, converted(&dir, &model, Some(encoder)).bytes()).unwrap();
                let mut options = CompileOptions::new(&file, place.path().join("bundle"));
                (options.ars, options.cls, options.weights) = (vec![1], vec![16], weights);
                let mut target = FakeTarget::default();
                compile_with(&options, &mut target, &mut Silent).unwrap();
                let graph = &target.saved.take()[0][0];
                let scaled =
                    graph.nodes.iter().filter(|n| n.params.is_empty() && n.op == "ElementWiseMultiply").count();
                assert_eq!(scaled, model.layers * if head_dim == 16 { 2 } else { 3 }, "scores are scaled if need be");
                for part in ["q", "k", "v", "o"] {
                    let name = format!("model.layers.1.self_attn.{part}_proj.weight");
                    let (mut scales, q) = of_file(&file, &name, head_dim, format);
                    if part == "q" && head_dim == 16 {
                        scales.iter_mut().for_each(|scale| *scale *= 0.25);
                    }
                    assert!(of_graph(graph, &name) == (scales, q), "{family} {head_dim} {weights}: {name}");
                }
            }
        }
    }
}

#[test]
fn a_gguf_file_and_its_checkpoint_give_the_same_graphs() {
    for &family in Family::ALL {
        for tied in [true, false] {
            let model = TestModel { tied, ..TestModel::tiny(family) };
            let place = tempfile::tempdir().unwrap();
            let dir = place.path().join("model");
            model.write(&dir).unwrap();
            let file = place.path().join("model.gguf");
            std::fs::write(&file, converted(&dir, &model, None).bytes()).unwrap();
            let compiled = |from: &Path, weights| {
                let mut options = CompileOptions::new(from, place.path().join("bundle"));
                (options.ars, options.cls, options.weights, options.force) = (vec![1, 4], vec![16], weights, true);
                let mut target = FakeTarget::default();
                compile_with(&options, &mut target, &mut Silent).unwrap();
                target.saved.take()
            };
            let expected = compiled(&dir, Weights::Float);
            assert!(compiled(&file, Weights::Float) == expected, "{family} tied: {tied}");

            // Blocks of the file's own format are copied bit for bit: rounding them again finds the same values.
            let blocks = place.path().join("q8_0.gguf");
            std::fs::write(&blocks, converted(&dir, &model, Some((8, q8_0))).bytes()).unwrap();
            assert!(compiled(&blocks, Weights::Q8_0) == compiled(&dir, Weights::Q8_0), "{family} tied: {tied}, blocks");
        }
    }
}

#[test]
fn what_the_metadata_lacks_or_has_too_much_of_is_named() {
    let open = |draft: Draft| {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("m.gguf");
        std::fs::write(&file, draft.bytes()).unwrap();
        let error = Model::open(&file).unwrap_err().to_string();
        error.replace(&*file.to_string_lossy(), "m.gguf")
    };
    let arch = |name: &str| Draft::default().value("general.architecture", 8, &text(name));
    assert!(open(arch("gemma3")).starts_with("unsupported architecture `gemma3`"));
    assert!(open(arch("llama")).contains("no `tokenizer.ggml.model`"));
    let yarn = arch("llama").value("llama.rope.scaling.type", 8, &text("yarn"));
    assert!(open(yarn).contains("found yarn"), "scaling");
    let tokenizer = arch("llama")
        .value("tokenizer.ggml.model", 8, &text("gpt2"))
        .value("tokenizer.ggml.tokens", 9, &[&8u32.to_le_bytes()[..], &1u64.to_le_bytes(), &text("a")].concat())
        .value("tokenizer.ggml.merges", 9, &[&8u32.to_le_bytes()[..], &0u64.to_le_bytes()].concat());
    let error = open(tokenizer);
    assert!(error.contains("`m.gguf` is not a supported GGUF file: its metadata has no value for"), "{error}");
}
