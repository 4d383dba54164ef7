//! `cargo xtask random-model SHAPE FOLDER --gguf`: the shape as a GGUF file in Q4_0 with a head in Q6_K, or in Q8_0 where its rows are no
//! multiple of 256, as `llama-quantize` makes them of untied models. An 8B file is written in the time that the disk takes, without the 16 GB of its floats.
//!
//! *Format*: GGUF version 3, little endian: keys, tensors' names, extents (innermost first), types and places, then their bytes,
//! each at a multiple of 32.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::Result;

use crate::random_model::{Random, Shape};

/// Types of values of keys.
const U32: u32 = 4;
const I32: u32 = 5;
const F32: u32 = 6;
const STRING: u32 = 8;
const ARRAY: u32 = 9;

/// Element types of tensors, with the elements and bytes of a block.
#[derive(Clone, Copy)]
struct ElementType {
    number: u32,
    block: usize,
    bytes: usize,
}

const FLOAT: ElementType = ElementType { number: 0, block: 1, bytes: 4 };
const Q4_0: ElementType = ElementType { number: 2, block: 32, bytes: 18 };
const Q8_0: ElementType = ElementType { number: 8, block: 32, bytes: 34 };
const Q6_K: ElementType = ElementType { number: 14, block: 256, bytes: 210 };

/// 2^-7, 2^-11 and 2^-12 in half precision: scales of values of -7..=7, of -128..=127, and of -32..=31 times steps of 1..=127.
const SCALE_OF_Q4_0: u16 = 0x2000;
const SCALE_OF_Q8_0: u16 = 0x1000;
const SCALE_OF_Q6_K: u16 = 0x0c00;
/// Bytes of a block of Q6_K: the lower and upper bits, then a step for each 16 values, then the scale.
const BITS_OF_Q6_K: usize = 192;

struct Tensor {
    name: String,
    /// Rows outermost.
    shape: Vec<usize>,
    ty: ElementType,
}

impl Tensor {
    fn bytes(&self) -> usize {
        self.shape.iter().product::<usize>() / self.ty.block * self.ty.bytes
    }
}

/// Writes the file.
pub fn write(shape: &Shape, path: &Path) -> Result<()> {
    let tensors = tensors(shape);
    let keys = keys(shape);
    let out = &mut BufWriter::with_capacity(1 << 20, File::create(path)?);
    let mut header = Vec::new();
    header.extend(b"GGUF");
    header.extend(3_u32.to_le_bytes());
    header.extend((tensors.len() as u64).to_le_bytes());
    header.extend((keys.len() as u64).to_le_bytes());
    keys.iter().for_each(|key| header.extend(key));
    let mut at = 0_u64;
    for tensor in &tensors {
        header.extend(text(&tensor.name));
        header.extend((tensor.shape.len() as u32).to_le_bytes());
        tensor.shape.iter().rev().for_each(|&extent| header.extend((extent as u64).to_le_bytes()));
        header.extend(tensor.ty.number.to_le_bytes());
        header.extend(at.to_le_bytes());
        at += tensor.bytes().next_multiple_of(32) as u64;
    }
    header.resize(header.len().next_multiple_of(32), 0);
    out.write_all(&header)?;
    let (mut random, mut bytes) = (Random::new(), Vec::new());
    for tensor in &tensors {
        // A row at a time: a tensor of an 8B model is half a gigabyte.
        let row = tensor.shape.last().copied().unwrap_or(1) / tensor.ty.block;
        for _ in 0..tensor.bytes() / (row * tensor.ty.bytes) {
            bytes.clear();
            (0..row).for_each(|_| block(tensor.ty, &mut random, &mut bytes));
            out.write_all(&bytes)?;
        }
        out.write_all(&vec![0; tensor.bytes().next_multiple_of(32) - tensor.bytes()])?;
    }
    Ok(out.flush()?)
}

fn block(ty: ElementType, random: &mut Random, to: &mut Vec<u8>) {
    let mut values = |n: usize, to: &mut Vec<u8>| (0..n / 8).for_each(|_| to.extend(random.next().to_le_bytes()));
    match ty.number {
        0 => to.extend(1.0_f32.to_le_bytes()),
        2 => {
            to.extend(SCALE_OF_Q4_0.to_le_bytes());
            let start = to.len();
            values(16, to);
            to[start..].iter_mut().for_each(|both| *both = around_zero(*both));
        }
        8 => {
            to.extend(SCALE_OF_Q8_0.to_le_bytes());
            values(32, to);
        }
        _ => {
            values(BITS_OF_Q6_K, to);
            let steps = to.len();
            values(16, to);
            to[steps..].iter_mut().for_each(|step| *step = *step & 0x7f | 1);
            to.extend(SCALE_OF_Q6_K.to_le_bytes());
        }
    }
}

/// Two numbers of Q4_0 whose mean over all bytes is zero: 0, which stands for -8, becomes 8, which stands for zero. Else each layer would add
/// the same to all of a row, and 32 layers of 4,096 leave float16's range.
fn around_zero(both: u8) -> u8 {
    let one = |number: u8| if number == 0 { 8 } else { number };
    one(both & 15) | one(both >> 4) << 4
}

