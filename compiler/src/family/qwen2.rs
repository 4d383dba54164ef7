//! Qwen 2 and 2.5: Llama's graph with biases on Q, K and V, whatever the configuration says.
//!
//! *Source*: `Qwen2Config` and the attention of `Qwen2ForCausalLM` in Hugging Face transformers.

use super::common::{base, refuse_switched_window};
use super::raw::RawConfig;
use super::{Biases, Family, ModelSpec};
use crate::Result;

pub(super) fn spec(raw: &RawConfig) -> Result<ModelSpec> {
    refuse_switched_window(raw)?;
    let biases = Biases { qkv: true, o: false, mlp: false };
    Ok(ModelSpec { biases, ..base(raw, Family::Qwen2)? })
}
