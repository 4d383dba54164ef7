//! The file's frame: magic, counts, values, the places of tensors.

use super::super::{BlockFormat, GgmlType};
use super::*;
use crate::testmodel::DraftTensor;
use proptest::prelude::*;

fn small() -> GgufDraft {
    let mut draft = GgufDraft::default();
    draft
        .set("general.architecture", text("llama"))
        .set("llama.block_count", GgufValue::U32(2))
        .set("llama.rope.freq_base", GgufValue::F32(1e4))
        .set("tokenizer.ggml.add_bos_token", GgufValue::Bool(true))
        .set("tokenizer.ggml.tokens", GgufValue::Texts(vec!["a".into(), "bc".into(), String::new()]))
        .set("tokenizer.ggml.scores", GgufValue::F32s(vec![1.0]))
        .add("output_norm.weight", &[3], 1.0);
    draft.tensors.push(blocks_of("blk.0.attn_q.weight", &[2, 32], 8, 68));
    draft
}

fn blocks_of(name: &str, dims: &[u64], ty: u32, n_bytes: usize) -> DraftTensor {
    DraftTensor { name: name.into(), dims: dims.into(), ty, bytes: vec![2; n_bytes], offset: None }
}

fn why(draft: &GgufDraft) -> String {
    open(&draft.bytes()).unwrap_err().to_string()
}

#[test]
fn values_and_tensors_come_back() {
    let gguf = open(&small().bytes()).unwrap();
    assert_eq!(gguf.meta.text("general.architecture").unwrap(), Some("llama"));
    assert_eq!(gguf.meta.count("llama.block_count").unwrap(), Some(2));
    assert_eq!(gguf.meta.number("llama.rope.freq_base").unwrap(), Some(1e4));
    assert_eq!(gguf.meta.bool("tokenizer.ggml.add_bos_token").unwrap(), Some(true));
    let tokens = gguf.meta.texts("tokenizer.ggml.tokens").unwrap().unwrap();
    assert_eq!(tokens.iter().collect::<Vec<_>>(), ["a", "bc", ""]);
    assert_eq!((tokens.get(1), tokens.get(3)), (Some("bc"), None));
    let scores = gguf.meta.numbers("tokenizer.ggml.scores").unwrap().unwrap();
    assert_eq!(scores.floats().unwrap().collect::<Vec<_>>(), [1.0]);
    assert_eq!(gguf.meta.count("llama.context_length").unwrap(), None, "absent is absent");
    let q = &gguf.tensors["blk.0.attn_q.weight"];
    assert_eq!((q.dims.as_slice(), q.ty, q.bytes), (&[2, 32][..], GgmlType::Blocks(BlockFormat::Q8_0), 68));
    assert_eq!(q.offset % 32, 0);
}

#[test]
fn bad_files_are_refused_with_the_reason() {
    let good = small().bytes();
    let counts =
        |tensors: u64, values: u64| [&good[..8], &tensors.to_le_bytes(), &values.to_le_bytes(), &good[24..]].concat();
    let cases: [(&str, Vec<u8>, &str); 9] = [
        ("empty", vec![], "is not a supported GGUF file: it is empty"),
        ("foreign", b"\x7fELF0000".to_vec(), "it begins with [7f, 45, 4c, 46], expected `GGUF`"),
        ("old", [b"GGUF\x01\0\0\0", &good[8..]].concat(), "it has version 1, expected little-endian of version 2 or 3"),
        ("turned", [b"GGUF\0\0\0\x03", &good[8..]].concat(), "it has big-endian numbers"),
        ("torn", good[..good.len() - 1].to_vec(), "tensor `blk.0.attn_q.weight` ends at byte"),
        ("lying count of tensors", counts(1 << 60, 6), "is damaged: its header counts 1152921504606846976 tensors"),
        ("lying count of keys", counts(2, u64::MAX), "is damaged: its header counts 18446744073709551615 keys"),
        ("fewer tensors than there are", counts(1, 6), ""),
        ("a key more than there are", counts(2, 7), ""),
    ];
    for (what, bytes, message) in cases {
        match open(&bytes) {
            Err(error) => assert!(error.to_string().contains(message), "{what}: {error}"),
            // What is left out is missed when the model is put together.
            Ok(_) => assert!(message.is_empty() && refusal_of(&bytes).is_err(), "{what}"),
        }
    }
}