fn tensors(shape: &Shape) -> Vec<Tensor> {
    let Shape { hidden, layers, heads, kv_heads, ffn, vocab } = *shape;
    let kv = hidden / heads * kv_heads;
    let tensor = |name: String, shape: Vec<usize>| {
        let ty = if shape.len() == 1 { FLOAT } else { Q4_0 };
        Tensor { name, shape, ty }
    };
    let mut list = vec![tensor("token_embd.weight".into(), vec![vocab, hidden])];
    for layer in 0..layers {
        let of_layer = [
            ("attn_norm", vec![hidden]),
            ("attn_q", vec![hidden, hidden]),
            ("attn_k", vec![kv, hidden]),
            ("attn_v", vec![kv, hidden]),
            ("attn_output", vec![hidden, hidden]),
            ("ffn_norm", vec![hidden]),
            ("ffn_gate", vec![ffn, hidden]),
            ("ffn_up", vec![ffn, hidden]),
            ("ffn_down", vec![hidden, ffn]),
        ];
        list.extend(of_layer.map(|(name, shape)| tensor(format!("blk.{layer}.{name}.weight"), shape)));
    }
    list.push(tensor("output_norm.weight".into(), vec![hidden]));
    let ty = if hidden.is_multiple_of(Q6_K.block) { Q6_K } else { Q8_0 };
    list.push(Tensor { name: "output.weight".into(), shape: vec![vocab, hidden], ty });
    list
}

fn keys(shape: &Shape) -> Vec<Vec<u8>> {
    let number = |name: &str, value: usize| key(name, U32, &(value as u32).to_le_bytes());
    let float = |name: &str, value: f32| key(name, F32, &value.to_le_bytes());
    // Three special tokens, a byte-level alphabet, and words.
    let letters = byte_letters();
    let named = ["<|unk|>", "<|bos|>", "<|eos|>"].map(str::to_owned);
    let tokens: Vec<String> = named.into_iter().chain(letters).collect();
    let words = (tokens.len()..shape.vocab).map(|id| format!("<|w{id}|>"));
    let tokens: Vec<String> = tokens.iter().cloned().chain(words).collect();
    let kinds = (0..tokens.len()).map(|id| {
        if id < 3 {
            3
        } else if id < 259 {
            1
        } else {
            5_i32
        }
    });
    let merge = format!("{} {}", tokens[3 + usize::from(b'a' - b'!')], tokens[3 + usize::from(b'b' - b'!')]);
    let pair = format!("{}{}", tokens[3 + usize::from(b'a' - b'!')], tokens[3 + usize::from(b'b' - b'!')]);
    let mut tokens = tokens;
    if let Some(last) = tokens.last_mut() {
        *last = pair;
    }
    vec![
        key("general.architecture", STRING, &text("llama")),
        number("general.file_type", 2),
        number("general.quantization_version", 2),
        number("llama.block_count", shape.layers),
        number("llama.context_length", 8_192),
        number("llama.embedding_length", shape.hidden),
        number("llama.feed_forward_length", shape.ffn),
        number("llama.attention.head_count", shape.heads),
        number("llama.attention.head_count_kv", shape.kv_heads),
        float("llama.attention.layer_norm_rms_epsilon", 1e-5),
        float("llama.rope.freq_base", 500_000.0),
        number("llama.rope.dimension_count", shape.hidden / shape.heads),
        number("llama.vocab_size", shape.vocab),
        key("tokenizer.ggml.model", STRING, &text("gpt2")),
        key("tokenizer.ggml.pre", STRING, &text("llama-bpe")),
        key("tokenizer.ggml.tokens", ARRAY, &array(STRING, tokens.iter().map(|token| text(token)))),
        key("tokenizer.ggml.token_type", ARRAY, &array(I32, kinds.map(|kind| kind.to_le_bytes().to_vec()))),
        key("tokenizer.ggml.merges", ARRAY, &array(STRING, std::iter::once(text(&merge)))),
        number("tokenizer.ggml.bos_token_id", 1),
        number("tokenizer.ggml.eos_token_id", 2),
    ]
}

/// The letters that stand for bytes in GPT-2's vocabulary: printable ones for themselves, then those from U+0100 on.
fn byte_letters() -> Vec<String> {
    let itself = |byte: &u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    let plain = (0..=255_u8).filter(itself).map(char::from);
    let others = (0..=255_u8).filter(|byte| !itself(byte)).zip('\u{100}'..).map(|(_, letter)| letter);
    plain.chain(others).map(String::from).collect()
}

fn text(value: &str) -> Vec<u8> {
    let mut bytes = (value.len() as u64).to_le_bytes().to_vec();
    bytes.extend(value.as_bytes());
    bytes
}

fn key(name: &str, ty: u32, value: &[u8]) -> Vec<u8> {
    let mut bytes = text(name);
    bytes.extend(ty.to_le_bytes());
    bytes.extend(value);
    bytes
}

fn array(ty: u32, values: impl Iterator<Item = Vec<u8>>) -> Vec<u8> {
    let values: Vec<Vec<u8>> = values.collect();
    let mut bytes = ty.to_le_bytes().to_vec();
    bytes.extend((values.len() as u64).to_le_bytes());
    bytes.extend(values.into_iter().flatten());
    bytes
}
