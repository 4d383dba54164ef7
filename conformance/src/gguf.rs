//! Writes a Llama checkpoint as a GGUF file, the way llama.cpp's converter does: its names, its order of Q's and K's rows, its blocks.
//!
//! Small models only: a file is put together in memory. Tensors of one axis are float32, as there.

use std::path::Path;

use half::f16;
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;

/// How matrices are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(non_camel_case_types, reason = "the formats' own names")]
pub enum Matrices {
    /// Half floats.
    F16,
    /// Blocks of 8 bits.
    Q8_0,
    /// Blocks of 4 bits; the embedding in 8.
    Q4_0,
}

/// Numbers of value types in GGUF files.
const U32: u32 = 4;
const F32: u32 = 6;
const BOOL: u32 = 7;
const TEXT: u32 = 8;
const LIST: u32 = 9;
const ALIGNMENT: usize = 32;

/// A tensor's name there, its extents outermost first, its type's number and bytes.
struct Tensor {
    name: String,
    dims: Vec<usize>,
    ty: u32,
    bytes: Vec<u8>,
}

/// The file's bytes for the Llama in a Hugging Face folder.
///
/// # Panics
/// The folder is not such a model with byte-level BPE and weights in halves or floats.
pub fn llama(model: &Path, matrices: Matrices) -> Vec<u8> {
    let json = |name: &str| -> Value {
        serde_json::from_slice(&std::fs::read(model.join(name)).expect("the model has it")).expect("valid JSON")
    };
    let (config, tokenizer) = (json("config.json"), json("tokenizer.json"));
    let number = |key: &str| config[key].as_u64().unwrap_or_else(|| panic!("`{key}` is a number"));
    let mut pairs: Vec<Vec<u8>> = vec![pair("general.architecture", TEXT, &text("llama"))];
    for (key, of) in [
        ("block_count", "num_hidden_layers"),
        ("context_length", "max_position_embeddings"),
        ("embedding_length", "hidden_size"),
        ("feed_forward_length", "intermediate_size"),
        ("attention.head_count", "num_attention_heads"),
        ("attention.head_count_kv", "num_key_value_heads"),
        ("attention.key_length", "head_dim"),
        ("attention.value_length", "head_dim"),
        ("rope.dimension_count", "head_dim"),
        ("vocab_size", "vocab_size"),
    ] {
        pairs.push(pair(&format!("llama.{key}"), U32, &(number(of) as u32).to_le_bytes()));
    }
    for (key, of) in [("attention.layer_norm_rms_epsilon", "rms_norm_eps"), ("rope.freq_base", "rope_theta")] {
        let value = config[of].as_f64().unwrap_or_else(|| panic!("`{of}` is a number")) as f32;
        pairs.push(pair(&format!("llama.{key}"), F32, &value.to_le_bytes()));
    }
    pairs.extend(vocabulary(&tokenizer, &config));

    let bytes = std::fs::read(model.join("model.safetensors")).expect("the model has weights");
    let file = SafeTensors::deserialize(&bytes).expect("valid safetensors");
    let tensors = file.tensors().into_iter().map(|(name, view)| {
        let (dims, mut values) = (view.shape().to_vec(), floats(view.dtype(), view.data()));
        if name.ends_with("q_proj.weight") || name.ends_with("k_proj.weight") {
            values = in_pairs(&values, dims[1], number("head_dim") as usize);
        }
        let (ty, bytes) = match (dims.len(), matrices) {
            (1, _) => (0, values.iter().flat_map(|v| v.to_le_bytes()).collect()),
            (_, Matrices::F16) => (1, values.iter().flat_map(|v| f16::from_f32(*v).to_le_bytes()).collect()),
            (_, Matrices::Q4_0) if !name.contains("embed") => (2, values.chunks(32).flat_map(q4_0).collect()),
            _ => (8, values.chunks(32).flat_map(q8_0).collect()),
        };
        Tensor { name: their_name(&name), dims, ty, bytes }
    });
    file_of(&pairs, &tensors.collect::<Vec<_>>())
}

fn file_of(pairs: &[Vec<u8>], tensors: &[Tensor]) -> Vec<u8> {
    let mut file = b"GGUF\x03\0\0\0".to_vec();
    file.extend((tensors.len() as u64).to_le_bytes());
    file.extend((pairs.len() as u64).to_le_bytes());
    file.extend(pairs.concat());
    let mut data = Vec::new();
    for tensor in tensors {
        file.extend(text(&tensor.name));
        file.extend((tensor.dims.len() as u32).to_le_bytes());
        tensor.dims.iter().rev().for_each(|&d| file.extend((d as u64).to_le_bytes()));
        file.extend(tensor.ty.to_le_bytes());
        file.extend((data.len() as u64).to_le_bytes());
        data.extend(&tensor.bytes);
        data.resize(data.len().next_multiple_of(ALIGNMENT), 0);
    }
    file.resize(file.len().next_multiple_of(ALIGNMENT), 0);
    file.extend(data);
    file
}

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
}

fn pair(key: &str, kind: u32, value: &[u8]) -> Vec<u8> {
    [&text(key), &kind.to_le_bytes()[..], value].concat()
}

