//! `cargo xtask random-model SHAPE FOLDER [--gguf]`: a checkpoint of a known shape with random weights, for measurements of speed. It generates
//! nonsense, without repetitions for the most part.
//!
//! *Weights*: bfloat16 with a random sign and mantissa and one of two exponents, so that a gigabyte takes seconds; the seed is fixed.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use serde_json::{Map, Value, json};

use crate::random_gguf;

/// A shape, and where it goes.
#[derive(clap::Args)]
pub struct RandomModelArgs {
    /// Whose shape.
    #[arg(value_enum)]
    shape: ShapeName,
    /// A folder that is not there yet.
    folder: PathBuf,
    /// Write `model.gguf` in Q4_0, with a head in Q6_K or Q8_0, instead of a Hugging Face folder in bfloat16.
    #[arg(long)]
    gguf: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum ShapeName {
    /// Llama-3.1-8B: 32 layers of 4,096, a vocabulary of 128,256.
    Llama8b,
    /// Llama-3.2-1B: 16 layers of 2,048, a vocabulary of 128,256.
    Llama1b,
    /// Qwen2.5-0.5B: 24 layers of 896, a vocabulary of 151,936; without its biases.
    Qwen05b,
    /// SmolLM2-135M: 30 layers of 576, a vocabulary of 49,152.
    Smol135m,
}

pub(crate) struct Shape {
    pub(crate) hidden: usize,
    pub(crate) layers: usize,
    pub(crate) heads: usize,
    pub(crate) kv_heads: usize,
    pub(crate) ffn: usize,
    pub(crate) vocab: usize,
}

impl ShapeName {
    fn shape(self) -> Shape {
        match self {
            Self::Llama8b => Shape { hidden: 4_096, layers: 32, heads: 32, kv_heads: 8, ffn: 14_336, vocab: 128_256 },
            Self::Llama1b => Shape { hidden: 2_048, layers: 16, heads: 32, kv_heads: 8, ffn: 8_192, vocab: 128_256 },
            Self::Qwen05b => Shape { hidden: 896, layers: 24, heads: 14, kv_heads: 2, ffn: 4_864, vocab: 151_936 },
            Self::Smol135m => Shape { hidden: 576, layers: 30, heads: 9, kv_heads: 3, ffn: 1_536, vocab: 49_152 },
        }
    }
}

/// Writes the folder.
pub fn run(args: &RandomModelArgs) -> Result<()> {
    let folder = &args.folder;
    ensure!(!folder.exists(), "`{}` exists", folder.display());
    fs::create_dir_all(folder).with_context(|| format!("cannot make `{}`", folder.display()))?;
    let shape = args.shape.shape();
    if args.gguf {
        return random_gguf::write(&shape, &folder.join("model.gguf"));
    }
    let write = |name: &str, value: &Value| fs::write(folder.join(name), value.to_string());
    write("config.json", &config(&shape))?;
    write("tokenizer.json", &tokenizer(shape.vocab))?;
    weights(&shape, &mut BufWriter::new(File::create(folder.join("model.safetensors"))?))
}

/// SplitMix64 from a fixed seed.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new() -> Self {
        Self(1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }
}

fn config(shape: &Shape) -> Value {
    json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "torch_dtype": "bfloat16",
        "hidden_size": shape.hidden, "num_hidden_layers": shape.layers, "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads, "head_dim": shape.hidden / shape.heads, "intermediate_size": shape.ffn,
        "vocab_size": shape.vocab, "max_position_embeddings": 8_192, "rope_theta": 500_000.0, "rms_norm_eps": 1e-5,
        "tie_word_embeddings": true, "attention_bias": false, "mlp_bias": false, "bos_token_id": 0, "eos_token_id": 1,
    })
}

/// Words of letters, split at white space.
fn tokenizer(vocab: usize) -> Value {
    let words: Map<String, Value> = (0..vocab).map(|id| (format!("w{id}"), json!(id))).collect();
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
        "pre_tokenizer": { "type": "WhitespaceSplit" }, "post_processor": null, "decoder": null,
        "model": { "type": "WordLevel", "vocab": words, "unk_token": "w0" },
    })
}

/// The tensors with their shapes; those of one dimension are of norms.
fn tensors(shape: &Shape) -> Vec<(String, Vec<usize>)> {
    let Shape { hidden, layers, heads, kv_heads, ffn, vocab } = *shape;
    let kv = hidden / heads * kv_heads;
    let mut list = vec![("model.embed_tokens.weight".to_owned(), vec![vocab, hidden])];
    for layer in 0..layers {
        let of_layer = [
            ("input_layernorm", vec![hidden]),
            ("self_attn.q_proj", vec![hidden, hidden]),
            ("self_attn.k_proj", vec![kv, hidden]),
            ("self_attn.v_proj", vec![kv, hidden]),
            ("self_attn.o_proj", vec![hidden, hidden]),
            ("post_attention_layernorm", vec![hidden]),
            ("mlp.gate_proj", vec![ffn, hidden]),
            ("mlp.up_proj", vec![ffn, hidden]),
            ("mlp.down_proj", vec![hidden, ffn]),
        ];
        list.extend(of_layer.map(|(name, shape)| (format!("model.layers.{layer}.{name}.weight"), shape)));
    }
    list.push(("model.norm.weight".into(), vec![hidden]));
    list
}

fn weights(shape: &Shape, out: &mut impl Write) -> Result<()> {
    let (tensors, mut header, mut at) = (tensors(shape), Map::new(), 0);
    for (name, shape) in &tensors {
        let end = at + shape.iter().product::<usize>() * 2;
        header.insert(name.clone(), json!({ "dtype": "BF16", "shape": shape, "data_offsets": [at, end] }));
        at = end;
    }
    let mut header = Value::Object(header).to_string();
    while !header.len().is_multiple_of(8) {
        header.push(' ');
    }
    out.write_all(&(header.len() as u64).to_le_bytes())?;
    out.write_all(header.as_bytes())?;
    let (mut random, mut bytes) = (Random::new(), Vec::new());
    for (_, shape) in &tensors {
        let n = shape.iter().product::<usize>();
        bytes.clear();
        if shape.len() == 1 {
            bytes.extend(std::iter::repeat_n(0x3f80_u16.to_le_bytes(), n).flatten());
        }
        while bytes.len() < 2 * n {
            // Four weights a draw.
            let word = random.next();
            for part in 0..4 {
                let random = (word >> (16 * part)) as u16;
                // Exponents 120 and 121 of 127: magnitudes of 1/128 to 1/32.
                bytes.extend((random & 0x80ff | 0x3c00).to_le_bytes());
            }
        }
        out.write_all(&bytes[..2 * n])?;
    }
    Ok(out.flush()?)
}
