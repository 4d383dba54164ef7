//! Files made here, byte by byte; block formats against numbers that `reference.py` printed.

use super::*;
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
        .value("tokenizer.ggml.tokens", 9, &[&8u32.to_le_bytes()[..], &2u64.to_le_bytes(), &text("a"), &text("b")].concat())
        .value("tokenizer.ggml.scores", 9, &[&6u32.to_le_bytes()[..], &1u64.to_le_bytes(), &1f32.to_le_bytes()].concat())
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
fn bad_files_say_what_is_wrong() {
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
        (
            "twice",
            Draft::default().value("a", 7, &[1]).value("a", 7, &[0]).bytes(),
            "key `a` comes twice",
        ),
    ];
    for (what, bytes, says) in cases {
        let error = open(&bytes).unwrap_err().to_string();
        assert!(error.contains(says), "{what}: {error}");
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
