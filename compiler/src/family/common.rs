//! What all families share: required extents, refusals, and the checks on the finished spec.

use super::raw::RawConfig;
use super::{Biases, Family, ModelSpec, SamplerDefaults, SpecialTokens, rope};
use crate::{CompileError, Result};

/// Transformers' default where `config.json` is silent.
const DEFAULT_RMS_EPS: f64 = 1e-6;

/// The parts that every family reads alike. The caller sets biases and QK norm.
pub(super) fn base(raw: &RawConfig, family: Family) -> Result<ModelSpec> {
    let hidden = required(raw.hidden_size, "hidden_size")?;
    let n_heads = required(raw.num_attention_heads, "num_attention_heads")?;
    let head_dim = match raw.head_dim {
        Some(width) => width,
        None if !hidden.is_multiple_of(n_heads) => return Err(CompileError::HeadDimUnknown { hidden, n_heads }),
        None => hidden / n_heads,
    };
    Ok(ModelSpec {
        family,
        n_layers: required(raw.num_hidden_layers, "num_hidden_layers")?,
        hidden,
        n_heads,
        n_kv_heads: raw.num_key_value_heads.unwrap_or(n_heads),
        head_dim,
        ffn: required(raw.intermediate_size, "intermediate_size")?,
        vocab: required(raw.vocab_size, "vocab_size")?,
        rms_eps: raw.rms_norm_eps.unwrap_or(DEFAULT_RMS_EPS) as f32,
        rope: rope::read(raw)?,
        max_positions: raw.max_position_embeddings,
        tied: raw.tie_word_embeddings.unwrap_or(false),
        biases: Biases::default(),
        qk_norm: false,
        tokens: SpecialTokens::default(),
        sampler: SamplerDefaults::default(),
    })
}

/// A count that must be there and not be zero.
fn required(value: Option<usize>, key: &'static str) -> Result<usize> {
    match value {
        None => Err(CompileError::ConfigMissing { key }),
        Some(0) => Err(CompileError::ConfigValue { key, found: "0".into(), expected: "at least 1" }),
        Some(n) => Ok(n),
    }
}

/// An error that names a feature, the value that turns it on, and what would be accepted.
pub(super) fn refuse(feature: &'static str, found: impl ToString, accepted: &'static str) -> CompileError {
    CompileError::UnsupportedFeature { feature, found: found.to_string(), accepted }
}

/// Features that no family's graph has.
pub(super) fn refuse_everywhere(raw: &RawConfig) -> Result<()> {
    if let Some(act) = raw.hidden_act.as_deref().filter(|act| !matches!(*act, "silu" | "swish")) {
        return Err(refuse("hidden_act", act, "silu"));
    }
    let experts = [
        ("num_experts", raw.num_experts),
        ("num_local_experts", raw.num_local_experts),
        ("n_routed_experts", raw.n_routed_experts),
    ];
    for (key, count) in experts {
        if let Some(n) = count.filter(|n| *n > 0) {
            return Err(refuse(key, n, "no mixture of experts"));
        }
    }
    if let Some(kind) = raw.layer_types.iter().flatten().find(|kind| *kind != "full_attention") {
        return Err(refuse("layer_types", kind, "full_attention in every layer"));
    }
    if raw.quantization_config.as_ref().is_some_and(|config| !config.is_null()) {
        let method = raw.quantization_config.as_ref().and_then(|c| c["quant_method"].as_str()).unwrap_or("present");
        return Err(refuse("quantization_config", method, "float weights (f32, f16, bf16)"));
    }
    Ok(())
}

/// Sliding windows of the Qwen families: a size may be written as long as the switch is off.
pub(super) fn refuse_switched_window(raw: &RawConfig) -> Result<()> {
    if raw.use_sliding_window == Some(true) { Err(refuse("use_sliding_window", true, "false")) } else { Ok(()) }
}

/// The invariants of [`ModelSpec`].
pub(super) fn check(spec: &ModelSpec) -> Result<()> {
    let bad = |key, found: String, expected| Err(CompileError::ConfigValue { key, found, expected });
    if spec.n_kv_heads == 0 || !spec.n_heads.is_multiple_of(spec.n_kv_heads) {
        let found = format!("{} with {} attention heads", spec.n_kv_heads, spec.n_heads);
        return bad("num_key_value_heads", found, "a divisor of num_attention_heads");
    }
    if spec.head_dim == 0 || !spec.head_dim.is_multiple_of(2) {
        return bad("head_dim", spec.head_dim.to_string(), "an even number, at least 2");
    }
    if !(spec.rms_eps.is_finite() && spec.rms_eps >= 0.0) {
        return bad("rms_norm_eps", spec.rms_eps.to_string(), "a number from 0 up");
    }
    let extents = [
        ("num_hidden_layers", spec.n_layers, 1 << 16),
        ("hidden_size", spec.hidden, 1 << 24),
        ("num_attention_heads", spec.n_heads, 1 << 16),
        ("head_dim", spec.head_dim, 1 << 16),
        ("intermediate_size", spec.ffn, 1 << 24),
        ("vocab_size", spec.vocab, i32::MAX as usize),
    ];
    for (key, extent, limit) in extents {
        if extent > limit {
            return bad(key, extent.to_string(), "an extent that a graph can have");
        }
    }
    Ok(())
}
