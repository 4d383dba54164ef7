//! The keys of `config.json` that no family reads: harmless ones, those whose value must be the one that this compiler computes
//! with, and unknown ones.
//!
//! A key that nothing reads may still change what the model computes, and the text would be wrong without a word. So a key with a
//! name from the vocabulary of model mathematics is refused unless its value turns it off; other unknown keys are named in a note.

use super::{Activation, ModelSpec, NormKind, QkNorm};
use crate::Result;
use crate::json::{Object, shown, shown_key};
use serde_json::Value;

/// Keys without effect on a graph: training, labels, exporters, defaults of generation, lengths that nothing depends on.
const HARMLESS: &[&str] = &[
    "_commit_hash",
    "_name_or_path",
    "architectures",
    "attn_implementation",
    "auto_map",
    "bad_words_ids",
    "begin_suppress_tokens",
    "bos_token",
    "cache_implementation",
    "chunk_size_feed_forward",
    "do_sample",
    "dtype",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "eos_token",
    "exponential_decay_length_penalty",
    "finetuning_task",
    "fp16",
    "bf16",
    "gradient_checkpointing",
    "id2label",
    "initializer_factor",
    "initializer_range",
    "is_decoder",
    "is_llama_config",
    "label2id",
    "layerdrop",
    "length_penalty",
    "max_length",
    "max_seq_len",
    "max_sequence_length",
    "min_length",
    "model_max_length",
    "n_ctx",
    "n_positions",
    "name_or_path",
    "neftune_noise_alpha",
    "num_labels",
    "num_logits_to_keep",
    "num_return_sequences",
    "output_attentions",
    "output_hidden_states",
    "output_scores",
    "pretraining_tp",
    "problem_type",
    "remove_invalid_values",
    "repetition_penalty",
    "return_dict",
    "return_dict_in_generate",
    "seq_length",
    "suppress_tokens",
    "task_specific_params",
    "temperature",
    "tie_encoder_decoder",
    "top_k",
    "top_p",
    "torch_dtype",
    "torchscript",
    "transformers.js_config",
    "transformers_version",
    "typical_p",
    "use_bfloat16",
    "use_cache",
];

/// Parts of names of more of them.
const HARMLESS_PARTS: &[&str] = &[
    "dropout",
    "pdrop",
    "_token_id",
    "tokenizer",
    "_attn_implementation",
    "flash_attn",
    "flash_attention",
    "unsloth",
    "_init_std",
    // Of GPT-2's head for multiple choice.
    "summary_",
];

/// A key that may have one value only: what this compiler computes with anyway.
struct Fixed {
    keys: &'static [&'static str],
    fits: fn(&Value, &ModelSpec) -> bool,
    accepted: &'static str,
}

