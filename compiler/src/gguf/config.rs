//! The model's configuration in the form of Hugging Face's `config.json`, which the families read.
//!
//! *Trap*: a GGUF file stores the `llama3` rotary scaling as a tensor of frequency divisors, `rope_freqs.weight`. The rule's
//! parameters are recovered from it and checked against all of it; divisors of any other rule are refused.

use super::{GgmlType, Gguf, Value};
use crate::family::{Family, FamilyInfo};
use crate::{CompileError, Result, fs};
use serde_json::{Map, json};
use std::io::{Read, Seek, SeekFrom};

/// Divisors of frequencies.
const ROPE_FREQS: &str = "rope_freqs.weight";
/// The `llama3` rule's parameters except the factor, the same in all published models.
const ORIGINAL_MAX_POSITIONS: f64 = 8192.0;
const LOW_FREQ_FACTOR: f64 = 1.0;
const HIGH_FREQ_FACTOR: f64 = 4.0;

impl Gguf {
    /// The model's family.
    ///
    /// # Errors
    /// An architecture that is missing or not supported.
    pub(crate) fn family(&self) -> Result<Family> {
        let found = self.values.get("general.architecture").and_then(Value::text).unwrap_or("");
        Family::by_name(found).ok_or_else(|| CompileError::UnsupportedArchitecture {
            found: found.into(),
            supported: Family::ALL.iter().map(|family| family.name()).collect(),
        })
    }

    /// `config.json`.
    ///
    /// # Errors
    /// An unknown architecture, or rotary scaling of another rule. Missing keys are left to the reader of the file.
    pub(crate) fn config(&self) -> Result<serde_json::Value> {
        let FamilyInfo { name, class, .. } = self.family()?.info();
        let of_model = |key: &str| self.values.get(&format!("{name}.{key}"));
        let number = |key: &str| of_model(key).and_then(Value::unsigned);
        let tokenizer = |key: &str| self.values.get(&format!("tokenizer.ggml.{key}"));
        let theta = of_model("rope.freq_base").and_then(Value::number);
        // Extents without a key are those of the tensors.
        let rows = |tensor: &str| self.tensors.get(tensor).and_then(|t| t.dims.first().copied());
        let mut config = Map::new();
        let entries = [
            ("architectures", json!([class])),
            ("model_type", json!(name)),
            ("vocab_size", json!(rows("token_embd.weight"))),
            ("hidden_size", json!(number("embedding_length"))),
            ("intermediate_size", json!(number("feed_forward_length"))),
            ("num_hidden_layers", json!(number("block_count"))),
            ("num_attention_heads", json!(number("attention.head_count"))),
            ("num_key_value_heads", json!(number("attention.head_count_kv"))),
            ("head_dim", json!(number("attention.key_length"))),
            ("max_position_embeddings", json!(number("context_length"))),
            ("rms_norm_eps", json!(of_model("attention.layer_norm_rms_epsilon").and_then(Value::number))),
            ("rope_theta", json!(theta)),
            ("rope_scaling", self.rope_scaling(name, theta.unwrap_or(10_000.0))?),
            ("tie_word_embeddings", json!(!self.tensors.contains_key("output.weight"))),
            ("attention_bias", json!(self.tensors.contains_key("blk.0.attn_q.bias"))),
            ("num_experts", json!(number("expert_count"))),
            ("bos_token_id", json!(tokenizer("bos_token_id").and_then(Value::unsigned))),
            ("pad_token_id", json!(tokenizer("padding_token_id").and_then(Value::unsigned))),
        ];
        config.extend(entries.into_iter().filter(|(_, v)| !v.is_null()).map(|(key, value)| (key.to_string(), value)));
        let ends = ["eos_token_id", "eot_token_id", "eom_token_id"];
        let mut ends: Vec<u64> = ends.iter().filter_map(|key| tokenizer(key).and_then(Value::unsigned)).collect();
        ends.dedup();
        config.insert("eos_token_id".into(), json!(ends));
        Ok(config.into())
    }

    fn rope_scaling(&self, name: &str, theta: f64) -> Result<serde_json::Value> {
        let refuse =
            |found: String, accepted| CompileError::UnsupportedFeature { feature: "rope scaling", found, accepted };
        if let Some(kind) = self.values.get(&format!("{name}.rope.scaling.type")).and_then(Value::text)
            && kind != "none"
        {
            return Err(refuse(kind.into(), "none, or llama3 as a tensor of divisors"));
        }
        let Some(divisors) = self.divisors()? else { return Ok(serde_json::Value::Null) };
        let factor = divisors.iter().copied().fold(1.0, f64::max);
        let expected = |i: usize| llama3_divisor(theta.powf(-(i as f64) / divisors.len() as f64), factor);
        if let Some(i) = (0..divisors.len()).find(|&i| (divisors[i] / expected(i) - 1.0).abs() > 1e-3) {
            let found = format!("`{ROPE_FREQS}`, whose entry {i} is {}", divisors[i]);
            return Err(refuse(found, "the llama3 rule with 8192 positions and frequency factors of 1 and 4"));
        }
        Ok(json!({
            "rope_type": "llama3",
            "factor": factor,
            "low_freq_factor": LOW_FREQ_FACTOR,
            "high_freq_factor": HIGH_FREQ_FACTOR,
            "original_max_position_embeddings": ORIGINAL_MAX_POSITIONS,
        }))
    }

    /// The divisors of frequencies, if there are any.
    fn divisors(&self) -> Result<Option<Vec<f64>>> {
        let Some(tensor) = self.tensors.get(ROPE_FREQS) else { return Ok(None) };
        if tensor.ty != GgmlType::F32 || tensor.dims.len() != 1 {
            let found = format!("{:?} of {:?}", tensor.dims, tensor.ty);
            return Err(CompileError::UnsupportedDtype { name: ROPE_FREQS.into(), found });
        }
        let mut bytes = vec![0; tensor.bytes as usize];
        let mut file = fs::open(&self.path)?;
        file.seek(SeekFrom::Start(tensor.offset)).map_err(fs::io_err("seek in", &self.path))?;
        file.read_exact(&mut bytes).map_err(fs::io_err("read", &self.path))?;
        Ok(Some(bytes.as_chunks().0.iter().map(|&b| f64::from(f32::from_le_bytes(b))).collect()))
    }
}

/// The `llama3` rule's divisor of a frequency (in radians per token).
fn llama3_divisor(frequency: f64, factor: f64) -> f64 {
    let turns = ORIGINAL_MAX_POSITIONS * frequency / std::f64::consts::TAU;
    if turns > HIGH_FREQ_FACTOR {
        1.0
    } else if turns < LOW_FREQ_FACTOR {
        factor
    } else {
        let smooth = (turns - LOW_FREQ_FACTOR) / (HIGH_FREQ_FACTOR - LOW_FREQ_FACTOR);
        1.0 / ((1.0 - smooth) / factor + smooth)
    }
}
