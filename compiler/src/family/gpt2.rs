//! GPT-2: learned positions added to the embeddings, layer norms, biases everywhere, a feed-forward part without a gate.
//!
//! Its checkpoints have other keys and other names of tensors than the Llama skeleton; both are translated here, so that the rest of the
//! compiler knows one vocabulary. Linear layers are stored as `Conv1D`, that is `[in, out]`, with Q, K and V side by side in `c_attn`
//! (`checkpoint/conv1d.rs` reads them as `[out, in]`).
//!
//! *Source*: `GPT2Config`, `GPT2LMHeadModel` and `Conv1D` of Hugging Face transformers.

use super::fused::QKV;
use super::skeleton::{self, Bias, Defaults, FamilyInfo, MAX_COUNT, MAX_WIDTH};
use super::{Activation, Factors, Family, ModelSpec, NormKind, Rope, SamplerDefaults, SpecialTokens};
use crate::json::Object;
use crate::{CompileError, Result};

pub(super) const FAMILY: FamilyInfo = FamilyInfo {
    name: "gpt2",
    class: "GPT2LMHeadModel",
    gguf: Some("gpt2"),
    qkv_bias: Bias::Always,
    o_bias: Bias::Always,
    mlp_bias: Bias::Always,
    fused: &[QKV],
    gated: false,
    learned_positions: true,
    norm: NormKind::Layer,
    defaults: Defaults { norm_eps: 1e-5, tied: true, activation: Activation::GeluTanh, ..Defaults::LLAMA },
    prepends_bos: false,
    ..FamilyInfo::LLAMA
};

/// `n_positions` where there is no key.
const POSITIONS: usize = 1024;
/// The feed-forward part is this many times as wide as the residual stream where `n_inner` is absent or null.
const FFN_FACTOR: usize = 4;

/// A count by its own key, or by the one that transformers takes for it as well.
fn count(config: &Object<'_>, keys: [&str; 2], most: usize) -> Result<Option<usize>> {
    match config.count(keys[0], 1..=most)? {
        Some(n) => Ok(Some(n)),
        None => config.count(keys[1], 1..=most),
    }
}

fn needed(config: &Object<'_>, keys: [&str; 2], most: usize) -> Result<usize> {
    match count(config, keys, most)? {
        Some(n) => Ok(n),
        None => config.needed_count(keys[0], 1..=most),
    }
}

/// Reads a configuration; special tokens and sampler are left at their defaults.
///
/// # Errors
/// Missing keys, values of another type or out of range, scores that are scaled by the layer, extents that do not fit together.
pub(super) fn read(config: &Object<'_>, family: Family) -> Result<ModelSpec> {
    let info = family.info();
    let hidden = needed(config, ["n_embd", "hidden_size"], MAX_WIDTH)?;
    let n_heads = needed(config, ["n_head", "num_attention_heads"], MAX_COUNT)?;
    let n_layers = needed(config, ["n_layer", "num_hidden_layers"], MAX_COUNT)?;
    let positions = count(config, ["n_positions", "max_position_embeddings"], u32::MAX as usize)?.unwrap_or(POSITIONS);
    let ffn = count(config, ["n_inner", "intermediate_size"], MAX_WIDTH)?.unwrap_or(FFN_FACTOR * hidden);
    if !hidden.is_multiple_of(n_heads) {
        return Err(CompileError::HeadDimUnknown { hidden, n_heads });
    }
    let head_dim = hidden / n_heads;
    if !head_dim.is_multiple_of(2) {
        return Err(config.bad("n_head", format!("{n_heads}, heads of {head_dim}"), "heads of an even width"));
    }
    for (key, wanted) in [("head_dim", head_dim), ("num_key_value_heads", n_heads)] {
        if let Some(found) = config.count(key, 1..=MAX_COUNT)?.filter(|found| *found != wanted) {
            return Err(config.bad(key, found, &wanted.to_string()));
        }
    }
    if config.flag("scale_attn_by_inverse_layer_idx")? == Some(true) {
        return Err(config.unsupported("scale_attn_by_inverse_layer_idx", true, "false"));
    }
    // How transformers orders the same arithmetic in half precision.
    config.flag("reorder_and_upcast_attn")?;
    let plain = Factors::plain(head_dim);
    let scores = if config.flag("scale_attn_weights")?.unwrap_or(true) { plain.scores } else { 1.0 };
    let eps = config.number(info.eps_key(), 0.0..=1.0, "a number from 0 to 1")?;
    Ok(ModelSpec {
        family,
        n_layers,
        hidden,
        n_heads,
        n_kv_heads: n_heads,
        head_dim,
        rotary_dim: head_dim,
        ffn,
        vocab: config.needed_count("vocab_size", 1..=i32::MAX as usize)?,
        norm: info.norm,
        norm_place: info.norm_place,
        norm_eps: eps.unwrap_or(info.defaults.norm_eps) as f32,
        activation: skeleton::activation(config, info)?,
        gated: info.gated,
        factors: Factors { scores, ..plain },
        rope: Rope { theta: info.defaults.theta, scaling: None, part: info.defaults.rotary_part },
        local_rope: None,
        rotated_layers: vec![false; n_layers],
        learned_positions: Some(positions),
        window: None,
        max_positions: Some(positions),
        tied: config.flag("tie_word_embeddings")?.unwrap_or(info.defaults.tied),
        biases: info.biases(|_| false),
        qk_norm: info.qk_norm,
        eagle: None,
        tokens: SpecialTokens::default(),
        sampler: SamplerDefaults::default(),
    })
}

