//! Llama: grouped-query attention, SwiGLU, optional biases, `llama3` rotary scaling.
//!
//! *Source*: `LlamaConfig` of Hugging Face transformers.

use super::common::{base, refuse};
use super::raw::RawConfig;
use super::{Biases, Family, ModelSpec};
use crate::Result;

pub(super) fn spec(raw: &RawConfig) -> Result<ModelSpec> {
    // Not a key of Llama's own, but of models that borrow its name.
    if let Some(window) = raw.sliding_window.filter(|_| raw.use_sliding_window != Some(false)) {
        return Err(refuse("sliding_window", window, "null"));
    }
    let attention = raw.attention_bias.unwrap_or(false);
    let biases = Biases { qkv: attention, o: attention, mlp: raw.mlp_bias.unwrap_or(false) };
    Ok(ModelSpec { biases, ..base(raw, Family::Llama)? })
}
