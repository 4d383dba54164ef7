//! Qwen 3: RMS norms on each query and key head before the rotation; `head_dim` does not follow from the hidden width.
//!
//! *Source*: `Qwen3Config` and the attention of `Qwen3ForCausalLM` in Hugging Face transformers.

use super::skeleton::{Bias, FamilyInfo, SlidingWindow};

pub(super) const FAMILY: FamilyInfo = FamilyInfo {
    name: "qwen3",
    class: "Qwen3ForCausalLM",
    qkv_bias: Bias::AttentionKey,
    o_bias: Bias::AttentionKey,
    mlp_bias: Bias::Never,
    qk_norm: true,
    default_head_dim: Some(128),
    sliding_window: SlidingWindow::OffByDefault,
    prepends_bos: false,
    gguf_paired_heads: false,
};