const FIXED: &[Fixed] = &[
    Fixed {
        keys: &["n_layer", "n_layers", "num_layers"],
        fits: |v, spec| is(v, spec.n_layers),
        accepted: "the value of num_hidden_layers",
    },
    Fixed {
        keys: &["n_embd", "d_model", "model_dim"],
        fits: |v, spec| is(v, spec.hidden),
        accepted: "the value of hidden_size",
    },
    Fixed {
        keys: &["n_head", "n_heads", "num_heads"],
        fits: |v, spec| is(v, spec.n_heads),
        accepted: "the value of num_attention_heads",
    },
    Fixed {
        keys: &["n_head_kv", "n_kv_heads", "num_kv_heads", "multi_query_group_num"],
        fits: |v, spec| is(v, spec.n_kv_heads),
        accepted: "the value of num_key_value_heads",
    },
    Fixed {
        keys: &["kv_channels", "qk_head_dim", "v_head_dim"],
        fits: |v, spec| is(v, spec.head_dim),
        accepted: "the width of a head",
    },
    Fixed {
        keys: &["rotary_dim", "rotary_ndims", "rotary_emb_dim"],
        fits: |v, spec| is(v, spec.rotary_dim),
        accepted: "the part of a head that is rotated",
    },
    Fixed {
        keys: &["ffn_hidden_size", "n_inner", "d_ff", "ffn_dim"],
        fits: |v, spec| is(v, spec.ffn),
        accepted: "the value of intermediate_size",
    },
    Fixed {
        keys: &["padded_vocab_size", "n_vocab"],
        fits: |v, spec| is(v, spec.vocab),
        accepted: "the value of vocab_size",
    },
    Fixed {
        keys: &["original_max_position_embeddings"],
        fits: |v, spec| spec.max_positions.is_some_and(|n| is(v, n)),
        accepted: "the value of max_position_embeddings",
    },
    Fixed {
        keys: &[
            "layer_norm_eps",
            "layer_norm_epsilon",
            "layernorm_epsilon",
            "norm_eps",
            "norm_epsilon",
            "rms_norm_epsilon",
        ],
        fits: |v, spec| v.as_f64().is_some_and(|eps| eps as f32 == spec.norm_eps),
        accepted: "the value of rms_norm_eps",
    },
    Fixed {
        keys: &["qk_norm", "use_qk_norm", "qk_layernorm", "qk_layer_norm"],
        fits: |v, spec| *v == (spec.qk_norm != QkNorm::None),
        accepted: "what the family has",
    },
    Fixed {
        keys: &["qkv_bias", "add_qkv_bias", "use_qkv_bias"],
        fits: |v, spec| *v == spec.biases.qkv,
        accepted: "what the family has",
    },
    Fixed {
        keys: &["activation", "activation_function", "hidden_act", "hidden_activation", "act_fn", "ffn_act"],
        fits: |v, spec| v.as_str().and_then(Activation::by_name) == Some(spec.activation),
        accepted: "the activation of the family",
    },
    Fixed {
        keys: &["position_embedding_type", "position_encoding_type"],
        fits: |v, spec| match spec.learned_positions {
            Some(_) => matches!(v.as_str(), Some("absolute" | "learned")),
            None => matches!(v.as_str(), Some("rope" | "rotary")),
        },
        accepted: "what the family has",
    },
    Fixed {
        keys: &["norm_type", "normalization", "normalization_type", "norm_class_name"],
        fits: |v, spec| v.as_str().is_some_and(|name| name.to_lowercase().replace(['_', '-'], "") == norm_name(spec)),
        accepted: "what the family has",
    },
    Fixed { keys: &["is_causal", "causal"], fits: |v, _| *v == true, accepted: "true" },
    Fixed { keys: &["query_pre_attn_scalar"], fits: |v, spec| is(v, spec.head_dim), accepted: "the width of a head" },
    Fixed {
        keys: &["attention_multiplier", "attention_scale", "attn_scale", "softmax_scale"],
        fits: |v, spec| v.as_f64().is_some_and(|s| (s * (spec.head_dim as f64).sqrt() - 1.0).abs() < 1e-6),
        accepted: "1 / sqrt(head_dim)",
    },
    Fixed {
        keys: &[
            "embedding_multiplier",
            "embedding_scale",
            "residual_multiplier",
            "residual_scale",
            "logit_scale",
            "logits_scale",
            "logits_scaling",
            "lm_head_multiplier",
            "key_multiplier",
            "scale_emb",
            "rope_ratio",
        ],
        fits: |v, _| v.as_f64() == Some(1.0),
        accepted: "1",
    },
    Fixed {
        keys: &["rotary_pct", "rotary_percent", "rope_pct"],
        fits: |v, spec| v.as_f64() == Some(spec.rope.part),
        accepted: "the part of a head that is rotated",
    },
];

/// Parts of names that are those of model mathematics.
const MATHEMATICS: &[&str] = &[
    "act_",
    "alibi",
    "attention",
    "attn",
    "audio",
    "bias",
    "causal",
    "clamp",
    "clip",
    "compress",
    "conv",
    "cross",
    "decoder",
    "eps",
    "expert",
    "factor",
    "ffn",
    "gate",
    "gating",
    "head",
    "hidden",
    "image",
    "intermediate",
    "kv",
    "layer",
    "logit",
    "lora",
    "mamba",
    "mask",
    "merg",
    "mixture",
    "mlp",
    "moe",
    "mtp",
    "mult",
    "nextn",
    "norm",
    "pool",
    "position",
    "prun",
    "qk",
    "quant",
    "recur",
    "residual",
    "rope",
    "rotary",
    "scal",
    "shift",
    "skip",
    "slid",
    "softcap",
    "softmax",
    "sparse",
    "ssm",
    "temperature",
    "text_config",
    "theta",
    "tie_",
    "topk",
    "vision",
    "window",
    "yarn",
];