/// Modules of a layer: their name in checkpoints, and here.
const PARTS: [(&str, &str); 6] = [
    ("ln_1", "input_layernorm"),
    ("attn.c_attn", QKV.0),
    ("attn.c_proj", "self_attn.o_proj"),
    ("ln_2", "post_attention_layernorm"),
    ("mlp.c_fc", "mlp.up_proj"),
    ("mlp.c_proj", "mlp.down_proj"),
];
/// Modules outside of layers.
const OUTER: [(&str, &str); 3] =
    [("wte", "model.embed_tokens"), ("wpe", "model.position_embeddings"), ("ln_f", "model.norm")];
/// What most checkpoints put before all names but the head's.
pub(crate) const PREFIX: &str = "transformer.";

/// The compiler's name of a module or tensor of a checkpoint; `None` for those that no GPT-2 has, and for the head, whose name is the same.
pub(crate) fn own_name(stored: &str) -> Option<String> {
    let inner = stored.strip_prefix(PREFIX).unwrap_or(stored);
    let rest_of = |theirs: &str, name: &str| {
        let rest = name.strip_prefix(theirs)?;
        (rest.is_empty() || rest.starts_with('.')).then(|| rest.to_owned())
    };
    if let Some((ours, rest)) = OUTER.iter().find_map(|(theirs, ours)| Some((ours, rest_of(theirs, inner)?))) {
        return Some(format!("{ours}{rest}"));
    }
    let (layer, part) = inner.strip_prefix("h.")?.split_once('.')?;
    let (ours, rest) = PARTS.iter().find_map(|(theirs, ours)| Some((ours, rest_of(theirs, part)?)))?;
    Some(format!("model.layers.{layer}.{ours}{rest}"))
}

/// The inverse of [`own_name`]; `prefix` is what the checkpoint puts before its names.
pub(crate) fn stored_name(own: &str, prefix: &str) -> Option<String> {
    let (module, end) = match own.rsplit_once('.') {
        Some((module, end @ ("weight" | "bias"))) => (module, format!(".{end}")),
        _ => (own, String::new()),
    };
    if let Some((theirs, _)) = OUTER.iter().find(|(_, ours)| *ours == module) {
        return Some(format!("{prefix}{theirs}{end}"));
    }
    let (layer, part) = module.strip_prefix("model.layers.")?.split_once('.')?;
    let (theirs, _) = PARTS.iter().find(|(_, ours)| *ours == part)?;
    Some(format!("{prefix}h.{layer}.{theirs}{end}"))
}

/// True for linear layers by their stored name: `Conv1D`, which are `[in, out]`.
pub(crate) fn is_conv1d(stored: &str) -> bool {
    [".c_attn.weight", ".c_proj.weight", ".c_fc.weight"].iter().any(|end| stored.ends_with(end))
}

/// True for the constants of the causal mask that older checkpoints have in each layer.
pub(crate) fn is_mask(stored: &str) -> bool {
    stored.ends_with(".attn.bias") || stored.ends_with(".attn.masked_bias")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_both_ways() {
        for (stored, own) in [
            ("transformer.wte.weight", "model.embed_tokens.weight"),
            ("transformer.wpe.weight", "model.position_embeddings.weight"),
            ("transformer.ln_f.bias", "model.norm.bias"),
            ("transformer.h.11.attn.c_attn.weight", "model.layers.11.self_attn.qkv_proj.weight"),
            ("transformer.h.0.attn.c_proj.bias", "model.layers.0.self_attn.o_proj.bias"),
            ("transformer.h.0.mlp.c_proj", "model.layers.0.mlp.down_proj"),
            ("transformer.h.3.ln_2.weight", "model.layers.3.post_attention_layernorm.weight"),
        ] {
            assert_eq!(own_name(stored).as_deref(), Some(own));
            assert_eq!(own_name(stored.trim_start_matches(PREFIX)).as_deref(), Some(own));
            assert_eq!(stored_name(own, PREFIX).as_deref(), Some(stored));
        }
        for unknown in
            ["lm_head.weight", "transformer.h.0.attn.c_attnx.weight", "wtee.weight", "h.0.crossattention.c_attn.weight"]
        {
            assert_eq!(own_name(unknown), None, "{unknown}");
        }
        assert!(is_mask("h.0.attn.bias") && is_mask("h.0.attn.masked_bias") && !is_mask("h.0.attn.c_attn.bias"));
        assert!(is_conv1d("h.0.attn.c_proj.weight") && !is_conv1d("h.0.attn.c_proj.bias") && !is_conv1d("wpe.weight"));
    }
}
