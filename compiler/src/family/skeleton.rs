//! The Llama skeleton: what a family may vary, and how its configuration becomes a [`ModelSpec`].

use super::{Biases, Family, ModelSpec, SamplerDefaults, SpecialTokens, rope};
use crate::json::{Object, shown_key};
use crate::{CompileError, Result};

/// Transformers' default where `config.json` has no `rms_norm_eps`.
const DEFAULT_RMS_EPS: f64 = 1e-6;

/// Most layers or heads that a configuration may ask for, and the widest head.
const MAX_COUNT: usize = 1 << 16;
/// Widest hidden and feed-forward parts.
const MAX_WIDTH: usize = 1 << 24;

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
        rule.key()
    }
}

impl Bias {
    /// The key of `config.json` that decides it.
    pub(crate) const fn key(self) -> Option<&'static str> {
        match self {
            Self::AttentionKey => Some("attention_bias"),
            Self::MlpKey => Some("mlp_bias"),
            Self::Always | Self::Never => None,
        }
    }
}

/// Reads a configuration; special tokens and sampler are left at their defaults.
///
/// # Errors
/// Missing keys, values of another type or out of range, features that the skeleton does not have, extents that do not fit
/// together.
pub(super) fn read(config: &Object<'_>, family: Family) -> Result<ModelSpec> {
    let info = family.info();
    refuse_unsupported(config, info.sliding_window)?;
    let hidden = config.needed_count("hidden_size", 1..=MAX_WIDTH)?;
    let n_heads = config.needed_count("num_attention_heads", 1..=MAX_COUNT)?;
    let n_kv_heads = config.count("num_key_value_heads", 1..=MAX_COUNT)?.unwrap_or(n_heads);
    let head_dim = match config.count("head_dim", 2..=MAX_COUNT)?.or(info.default_head_dim) {
        Some(width) => width,
        None if !hidden.is_multiple_of(n_heads) => return Err(CompileError::HeadDimUnknown { hidden, n_heads }),
        None => hidden / n_heads,
    };
    if !head_dim.is_multiple_of(2) {
        return Err(config.bad("head_dim", head_dim, "an even number"));
    }
    if !n_heads.is_multiple_of(n_kv_heads) {
        let found = format!("{n_kv_heads} with {n_heads} attention heads");
        return Err(config.bad("num_key_value_heads", found, "a divisor of num_attention_heads"));
    }
    let n_layers = config.needed_count("num_hidden_layers", 1..=MAX_COUNT)?;
    check_layer_types(config, n_layers)?;
    let mut rope = rope::read(config)?;
    rope.fit(config, head_dim / 2)?;
    let eps = config.number("rms_norm_eps", 0.0..=1.0, "a number from 0 to 1")?;
    Ok(ModelSpec {
        family,
        n_layers,
        hidden,
        n_heads,
        n_kv_heads,
        head_dim,
        ffn: config.needed_count("intermediate_size", 1..=MAX_WIDTH)?,
        vocab: config.needed_count("vocab_size", 1..=i32::MAX as usize)?,
        rms_eps: eps.unwrap_or(DEFAULT_RMS_EPS) as f32,
        rope,
        max_positions: config.count("max_position_embeddings", 1..=u32::MAX as usize)?,
        tied: config.flag("tie_word_embeddings")?.unwrap_or(false),
        biases: info.biases(config.flag("attention_bias")?.unwrap_or(false), config.flag("mlp_bias")?.unwrap_or(false)),
        qk_norm: info.qk_norm,
        tokens: SpecialTokens::default(),
        sampler: SamplerDefaults::default(),
    })
}

/// Refuses features that the skeleton does not have.
fn refuse_unsupported(config: &Object<'_>, window: SlidingWindow) -> Result<()> {
    if let Some(act) = config.text("hidden_act")?.filter(|act| !matches!(*act, "silu" | "swish")) {
        return Err(config.unsupported("hidden_act", shown_key(act), "silu"));
    }
    for key in ["num_experts", "num_local_experts", "n_routed_experts"] {
        if let Some(n) = config.count(key, 0..=MAX_COUNT)?.filter(|n| *n > 0) {
            return Err(config.unsupported(key, n, "no mixture of experts"));
        }
    }
    if let Some(quantised) = config.object("quantization_config")? {
        let method = quantised.text("quant_method")?.unwrap_or("no method named");
        return Err(config.unsupported("quantization_config", shown_key(method), "float weights (f32, f16, bf16)"));
    }
    let size = config.count("sliding_window", 0..=u32::MAX as usize)?;
    match (window, config.flag("use_sliding_window")?, size) {
        (SlidingWindow::OnByDefault, None | Some(true), Some(size)) => {
            Err(config.unsupported("sliding_window", size, "null"))
        }
        (_, Some(true), _) => Err(config.unsupported("use_sliding_window", true, "false")),
        _ => Ok(()),
    }
}

/// Attention of all layers must be full.
fn check_layer_types(config: &Object<'_>, n_layers: usize) -> Result<()> {
    // Says from which layer on windows would be used; there are none.
    config.count("max_window_layers", 0..=MAX_COUNT)?;
    let Some(types) = config.texts("layer_types")? else { return Ok(()) };
    if let Some(kind) = types.iter().find(|kind| **kind != "full_attention") {
        return Err(config.unsupported("layer_types", shown_key(kind), "full_attention in every layer"));
    }
    if types.len() != n_layers {
        let found = format!("{} entries", types.len());
        return Err(config.bad("layer_types", found, &format!("one for each of the {n_layers} layers")));
    }
    Ok(())
}