/// Section 3: tensors at offset 1 or 7, or two at one place, were not refused.
#[test]
fn tensors_lie_aligned_inside_the_file_and_alone() {
    let with = |change: fn(&mut GgufDraft)| {
        let mut draft = small();
        change(&mut draft);
        why(&draft)
    };
    let q = "blk.0.attn_q.weight";
    for offset in [1, 7, 31, 33] {
        let mut draft = small();
        draft.tensor(q).offset = Some(offset);
        let found = why(&draft);
        assert!(found.contains(&format!("tensor `{q}` is at offset {offset}, no multiple of 32")), "{found}");
    }
    let found = with(|d| d.tensor("blk.0.attn_q.weight").offset = Some(0));
    assert!(found.contains("tensors `output_norm.weight` and `blk.0.attn_q.weight` overlap in byte"), "{found}");
    let found = with(|d| d.tensor("output_norm.weight").offset = Some(64));
    assert!(found.contains("overlap in byte"), "{found}");
    let found = with(|d| d.tensor("blk.0.attn_q.weight").offset = Some(1 << 40));
    assert!(found.contains("tensor `blk.0.attn_q.weight` ends at byte"), "{found}");
    let found = with(|d| d.tensor("blk.0.attn_q.weight").offset = Some(u64::MAX - 31));
    assert!(found.contains("the offset of tensor `blk.0.attn_q.weight` overflows"), "{found}");
    let found = with(|d| {
        let again = d.tensors[0].clone();
        d.tensors.push(again);
    });
    assert!(found.contains("tensor `output_norm.weight` is there twice"), "{found}");
    let found = with(|d| d.values.push(("llama.block_count".into(), GgufValue::U32(3))));
    assert!(found.contains("key `llama.block_count` is there twice"), "{found}");
}

#[test]
fn extents_that_cannot_be_are_refused() {
    let cases: [(&[u64], &str); 6] = [
        (&[2, 31], "tensor `w` has rows of 31 elements, no multiple of 32"),
        (&[], "tensor `w` has 0 axes"),
        (&[1; 9], "tensor `w` has 9 axes"),
        (&[0, 32], "tensor `w` has an axis of 0"),
        (&[2, 0], "tensor `w` has an axis of 0"),
        (&[1 << 40, 1 << 40], "is too large"),
    ];
    for (dims, message) in cases {
        let mut draft = GgufDraft::default();
        draft.tensors.push(blocks_of("w", dims, 8, 68));
        let found = why(&draft);
        assert!(found.contains(message), "{dims:?}: {found}");
    }
}

/// Row 8's `general.alignment` = -32 and similar.
#[test]
fn a_bad_alignment_is_named() {
    let cases = [
        (GgufValue::I32(-32), "`general.alignment` in `FILE` is -32, expected a whole number from 0 to 4294967295"),
        (GgufValue::U32(0), "`general.alignment` in `FILE` is 0, expected a power of two"),
        (GgufValue::U32(48), "`general.alignment` in `FILE` is 48, expected a power of two"),
        (text("32"), "`general.alignment` in `FILE` is the string `32`, expected a whole number"),
        (GgufValue::U64(1 << 63), "`general.alignment` in `FILE` is 9223372036854775808, expected a whole number"),
        (GgufValue::U32(1 << 31), "no multiple of 2147483648"),
    ];
    for (value, expected) in cases {
        let found = message(&with("general.alignment", value.clone()));
        assert!(found.contains(expected), "{value:?}: {found}");
    }
    refusal_of(&with("general.alignment", GgufValue::U32(32)).bytes()).unwrap();
}

/// A file cut at any fiftieth of its length is refused, whatever is missing.
#[test]
fn a_file_that_is_cut_is_refused() {
    let bytes = llama().bytes();
    for part in 0..50 {
        let (found, _) = refusal_of(&bytes[..bytes.len() * part / 50]).unwrap_err();
        assert!(
            found.contains("`FILE` is damaged") || part == 0 && found.contains("it is empty"),
            "{part}/50: {found}"
        );
    }
}

/// Section 3: 60 MB of u8 in a list took 1.84 GB. Lists that no part reads are not kept, others are kept as their bytes.
#[test]
fn long_lists_are_not_taken_apart() {
    let n = 1 << 20;
    let list = |key: &str, value: GgufValue| {
        let gguf = open(&with(key, value).bytes()).unwrap();
        gguf.meta.get(key).unwrap().clone()
    };
    let found = list("general.some_bytes", GgufValue::Bytes(vec![7; n]));
    assert_eq!(found, super::super::value::Value::Skipped(n as u64));
    let found = list("general.tags", GgufValue::Texts(vec!["x".into(); n]));
    assert_eq!(found, super::super::value::Value::Skipped(n as u64));
    let found = list("tokenizer.ggml.scores", GgufValue::Bytes(vec![7; n]));
    assert_eq!(found.packed_bytes(), Some(n), "as many bytes as in the file");
    let found = list("tokenizer.ggml.tokens", GgufValue::Texts(vec!["xyz".into(); n]));
    assert_eq!(found.packed_bytes(), Some(n * (3 + size_of::<usize>())), "as many bytes as in the file");
}

proptest! {
    #[test]
    fn damage_is_an_error_or_another_file_but_never_a_panic(at in 0usize..600, flip in 1u8.., cut in 0usize..700) {
        let mut bytes = small().bytes();
        let at = at % bytes.len();
        bytes[at] ^= flip;
        let _ = open(&bytes);
        bytes.truncate(cut);
        let _ = open(&bytes);
    }

    #[test]
    fn a_model_with_a_changed_header_never_panics(at in 0usize..20_000, value in any::<[u8; 4]>()) {
        let mut bytes = llama().bytes();
        let at = at % (bytes.len() - 4);
        bytes[at..at + 4].copy_from_slice(&value);
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        let _ = Model::open(file.path());
    }
}
