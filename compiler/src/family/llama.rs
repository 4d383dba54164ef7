//! Llama: grouped-query attention, SwiGLU, optional biases, `llama3` rotary scaling.
//!
//! *Source*: `LlamaConfig` of Hugging Face transformers.

use super::skeleton::{Bias, FamilyInfo, SlidingWindow};

pub(super) const FAMILY: FamilyInfo = FamilyInfo {
    name: "llama",
    class: "LlamaForCausalLM",
    qkv_bias: Bias::AttentionKey,
    o_bias: Bias::AttentionKey,
    mlp_bias: Bias::MlpKey,
    qk_norm: false,
    default_head_dim: None,
    // Not a key of Llama itself, but of models that reuse its class.
    sliding_window: SlidingWindow::OnByDefault,
    prepends_bos: true,
    gguf_paired_heads: true,
};
