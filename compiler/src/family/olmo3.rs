//! OLMo 3: OLMo 2 with an attention window in three of four layers, whose positions are not scaled.
//!
//! *Trap*: versions of transformers differ. 4.57 scales the layers without a window only, as llama.cpp does; some of version 5 scale all layers.
//! Where `rope_parameters` names layer types, it decides.
//! *Source*: `Olmo3Config` and `Olmo3ForCausalLM` of Hugging Face transformers.

use super::skeleton::FamilyInfo;
use super::{LocalPositions, SlidingWindow, olmo2};

pub(super) const FAMILY: FamilyInfo = FamilyInfo {
    name: "olmo3",
    class: "Olmo3ForCausalLM",
    // llama.cpp tells them apart by the window.
    gguf: Some("olmo2"),
    sliding_window: SlidingWindow::AllBut { every: 4, default: 4096 },
    local_positions: LocalPositions::Unscaled,
    ..olmo2::FAMILY
};