fn list(kind: u32, n: usize, bytes: &[u8]) -> Vec<u8> {
    [&kind.to_le_bytes()[..], &(n as u64).to_le_bytes(), bytes].concat()
}

fn vocabulary(tokenizer: &Value, config: &Value) -> Vec<Vec<u8>> {
    let model = &tokenizer["model"];
    let ids = model["vocab"].as_object().expect("a vocabulary");
    let added = tokenizer["added_tokens"].as_array().expect("a list of added tokens");
    let mut tokens = vec![(String::new(), 1u32); ids.len()];
    for (token, id) in ids {
        tokens[id.as_u64().expect("an id") as usize].0 = token.clone();
    }
    for token in added {
        let id = token["id"].as_u64().expect("an id") as usize;
        tokens[id] = (token["content"].as_str().expect("its text").into(), 3); // a control token
    }
    let merges: Vec<String> = model["merges"]
        .as_array()
        .expect("merges")
        .iter()
        .map(|merge| match merge {
            Value::String(merge) => merge.clone(),
            pair => [0, 1].map(|i| pair[i].as_str().expect("a part")).join(" "),
        })
        .collect();
    let special = |key: &str| (config[key].as_u64().expect("an id") as u32).to_le_bytes();
    let names: Vec<u8> = tokens.iter().flat_map(|(token, _)| text(token)).collect();
    let kinds: Vec<u8> = tokens.iter().flat_map(|(_, kind)| kind.to_le_bytes()).collect();
    let merged: Vec<u8> = merges.iter().flat_map(|merge| text(merge)).collect();
    vec![
        pair("tokenizer.ggml.model", TEXT, &text("gpt2")),
        pair("tokenizer.ggml.pre", TEXT, &text("gpt-2")),
        pair("tokenizer.ggml.tokens", LIST, &list(TEXT, tokens.len(), &names)),
        pair("tokenizer.ggml.token_type", LIST, &list(5, tokens.len(), &kinds)),
        pair("tokenizer.ggml.merges", LIST, &list(TEXT, merges.len(), &merged)),
        pair("tokenizer.ggml.bos_token_id", U32, &special("bos_token_id")),
        pair("tokenizer.ggml.eos_token_id", U32, &special("eos_token_id")),
        pair("tokenizer.ggml.add_bos_token", BOOL, &[1]),
    ]
}

fn their_name(name: &str) -> String {
    let parts = [
        ("input_layernorm", "attn_norm"),
        ("self_attn.q_proj", "attn_q"),
        ("self_attn.k_proj", "attn_k"),
        ("self_attn.v_proj", "attn_v"),
        ("self_attn.o_proj", "attn_output"),
        ("post_attention_layernorm", "ffn_norm"),
        ("mlp.gate_proj", "ffn_gate"),
        ("mlp.up_proj", "ffn_up"),
        ("mlp.down_proj", "ffn_down"),
        ("embed_tokens", "token_embd"),
        ("norm", "output_norm"),
    ];
    let inner = name.trim_start_matches("model.").replace("layers.", "blk.");
    let found = parts.iter().find(|(ours, _)| inner.trim_end_matches(".weight").ends_with(ours));
    let (ours, theirs) = found.unwrap_or_else(|| panic!("`{name}` has a name there"));
    inner.replace(ours, theirs)
}

fn floats(dtype: Dtype, data: &[u8]) -> Vec<f32> {
    match dtype {
        Dtype::F32 => data.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect(),
        Dtype::F16 => data.as_chunks().0.iter().map(|b| f16::from_le_bytes(*b).to_f32()).collect(),
        other => panic!("weights in {other:?}"),
    }
}

/// Rows of each head as `0, d/2, 1, d/2 + 1, ...`.
fn in_pairs(values: &[f32], width: usize, head_dim: usize) -> Vec<f32> {
    let row = |i: usize| {
        let (head, at) = (i / head_dim, i % head_dim);
        let from = head * head_dim + at % 2 * (head_dim / 2) + at / 2;
        values[from * width..(from + 1) * width].iter().copied()
    };
    (0..values.len() / width).flat_map(row).collect()
}

fn q8_0(block: &[f32]) -> Vec<u8> {
    let scale = block.iter().fold(0.0f32, |m, v| m.max(v.abs())) / 127.0;
    let code = |v: &f32| if scale == 0.0 { 0 } else { ((v / scale).round() as i8).cast_unsigned() };
    f16::from_f32(scale).to_le_bytes().into_iter().chain(block.iter().map(code)).collect()
}

fn q4_0(block: &[f32]) -> Vec<u8> {
    let scale = block.iter().fold(0.0f32, |m, v| if v.abs() > m.abs() { *v } else { m }) / -8.0;
    let code = |v: f32| if scale == 0.0 { 8 } else { (v / scale + 8.5).clamp(0.0, 15.0) as u8 };
    let codes = (0..16).map(|i| code(block[i]) | code(block[i + 16]) << 4);
    f16::from_f32(scale).to_le_bytes().into_iter().chain(codes).collect()
}
