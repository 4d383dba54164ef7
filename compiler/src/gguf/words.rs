//! Errors of the compiler in the words of a GGUF file: its names of tensors, its keys.

use super::{GgufError, gguf_name};
use crate::CompileError;
use crate::family::Family;
use std::path::Path;

/// Keys of `config.json` and what they are made of: a key of the model's own, or a whole key.
const KEYS: [(&str, &str); 22] = [
    ("num_hidden_layers", ".block_count"),
    ("hidden_size", ".embedding_length"),
    ("num_attention_heads", ".attention.head_count"),
    ("num_key_value_heads", ".attention.head_count_kv"),
    ("head_dim", ".attention.key_length"),
    ("intermediate_size", ".feed_forward_length"),
    ("max_position_embeddings", ".context_length"),
    ("rms_norm_eps", ".attention.layer_norm_rms_epsilon"),
    ("layer_norm_eps", ".attention.layer_norm_epsilon"),
    ("layer_norm_epsilon", ".attention.layer_norm_epsilon"),
    ("rope_theta", ".rope.freq_base"),
    ("rope_local_base_freq", ".rope.freq_base_swa"),
    ("partial_rotary_factor", ".rope.dimension_count"),
    ("sliding_window", ".attention.sliding_window"),
    ("sliding_window_pattern", ".attention.sliding_window_pattern"),
    ("embedding_multiplier", ".embedding_scale"),
    ("residual_multiplier", ".residual_scale"),
    ("attention_multiplier", ".attention.scale"),
    ("logits_scaling", ".logit_scale"),
    ("bos_token_id", "tokenizer.ggml.bos_token_id"),
    ("eos_token_id", "tokenizer.ggml.eos_token_id"),
    ("pad_token_id", "tokenizer.ggml.padding_token_id"),
];

/// Turns errors about tensors under Hugging Face's names into errors about the file's tensors.
pub(crate) fn in_stored_words(path: &Path, family: Family, error: CompileError) -> CompileError {
    use CompileError::{
        F16Overflow, LayerCount, ListInBlocks, MissingTensor, NoBlocks, NotFinite, ScaleOverflow, UnreadTensors,
        UnsupportedDtype, WrongShape,
    };
    let stored = |name: String| gguf_name(&name, family).unwrap_or(name);
    let path = || path.to_path_buf();
    match error {
        MissingTensor { name, .. } => GgufError::MissingTensor { path: path(), name: stored(name) }.into(),
        WrongShape { name, expected, found } => {
            GgufError::Shape { path: path(), name: stored(name), expected, found }.into()
        }
        UnsupportedDtype { name, found } => {
            let expected = super::types::READ.into();
            GgufError::TensorType { path: path(), name: stored(name), found, expected }.into()
        }
        ListInBlocks { name, found } => {
            let expected = "floats: it is a list".into();
            GgufError::TensorType { path: path(), name: stored(name), found, expected }.into()
        }
        UnreadTensors { family, names, n_others, .. } => {
            GgufError::UnreadTensors { path: path(), family, names, n_others }.into()
        }
        LayerCount { key, configured, found } => GgufError::Blocks { path: path(), key, configured, found }.into(),
        NotFinite { name, index, value } => NotFinite { name: stored(name), index, value },
        NoBlocks { name, dims, block } => NoBlocks { name: stored(name), dims, block },
        ScaleOverflow { name, value } => ScaleOverflow { name: stored(name), value },
        F16Overflow { name, index, value } => F16Overflow { name: stored(name), index, value },
        other => other,
    }
}

/// Turns errors about keys of `config.json` into errors about the file's keys.
pub(crate) fn in_stored_keys(path: &Path, family: Family, error: CompileError) -> CompileError {
    let stored = |key: &str| {
        let (_, theirs) = KEYS.iter().find(|(ours, _)| *ours == key)?;
        Some(if theirs.starts_with('.') { format!("{}{theirs}", family.gguf_name()) } else { theirs.to_string() })
    };
    let path = path.to_path_buf();
    match &error {
        CompileError::ConfigMissing { key, .. } => match stored(key) {
            Some(key) => GgufError::MissingKey { path, key }.into(),
            None => error,
        },
        CompileError::ConfigValue { key, found, expected, .. } => match stored(key) {
            Some(key) => {
                let named = |text: &str| {
                    KEYS.iter().fold(text.to_string(), |text, (ours, _)| match stored(ours) {
                        Some(theirs) => text.replace(ours, &format!("`{theirs}`")),
                        None => text,
                    })
                };
                GgufError::Key { path, key, found: named(found), expected: named(expected) }.into()
            }
            None => error,
        },
        CompileError::TokenOutOfRange { key, id, vocab } => match stored(key) {
            Some(key) => {
                let expected = format!("an id below {vocab}, the rows of the embedding");
                GgufError::Key { path, key, found: id.to_string(), expected }.into()
            }
            None => error,
        },
        _ => error,
    }
}
