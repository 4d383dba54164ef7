//! Mistral: Llama's graph without biases; the first models have an attention window. (In GGUF files it is `llama`.)
//!
//! *Source*: `MistralConfig` of Hugging Face transformers; a configuration without `sliding_window` has one of 4096 tokens there.

use super::SlidingWindow;
use super::skeleton::{Bias, FamilyInfo};

pub(super) const FAMILY: FamilyInfo = FamilyInfo {
    name: "mistral",
    class: "MistralForCausalLM",
    qkv_bias: Bias::Never,
    o_bias: Bias::Never,
    mlp_bias: Bias::Never,
    sliding_window: SlidingWindow::All { default: Some(4096) },
    ..FamilyInfo::LLAMA
};
