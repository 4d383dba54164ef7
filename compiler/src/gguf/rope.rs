//! Rotary positions of a GGUF file.
//!
//! A file states linear scaling by keys, and the `llama3` rule as a tensor of frequency divisors, `rope_freqs.weight`. The rule's
//! parameters are recovered from the tensor and checked against all of it; divisors of any other rule are refused.
//!
//! *Trap*: a factor without a type means linear, as in llama.cpp. What linear scaling is in terms of the `llama3` rule stands in
//! `family/rope.rs`.

use super::config::ModelKeys;
use super::{GgmlType, Gguf};
use crate::{CompileError, Result, fs};
use serde_json::{Value, json};
use std::io::{Read, Seek, SeekFrom};

/// Divisors of frequencies.
const ROPE_FREQS: &str = "rope_freqs.weight";
const DEFAULT_THETA: f64 = 10_000.0;
/// The `llama3` rule's parameters except the factor, the same in all published models.
const ORIGINAL_MAX_POSITIONS: f64 = 8192.0;
const LOW_FREQ_FACTOR: f64 = 1.0;
const HIGH_FREQ_FACTOR: f64 = 4.0;
/// Keys that have a meaning for scaling of other types only.
const OF_OTHER_TYPES: [&str; 8] = [
    "rope.scaling.original_context_length",
    "rope.scaling.yarn_log_multiplier",
    "rope.scaling.yarn_ext_factor",
    "rope.scaling.yarn_attn_factor",
    "rope.scaling.yarn_beta_fast",
    "rope.scaling.yarn_beta_slow",
    "rope.scaling.alpha",
    "rope.freq_base_swa",
];

/// Base of the angles.
pub(super) fn theta(keys: &ModelKeys<'_>) -> Result<f64> {
    const KEY: &str = "rope.freq_base";
    match keys.number(KEY)?.unwrap_or(DEFAULT_THETA) {
        theta if theta > 0.0 => Ok(theta),
        _ => Err(keys.refused(KEY, "a positive number")),
    }
}

/// `rope_scaling`, or null.
pub(super) fn scaling(gguf: &Gguf, keys: &ModelKeys<'_>, head_dim: u64) -> Result<Value> {
    keys.meta.bool(&keys.key("rope.scaling.finetuned"))?;
    for key in OF_OTHER_TYPES {
        keys.number(key)?;
    }
    if keys.number("rope.scaling.attn_factor")?.is_some_and(|factor| factor != 1.0) {
        return Err(keys.refused("rope.scaling.attn_factor", "1"));
    }
    let linear = linear_factor(keys)?;
    let Some(divisors) = divisors(gguf, head_dim)? else {
        return Ok(if linear == 1.0 { Value::Null } else { json!({ "rope_type": "linear", "factor": linear }) });
    };
    if linear != 1.0 {
        return Err(keys.refused("rope.scaling.factor", format!("no factor beside the tensor `{ROPE_FREQS}`")));
    }
    let theta = theta(keys)?;
    let factor = divisors.iter().copied().fold(1.0, f64::max);
    let expected = |i: usize| llama3_divisor(theta.powf(-(i as f64) / divisors.len() as f64), factor);
    let fits = |i: usize| (divisors[i] / expected(i) - 1.0).abs() <= 1e-3;
    match (0..divisors.len()).find(|&i| !fits(i)) {
        Some(i) => Err(CompileError::UnsupportedFeature {
            feature: "rope scaling",
            found: format!("`{ROPE_FREQS}`, whose entry {i} is {}", divisors[i]),
            accepted: "the llama3 rule with 8192 positions and frequency factors of 1 and 4",
        }),
        None if factor == 1.0 => Ok(Value::Null),
        None => Ok(llama3(factor)),
    }
}

fn llama3(factor: f64) -> Value {
    json!({
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": LOW_FREQ_FACTOR,
        "high_freq_factor": HIGH_FREQ_FACTOR,
        "original_max_position_embeddings": ORIGINAL_MAX_POSITIONS,
    })
}

/// What all positions are divided by.
fn linear_factor(keys: &ModelKeys<'_>) -> Result<f64> {
    let (new, old) = ("rope.scaling.factor", "rope.scale_linear");
    let (key, factor) = match (keys.number(new)?, keys.number(old)?) {
        (Some(factor), _) => (new, factor),
        (None, factor) => (old, factor.unwrap_or(1.0)),
    };
    const TYPE: &str = "rope.scaling.type";
    match keys.meta.text(&keys.key(TYPE))? {
        Some("none") => return Ok(1.0),
        None | Some("linear") => {}
        Some(_) => return Err(keys.refused(TYPE, "none, linear, or llama3 as a tensor of divisors")),
    }
    match factor {
        // llama.cpp takes 0 as unset.
        0.0 => Ok(1.0),
        factor if factor > 0.0 => Ok(factor),
        _ => Err(keys.refused(key, "a positive number")),
    }
}

/// The divisors of frequencies, if there are any: one for each pair of a head, all finite and positive.
fn divisors(gguf: &Gguf, head_dim: u64) -> Result<Option<Vec<f64>>> {
    let Some(tensor) = gguf.tensors.get(ROPE_FREQS) else { return Ok(None) };
    if tensor.ty != GgmlType::F32 {
        let (path, name, found) = (gguf.path.clone(), ROPE_FREQS.into(), tensor.ty.to_string());
        return Err(super::GgufError::TensorType { path, name, found, expected: "F32".into() }.into());
    }
    if tensor.dims.iter().map(|&d| d as u64).ne([head_dim / 2]) {
        let (path, name, found) = (gguf.path.clone(), ROPE_FREQS.into(), tensor.dims.clone());
        return Err(super::GgufError::Shape { path, name, expected: vec![(head_dim / 2) as usize], found }.into());
    }
    let mut bytes = vec![0; tensor.bytes as usize];
    let mut file = fs::open(&gguf.path)?;
    file.seek(SeekFrom::Start(tensor.offset)).map_err(fs::io_err("seek in", &gguf.path))?;
    file.read_exact(&mut bytes).map_err(fs::io_err("read", &gguf.path))?;
    let values: Vec<f32> = bytes.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect();
    if let Some(i) = values.iter().position(|v| !v.is_finite()) {
        return Err(CompileError::NotFinite { name: ROPE_FREQS.into(), index: vec![i], value: values[i] });
    }
    Ok(Some(values.into_iter().map(f64::from).collect()))
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
