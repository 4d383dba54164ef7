//! The Llama skeleton: what a family may vary, and how its configuration becomes a [`ModelSpec`].

use super::factors::{self, FactorKeys};
use super::fused::Fused;
use super::layers::{self, MAX_LAYERS, SlidingWindow};
use super::parts::{Activation, NormKind, NormPlace, QkNorm};
use super::{Biases, Family, LocalPositions, ModelSpec, SamplerDefaults, SpecialTokens, gpt2, local_rope, rope};
use crate::json::{Object, shown_key};
use crate::{CompileError, Result};

/// Most heads that a configuration may ask for, and the widest head.
pub(super) const MAX_COUNT: usize = MAX_LAYERS;
/// Widest hidden and feed-forward parts.
pub(super) const MAX_WIDTH: usize = 1 << 24;

/// What distinguishes a family from the others on the skeleton. Each family's file fills one, from [`FamilyInfo::LLAMA`].
pub(crate) struct FamilyInfo {
    /// `model_type` in `config.json`.
    pub(crate) name: &'static str,
    /// The class that `architectures` names in `config.json`.
    pub(crate) class: &'static str,
    /// `general.architecture` of GGUF files, where those are read.
    pub(crate) gguf: Option<&'static str>,
    /// Biases of the Q, K and V projections.
    pub(crate) qkv_bias: Bias,
    /// Bias of the attention's output projection.
    pub(crate) o_bias: Bias,
    /// Biases of the feed-forward part.
    pub(crate) mlp_bias: Bias,
    /// Projections that checkpoints have in one tensor.
    pub(crate) fused: &'static [Fused],
    /// The feed-forward part multiplies by a gate.
    pub(crate) gated: bool,
    /// Positions are rows of a table, added to the embeddings: GPT-2's skeleton, with its keys and names of tensors (`gpt2.rs`).
    pub(crate) learned_positions: bool,
    /// What norms compute.
    pub(crate) norm: NormKind,
    /// Where layers have them.
    pub(crate) norm_place: NormPlace,
    /// Norms on queries and keys before the rotation.
    pub(crate) qk_norm: QkNorm,
    /// Which keys of factors there are.
    pub(crate) factors: FactorKeys,
    /// Whether `no_rope_layers` and `no_rope_layer_interval` leave layers without rotation.
    pub(crate) no_rope_keys: bool,
    /// Which layers `sliding_window` is about.
    pub(crate) sliding_window: SlidingWindow,
    /// Positions of layers with a window.
    pub(crate) local_positions: LocalPositions,
    /// Values of keys that `config.json` does not have.
    pub(crate) defaults: Defaults,
    /// A dialog begins with BOS where the tokenizer's configuration does not decide it.
    pub(crate) prepends_bos: bool,
    /// llama.cpp's converter stores the rows of Q and K as the pairs `(0, d/2), (1, d/2 + 1), ...`.
    pub(crate) gguf_paired_heads: bool,
}

/// Values of keys that `config.json` does not have, as in Hugging Face transformers.
pub(crate) struct Defaults {
    /// Width of a head; `None` for hidden size over heads.
    pub(crate) head_dim: Option<usize>,
    /// Added to the mean square in norms.
    pub(crate) norm_eps: f64,
    /// Base of the rotary angles.
    pub(crate) theta: f64,
    /// The part of a head that is rotated.
    pub(crate) rotary_part: f64,
    /// The LM head is the embedding.
    pub(crate) tied: bool,
    /// Of the feed-forward part.
    pub(crate) activation: Activation,
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
    /// When `use_qkv_bias` is true.
    QkvKey,
}

impl FamilyInfo {
    /// Llama's own values, from which a family's file starts.
    pub(crate) const LLAMA: Self = Self {
        name: "llama",
        class: "LlamaForCausalLM",
        gguf: None,
        qkv_bias: Bias::AttentionKey,
        o_bias: Bias::AttentionKey,
        mlp_bias: Bias::MlpKey,
        fused: &[],
        gated: true,
        learned_positions: false,
        norm: NormKind::Rms,
        norm_place: NormPlace::Before,
        qk_norm: QkNorm::None,
        factors: FactorKeys::None,
        no_rope_keys: false,
        sliding_window: SlidingWindow::All { default: None },
        local_positions: LocalPositions::Same,
        defaults: Defaults::LLAMA,
        prepends_bos: true,
        gguf_paired_heads: false,
    };

    /// The key of the number that is added in norms.
    pub(crate) const fn eps_key(&self) -> &'static str {
        match self.norm {
            NormKind::Layer if self.learned_positions => "layer_norm_epsilon",
            NormKind::Layer => "layer_norm_eps",
            NormKind::Rms | NormKind::RmsPlusOne => "rms_norm_eps",
        }
    }

    /// The key of the activation.
    pub(crate) const fn activation_key(&self) -> &'static str {
        match self.factors {
            FactorKeys::Gemma { .. } => "hidden_activation",
            _ if self.learned_positions => "activation_function",
            _ => "hidden_act",
        }
    }

    /// The biases of a model whose configuration has `true` for the keys of which `on` says so.
    pub(crate) fn biases(&self, on: impl Fn(&'static str) -> bool) -> Biases {
        let has = |rule: Bias| rule == Bias::Always || rule.key().is_some_and(&on);
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
            Self::QkvKey => Some("use_qkv_bias"),
            Self::Always | Self::Never => None,
        }
    }
}

