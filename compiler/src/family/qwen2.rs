//! Qwen 2 and 2.5: Llama's graph with biases on Q, K and V, whatever the configuration has.
//!
//! *Source*: `Qwen2Config` and the attention of `Qwen2ForCausalLM` in Hugging Face transformers.

use super::SlidingWindow;
use super::skeleton::{Bias, FamilyInfo};

pub(super) const FAMILY: FamilyInfo = FamilyInfo {
    name: "qwen2",
    class: "Qwen2ForCausalLM",
    gguf: Some("qwen2"),
    qkv_bias: Bias::Always,
    o_bias: Bias::Never,
    mlp_bias: Bias::Never,
    sliding_window: SlidingWindow::OffByDefault,
    prepends_bos: false,
    ..FamilyInfo::LLAMA
};
