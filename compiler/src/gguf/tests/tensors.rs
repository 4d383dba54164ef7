//! Tensors: missing, extra, of another shape or type, not finite.

use super::*;
use crate::CompileOptions;
use crate::Weights;
use crate::testmodel::DraftTensor;

/// Section 4: 29 numbers of types were reported as numbers.
#[test]
fn each_quantisation_that_is_not_read_is_named() {
    let q = "blk.1.ffn_up.weight";
    for (ty, name) in [
        (9, "Q8_1"),
        (15, "Q8_K"),
        (16, "IQ2_XXS"),
        (17, "IQ2_XS"),
        (18, "IQ3_XXS"),
        (19, "IQ1_S"),
        (21, "IQ3_S"),
        (22, "IQ2_S"),
        (24, "I8"),
        (28, "F64"),
        (29, "IQ1_M"),
        (31, "Q4_0_4_4"),
        (34, "TQ1_0"),
        (35, "TQ2_0"),
        (40, "NVFP4"),
        (41, "Q1_0"),
        (99, "the unknown ggml type 99"),
    ] {
        // Rows of 256, so that each type has whole blocks.
        let draft = changed(|d| {
            *d.tensor(q) =
                DraftTensor { name: q.into(), dims: vec![96, 256], ty, bytes: vec![0; 96 * 256 * 8], offset: None };
        });
        let (found, hint) = refused(&draft);
        let expected = format!(
            "tensor `{q}` in `FILE` is {name}, expected F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS or MXFP4"
        );
        assert_eq!((found, hint), (expected, Some(Hint::Requantise)));
    }
}

/// Row 6: extra tensors were left out without a word.
#[test]
fn tensors_that_no_part_of_the_model_reads_are_refused() {
    for (name, dims) in [
        ("blk.1.attn_q.bias", &[64][..]),
        ("blk.0.attn_q_norm.weight", &[16]),
        ("token_embd_norm.weight", &[64]),
        ("blk.0.post_attention_norm.weight", &[64]),
        ("blk.0.attn_qkv.weight", &[64, 64]),
        ("output.bias", &[320]),
        ("blk.01.attn_norm.weight", &[64]),
        ("some.tensor", &[4]),
        // Hugging Face's names are not names of a GGUF file.
        ("model.norm.weight", &[64]),
        ("model.layers.0.self_attn.q_proj.bias", &[64]),
    ] {
        let found = message(&changed(|d| {
            d.add(name, dims, 1.0);
        }));
        assert!(
            found.contains(&format!("a tensor `{name}` in `FILE`, which no part of a llama model reads")),
            "{name}: {found}"
        );
    }
    refusal_of(&changed(|d| drop(d.add("blk.0.attn_rot_embd.weight", &[8], 1.0).bytes())).bytes()).unwrap();
}

/// A norm in blocks: the message said that it is Q8_0 and that Q8_0 is expected.
#[test]
fn a_list_in_blocks_is_refused_as_a_list() {
    let found = message(&changed(|d| {
        let norm = d.tensor("blk.0.attn_norm.weight");
        (norm.ty, norm.bytes) = (8, vec![0; 2 * 34]);
    }));
    assert_eq!(found, "tensor `blk.0.attn_norm.weight` in `FILE` is Q8_0, expected floats: it is a list");
}

/// Biases of all layers are used, whichever part has them; llama.cpp's files have no key for them.
#[test]
fn biases_are_used_where_they_are() {
    let all = |parts: &[(&str, u64)]| {
        changed(|d| {
            for layer in 0..2 {
                for (part, width) in parts {
                    d.add(&format!("blk.{layer}.{part}.bias"), &[*width], 0.5);
                }
            }
        })
    };
    let qkv = [("attn_q", 64), ("attn_k", 32), ("attn_v", 32)];
    let biases = |draft: &GgufDraft| {
        refusal_of(&draft.bytes()).unwrap();
        let found = model(draft).unwrap().spec.biases;
        (found.qkv, found.o, found.mlp)
    };
    assert_eq!(biases(&llama()), (false, false, false));
    assert_eq!(biases(&all(&qkv)), (true, false, false));
    assert_eq!(biases(&all(&[("attn_output", 64)])), (false, true, false));
    assert_eq!(biases(&all(&[("ffn_gate", 96), ("ffn_up", 96), ("ffn_down", 64)])), (false, false, true));
    let found = message(&all(&qkv[..2]));
    assert_eq!(found, "`FILE` has no tensor `blk.0.attn_v.bias`");
    let found = message(&all(&[("ffn_down", 64)]));
    assert!(found.contains("`blk.0.ffn_down.bias`, `blk.1.ffn_down.bias` in `FILE`, which no part"), "{found}");
}

/// Row 6: a `block_count` of 3 for 6 blocks said nothing.
#[test]
fn a_block_count_that_is_not_the_tensors_is_refused() {
    for n in [1, 3, 100_000, u32::MAX] {
        let found = message(&with("llama.block_count", GgufValue::U32(n)));
        assert!(found.contains("`llama.block_count`"), "{n}: {found}");
    }
    let found = message(&with("llama.block_count", GgufValue::U32(0)));
    assert!(found.contains("`llama.block_count` in `FILE` is 0, expected a whole number from 1 to 65536"), "{found}");
}

