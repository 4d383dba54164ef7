//! Qwen 3: RMS norms on each query and key head before the rotation; `head_dim` does not follow from the hidden width.
//!
//! *Source*: `Qwen3Config` and the attention of `Qwen3ForCausalLM` in Hugging Face transformers.

use super::skeleton::{Bias, Defaults, FamilyInfo};
use super::{QkNorm, SlidingWindow};

pub(super) const FAMILY: FamilyInfo = FamilyInfo {
    name: "qwen3",
    class: "Qwen3ForCausalLM",
    gguf: Some("qwen3"),
    mlp_bias: Bias::Never,
    qk_norm: QkNorm::Heads,
    sliding_window: SlidingWindow::OffByDefault,
    defaults: Defaults { head_dim: Some(128), ..Defaults::LLAMA },
    prepends_bos: false,
    ..FamilyInfo::LLAMA
};
