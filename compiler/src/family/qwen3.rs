//! Qwen 3: RMS norms on each query and key head before the rotation; `head_dim` does not follow from the hidden width.
//!
//! *Source*: `Qwen3Config` and the attention of `Qwen3ForCausalLM` in Hugging Face transformers.

use super::common::{base, refuse_switched_window};
use super::raw::RawConfig;
use super::{Biases, Family, ModelSpec};
use crate::Result;

/// What transformers assumes when `config.json` is silent.
const DEFAULT_HEAD_DIM: usize = 128;

pub(super) fn spec(raw: &RawConfig) -> Result<ModelSpec> {
    refuse_switched_window(raw)?;
    let attention = raw.attention_bias.unwrap_or(false);
    let mut spec = base(raw, Family::Qwen3)?;
    spec.head_dim = raw.head_dim.unwrap_or(DEFAULT_HEAD_DIM);
    spec.biases = Biases { qkv: attention, o: attention, mlp: false };
    spec.qk_norm = true;
    Ok(spec)
}