/// Parts of names of numbers of which 0 is as effective as any other.
const FACTORS: &[&str] = &["eps", "factor", "mult", "norm", "pct", "percent", "ratio", "scal", "temperature", "theta"];

/// Checks the keys of `config.json` that were not read, and adds a note about those that are not known.
///
/// # Errors
/// A key whose value asks for other mathematics; an unknown one that may.
pub(super) fn check_config(config: &Object<'_>, spec: &ModelSpec, notes: &mut Vec<String>) -> Result<()> {
    let mut unknown = Vec::new();
    for (key, value) in config.unread() {
        if value.is_null() || is_harmless(key) {
            continue;
        }
        if let Some(fixed) = FIXED.iter().find(|fixed| fixed.keys.contains(&key)) {
            if !(fixed.fits)(value, spec) {
                return Err(config.unsupported(key, shown(value), fixed.accepted));
            }
        } else if is_off(value) {
            continue;
        } else if sounds_mathematical(key) {
            if !is_none(key, value) {
                return Err(config.unknown(key, value));
            }
        } else {
            unknown.push(format!("`{}`", shown_key(key)));
        }
    }
    if !unknown.is_empty() {
        notes.push(format!("config.json has keys that are not known and were not read: {}", unknown.join(", ")));
    }
    if let Some(map) = config.value("auto_map") {
        notes.push(format!("the model's own code is not run: config.json has `auto_map`: {}", shown(map)));
    }
    Ok(())
}

/// Keys of `generation_config.json` that are about something else than which token is drawn.
const NO_SAMPLING: &[&str] = &[
    "_from_model_config",
    "cache_implementation",
    "chat_format",
    "max_length",
    "max_new_tokens",
    "max_window_size",
    "output_attentions",
    "output_hidden_states",
    "output_logits",
    "output_scores",
    "return_dict_in_generate",
    "transformers_version",
    "trust_remote_code",
    "use_cache",
];

/// Notes what `generation_config.json` recommends and a bundle does not carry.
pub(super) fn note_generation(generation: &Object<'_>, notes: &mut Vec<String>) {
    let unread = generation.unread().into_iter().filter(|(key, value)| {
        let neutral = is_off(value) || value.as_f64() == Some(1.0);
        !neutral && !NO_SAMPLING.contains(key) && !key.ends_with("_token_id")
    });
    let listed: Vec<String> = unread.map(|(key, value)| format!("`{}` {}", shown_key(key), shown(value))).collect();
    if !listed.is_empty() {
        notes.push(format!("generation_config.json recommends what a bundle does not carry: {}", listed.join(", ")));
    }
}

const fn norm_name(spec: &ModelSpec) -> &'static str {
    if matches!(spec.norm, NormKind::Layer) { "layernorm" } else { "rmsnorm" }
}

fn is(value: &Value, n: usize) -> bool {
    value.as_u64() == Some(n as u64)
}

/// True for a value that turns a feature off.
fn is_off(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Bool(true) | Value::Number(_) => false,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
    }
}

/// True for a 0 that says "none of them"; that of a factor is another matter.
fn is_none(key: &str, value: &Value) -> bool {
    let is_factor = FACTORS.iter().any(|part| key.contains(part));
    value.as_f64() == Some(0.0) && !is_factor
}

fn is_harmless(key: &str) -> bool {
    HARMLESS.contains(&key) || HARMLESS_PARTS.iter().any(|part| key.contains(part))
}

fn sounds_mathematical(key: &str) -> bool {
    let key = key.to_lowercase();
    MATHEMATICS.iter().any(|part| key.contains(part))
}