/// Section 4: a missing or misshapen tensor was named in Hugging Face's words, with a hint about a file that there is not.
#[test]
fn missing_and_misshapen_tensors_are_named_as_in_the_file() {
    for name in ["token_embd.weight", "output_norm.weight", "blk.0.attn_q.weight", "blk.1.ffn_norm.weight"] {
        let (found, hint) = refused(&changed(|d| {
            d.set("llama.vocab_size", GgufValue::U32(320)).remove_tensor(name);
        }));
        assert_eq!((found, hint), (format!("`FILE` has no tensor `{name}`"), Some(Hint::ConvertAgain)));
    }
    let (found, hint) = refused(&changed(|d| d.tensor("blk.0.attn_q.weight").dims = vec![32, 128]));
    assert_eq!(found, "tensor `blk.0.attn_q.weight` in `FILE` has shape [32, 128], expected [64, 64]");
    assert_eq!(hint, Some(Hint::ConvertAgain));
    let found = message(&with("llama.embedding_length", GgufValue::U32(128)));
    assert!(
        found.starts_with("tensor `token_embd.weight` in `FILE` has shape [320, 64], expected [320, 128]"),
        "{found}"
    );
}

/// A NaN or an infinity in any tensor and in any part of a block, whichever weights are asked for.
#[test]
fn what_is_not_finite_is_found_everywhere() {
    let model = TestModel::tiny(Family::Llama);
    let compile = |draft: &GgufDraft, weights: Weights| {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("m.gguf");
        std::fs::write(&file, draft.bytes()).unwrap();
        let mut options = CompileOptions::new(&file, place.path().join("bundle"));
        (options.ars, options.cls, options.weights) = (vec![1], vec![16], Some(weights));
        compile_with(&options, &mut FakeTarget::default(), &mut Silent).map(drop).map_err(|e| e.to_string())
    };
    let formats = [Weights::Float, Weights::Bf16, Weights::W8, Weights::W4, Weights::Q8_0, Weights::Q4_0];
    for matrices in [Matrices::F32, Matrices::F16, Matrices::Bf16, Matrices::Q8_0, Matrices::Q4_0] {
        let good = model.gguf(matrices).unwrap();
        for tensor in &good.tensors {
            // NaN in the last number, or in the scale of the last block.
            let n = tensor.bytes.len();
            let (at, bad) = match tensor.ty {
                0 => (n - 4, f32::NAN.to_le_bytes().to_vec()),
                1 => (n - 2, half::f16::NAN.to_le_bytes().to_vec()),
                30 => (n - 2, half::bf16::INFINITY.to_le_bytes().to_vec()),
                8 => (n - 34, half::f16::INFINITY.to_le_bytes().to_vec()),
                _ => (n - 18, half::f16::NAN.to_le_bytes().to_vec()),
            };
            let mut draft = good.clone();
            draft.tensor(&tensor.name).bytes[at..at + bad.len()].copy_from_slice(&bad);
            for weights in formats {
                let found = compile(&draft, weights).expect_err(&tensor.name);
                let named = found.starts_with(&format!("tensor `{}` has ", tensor.name));
                assert!(named && found.ends_with("weights must be finite"), "{weights} {matrices:?}: {found}");
            }
        }
    }
}

/// The same in the other block formats: both scales of those that have a minimum, and all sub-scales of `Q6_K`.
#[test]
fn scales_that_are_not_finite_are_found_in_every_block_format() {
    use crate::gguf::{BlockFormat, GgmlType};
    let name = "blk.0.ffn_up.weight";
    let model =
        TestModel { hidden: 256, heads: 16, kv_heads: 16, ffn: 32, vocab: 258, ..TestModel::tiny(Family::Llama) };
    let good = model.gguf(Matrices::F32).unwrap();
    for number in 0..64 {
        let GgmlType::Blocks(format) = GgmlType::from_number(number) else { continue };
        let halves: &[usize] = match format {
            BlockFormat::Q4_0
            | BlockFormat::Q5_0
            | BlockFormat::Q8_0
            | BlockFormat::IQ4_NL
            | BlockFormat::IQ4_XS
            | BlockFormat::MXFP4 => &[0],
            BlockFormat::Q2K => &[80, 82],
            BlockFormat::Q3K => &[108],
            BlockFormat::Q6K => &[208],
            _ => &[0, 2],
        };
        for &at in halves {
            let mut draft = good.clone();
            let n = 32 * 256 / format.elems();
            // Ones in all other places, so that no scale of a sub-block is zero.
            let mut bytes = vec![1u8; n * format.bytes()];
            let last = (n - 1) * format.bytes() + at;
            let nan = if format == BlockFormat::MXFP4 { vec![255] } else { half::f16::NAN.to_le_bytes().to_vec() };
            bytes[last..last + nan.len()].copy_from_slice(&nan);
            (draft.tensor(name).ty, draft.tensor(name).bytes) = (number, bytes);
            let place = tempfile::tempdir().unwrap();
            let file = place.path().join("m.gguf");
            std::fs::write(&file, draft.bytes()).unwrap();
            for weights in [Weights::Float, Weights::Q8_0, Weights::Q4_0] {
                let mut options = CompileOptions::new(&file, place.path().join("bundle"));
                (options.ars, options.cls, options.weights) = (vec![1], vec![16], Some(weights));
                let found = compile_with(&options, &mut FakeTarget::default(), &mut Silent).unwrap_err().to_string();
                assert!(found.starts_with(&format!("tensor `{name}` has NaN")), "{format:?} {at} {weights}: {found}");
            }
        }
    }
}
