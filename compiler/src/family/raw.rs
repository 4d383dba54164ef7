//! `config.json` as it is written: every key that has an effect here, all optional, unknown ones ignored.

use serde::Deserialize;
use serde_json::Value;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RawConfig {
    pub(super) architectures: Option<Vec<String>>,
    pub(super) model_type: Option<String>,
    pub(super) vocab_size: Option<usize>,
    pub(super) hidden_size: Option<usize>,
    pub(super) intermediate_size: Option<usize>,
    pub(super) num_hidden_layers: Option<usize>,
    pub(super) num_attention_heads: Option<usize>,
    pub(super) num_key_value_heads: Option<usize>,
    pub(super) head_dim: Option<usize>,
    pub(super) max_position_embeddings: Option<usize>,
    pub(super) rms_norm_eps: Option<f64>,
    pub(super) hidden_act: Option<String>,
    pub(super) tie_word_embeddings: Option<bool>,
    pub(super) attention_bias: Option<bool>,
    pub(super) mlp_bias: Option<bool>,
    // Positions: the older two keys, and the one that replaced both.
    pub(super) rope_theta: Option<f64>,
    pub(super) rope_scaling: Option<RawRope>,
    pub(super) rope_parameters: Option<RawRope>,
    pub(super) partial_rotary_factor: Option<f64>,
    // Features that are refused when they are on.
    pub(super) use_sliding_window: Option<bool>,
    pub(super) sliding_window: Option<usize>,
    pub(super) layer_types: Option<Vec<String>>,
    pub(super) num_experts: Option<usize>,
    pub(super) num_local_experts: Option<usize>,
    pub(super) n_routed_experts: Option<usize>,
    pub(super) quantization_config: Option<Value>,
    // Ids.
    pub(super) bos_token_id: Option<OneOrMany>,
    pub(super) eos_token_id: Option<OneOrMany>,
    pub(super) pad_token_id: Option<i64>,
}

/// `rope_scaling`, or the newer `rope_parameters`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RawRope {
    pub(super) rope_type: Option<String>,
    /// The name of `rope_type` in older files.
    pub(super) r#type: Option<String>,
    pub(super) rope_theta: Option<f64>,
    pub(super) factor: Option<f64>,
    pub(super) low_freq_factor: Option<f64>,
    pub(super) high_freq_factor: Option<f64>,
    pub(super) original_max_position_embeddings: Option<f64>,
    pub(super) partial_rotary_factor: Option<f64>,
}

/// A token id, or a list of them; some checkpoints write -1 for none.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum OneOrMany {
    One(i64),
    Many(Vec<i64>),
}

impl OneOrMany {
    pub(super) fn ids(&self) -> &[i64] {
        match self {
            Self::One(id) => core::slice::from_ref(id),
            Self::Many(ids) => ids,
        }
    }
}
