//! The Llama skeleton: what a family may vary, and how its configuration becomes a [`ModelSpec`].

use super::raw::RawConfig;
use super::{Biases, Family, ModelSpec, SamplerDefaults, SpecialTokens, rope};
use crate::{CompileError, Result};

/// Transformers' default where `config.json` has no `rms_norm_eps`.
const DEFAULT_RMS_EPS: f64 = 1e-6;

/// What distinguishes a family from the others on the skeleton. Each family's file fills one.
pub(crate) struct FamilyInfo {
    /// `model_type` in `config.json`, and `general.architecture` in GGUF files.
    pub(crate) name: &'static str,
    /// The class that `architectures` names in `config.json`.
    pub(crate) class: &'static str,
    /// Biases of the Q, K and V projections.
    pub(crate) qkv_bias: Bias,
    /// Bias of the attention's output projection.
    pub(crate) o_bias: Bias,
    /// Biases of the feed-forward part.
    pub(crate) mlp_bias: Bias,
    /// Queries and keys are normalised per head before the rotation.
    pub(crate) qk_norm: bool,
    /// Width of a head where `config.json` has no `head_dim`; `None` for hidden size over heads.
    pub(crate) default_head_dim: Option<usize>,
    /// Whether the key `sliding_window` alone turns the window on.
    pub(crate) sliding_window: SlidingWindow,
    /// A dialog begins with BOS where the tokenizer's configuration does not decide it.
    pub(crate) prepends_bos: bool,
    /// llama.cpp's converter stores the rows of Q and K as the pairs `(0, d/2), (1, d/2 + 1), ...`.
    pub(crate) gguf_paired_heads: bool,
}

/// When a linear layer has a bias.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bias {
    /// For every configuration.
    Always,
    /// For no configuration.
    Never,
    /// When `attention_bias` is true.
    AttentionKey,
    /// When `mlp_bias` is true.
    MlpKey,
}

/// What `sliding_window` means without `use_sliding_window`. A window that is on is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlidingWindow {
    /// A size turns the window on.
    OnByDefault,
    /// A size alone has no effect.
    OffByDefault,
}

impl FamilyInfo {
    /// The biases of a model with those values of `attention_bias` and `mlp_bias`.
    pub(crate) fn biases(&self, attention: bool, mlp: bool) -> Biases {
        let has = |rule| match rule {
            Bias::Always => true,
            Bias::Never => false,
            Bias::AttentionKey => attention,
            Bias::MlpKey => mlp,
        };
        Biases { qkv: has(self.qkv_bias), o: has(self.o_bias), mlp: has(self.mlp_bias) }
    }

    /// The key of `config.json` that gives a model the tensor of that name, if it is a bias that has one.
    pub(crate) fn bias_key(&self, tensor: &str) -> Option<&'static str> {
        let part = tensor.strip_suffix("_proj.bias")?;
        let rule = match part.rsplit_once('.')?.1 {
            "q" | "k" | "v" => self.qkv_bias,
            "o" => self.o_bias,
            _ => self.mlp_bias,
        };
        match rule {
            Bias::AttentionKey => Some("attention_bias"),
            Bias::MlpKey => Some("mlp_bias"),
            Bias::Always | Bias::Never => None,
        }
    }
}

/// Reads a configuration; special tokens and sampler are left at their defaults.
///
/// # Errors
/// Missing keys, features that the skeleton does not have, extents that do not fit together.
pub(super) fn read(raw: &RawConfig, family: Family) -> Result<ModelSpec> {
    refuse_unsupported(raw, family.info().sliding_window)?;
    let hidden = required(raw.hidden_size, "hidden_size")?;
    let n_heads = required(raw.num_attention_heads, "num_attention_heads")?;
    let head_dim = match raw.head_dim.or(family.info().default_head_dim) {
        Some(width) => width,
        None if !hidden.is_multiple_of(n_heads) => return Err(CompileError::HeadDimUnknown { hidden, n_heads }),
        None => hidden / n_heads,
    };
    let spec = ModelSpec {
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
        biases: family.info().biases(raw.attention_bias.unwrap_or(false), raw.mlp_bias.unwrap_or(false)),
        qk_norm: family.info().qk_norm,
        tokens: SpecialTokens::default(),
        sampler: SamplerDefaults::default(),
    };
    check(&spec)?;
    Ok(spec)
}

/// A count that must be present and at least 1.
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

/// Refuses features that the skeleton does not have.
fn refuse_unsupported(raw: &RawConfig, window: SlidingWindow) -> Result<()> {
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
    match (window, raw.use_sliding_window, raw.sliding_window) {
        (SlidingWindow::OnByDefault, None | Some(true), Some(size)) => Err(refuse("sliding_window", size, "null")),
        (SlidingWindow::OffByDefault, Some(true), _) => Err(refuse("use_sliding_window", true, "false")),
        _ => Ok(()),
    }
}

/// Checks the invariants of [`ModelSpec`].
fn check(spec: &ModelSpec) -> Result<()> {
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