impl Defaults {
    pub(crate) const LLAMA: Self = Self {
        head_dim: None,
        norm_eps: 1e-6,
        theta: 10_000.0,
        rotary_part: 1.0,
        tied: false,
        activation: Activation::Silu,
    };
}

/// Reads a configuration; special tokens and sampler are left at their defaults.
///
/// # Errors
/// Missing keys, values of another type or out of range, features that the skeleton does not have, extents that do not fit
/// together.
pub(super) fn read(config: &Object<'_>, family: Family) -> Result<ModelSpec> {
    let info = family.info();
    let defaults = &info.defaults;
    refuse_unsupported(config)?;
    if info.learned_positions {
        return gpt2::read(config, family);
    }
    let activation = activation(config, info)?;
    let hidden = config.needed_count("hidden_size", 1..=MAX_WIDTH)?;
    let n_heads = config.needed_count("num_attention_heads", 1..=MAX_COUNT)?;
    let n_kv_heads = config.count("num_key_value_heads", 1..=MAX_COUNT)?.unwrap_or(n_heads);
    let head_dim = match config.count("head_dim", 2..=MAX_COUNT)?.or(defaults.head_dim) {
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
    let eps = config.number(info.eps_key(), 0.0..=1.0, "a number from 0 to 1")?;
    let rope::ByLayer { mut rope, mut windowed } = rope::read(config, info)?;
    let rotary_dim = (head_dim as f64 * rope.part) as usize;
    if rotary_dim < 2 || !rotary_dim.is_multiple_of(2) {
        let expected = format!("an even number of the {head_dim} elements of a head, at least 2");
        return Err(config.bad("partial_rotary_factor", format!("{}, {rotary_dim} elements", rope.part), &expected));
    }
    rope.fit(config, rotary_dim / 2, windowed.as_mut())?;
    let rotated_layers = layers::rotated(config, info.no_rope_keys, n_layers)?;
    let window = layers::window(config, info.sliding_window, &rotated_layers)?;
    local_rope::check_window(config, info.local_positions, window.as_ref())?;
    let mut on = Vec::new();
    for key in [Some("attention_bias"), Some("mlp_bias"), info.qkv_bias.key()].into_iter().flatten() {
        if config.flag(key)? == Some(true) {
            on.push(key);
        }
    }
    Ok(ModelSpec {
        family,
        n_layers,
        hidden,
        n_heads,
        n_kv_heads,
        head_dim,
        rotary_dim,
        ffn: config.needed_count("intermediate_size", 1..=MAX_WIDTH)?,
        vocab: config.needed_count("vocab_size", 1..=i32::MAX as usize)?,
        norm: info.norm,
        norm_place: info.norm_place,
        norm_eps: eps.unwrap_or(defaults.norm_eps) as f32,
        activation,
        gated: info.gated,
        factors: factors::read(config, info.factors, hidden, head_dim)?,
        local_rope: local_rope::read(config, info.local_positions, &rope, windowed)?,
        rope,
        window,
        rotated_layers,
        learned_positions: None,
        max_positions: config.count("max_position_embeddings", 1..=u32::MAX as usize)?,
        tied: config.flag("tie_word_embeddings")?.unwrap_or(defaults.tied),
        biases: info.biases(|key| on.contains(&key)),
        qk_norm: info.qk_norm,
        eagle: None,
        tokens: SpecialTokens::default(),
        sampler: SamplerDefaults::default(),
    })
}

/// The activation of the feed-forward part.
pub(super) fn activation(config: &Object<'_>, info: &FamilyInfo) -> Result<Activation> {
    let key = info.activation_key();
    let Some(name) = config.text(key)? else { return Ok(info.defaults.activation) };
    let names = || Activation::NAMES.map(|(name, _)| name).join(", ");
    Activation::by_name(name).ok_or_else(|| config.unsupported(key, shown_key(name), &format!("one of {}", names())))
}

/// Refuses features that the skeleton does not have.
fn refuse_unsupported(config: &Object<'_>) -> Result<()> {
    for key in ["num_experts", "num_local_experts", "n_routed_experts"] {
        if let Some(n) = config.count(key, 0..=MAX_COUNT)?.filter(|n| *n > 0) {
            return Err(config.unsupported(key, n, "no mixture of experts"));
        }
    }
    if let Some(quantised) = config.object("quantization_config")? {
        let method = quantised.text("quant_method")?.unwrap_or("no method named");
        return Err(config.unsupported("quantization_config", shown_key(method), "float weights (f32, f16, bf16)"));
    }
    Ok(())
}
