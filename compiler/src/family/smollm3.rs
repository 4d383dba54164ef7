//! SmolLM3: Llama's graph in which every fourth layer does not rotate queries and keys.
//!
//! *Source*: `SmolLM3Config` of Hugging Face transformers.

use super::SlidingWindow;
use super::skeleton::{Defaults, FamilyInfo};

pub(super) const FAMILY: FamilyInfo = FamilyInfo {
    name: "smollm3",
    class: "SmolLM3ForCausalLM",
    gguf: Some("smollm3"),
    no_rope_keys: true,
    sliding_window: SlidingWindow::OffByDefault,
    defaults: Defaults { theta: 2_000_000.0, tied: true, ..Defaults::LLAMA },
    prepends_bos: false,
    gguf_paired_heads: true,
    ..FamilyInfo::LLAMA
};
