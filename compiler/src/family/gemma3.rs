//! Gemma 3, text: Gemma 2's norms and scales, norms on queries and keys in place of the caps, and an attention window in five of
//! six layers, whose positions have a base of their own.
//!
//! *Source*: `Gemma3TextConfig` and `Gemma3ForCausalLM` of Hugging Face transformers. The models with images are of another class.

use super::skeleton::{Bias, Defaults, FamilyInfo};
use super::{Activation, FactorKeys, LocalPositions, NormKind, NormPlace, QkNorm, SlidingWindow};

pub(super) const FAMILY: FamilyInfo = FamilyInfo {
    name: "gemma3_text",
    class: "Gemma3ForCausalLM",
    gguf: Some("gemma3"),
    mlp_bias: Bias::Never,
    norm: NormKind::RmsPlusOne,
    norm_place: NormPlace::Both,
    qk_norm: QkNorm::Heads,
    factors: FactorKeys::Gemma { caps: [None, None] },
    sliding_window: SlidingWindow::AllBut { every: 6, default: 4096 },
    local_positions: LocalPositions::OwnBase(10_000.0),
    defaults: Defaults {
        head_dim: Some(256),
        theta: 1_000_000.0,
        tied: true,
        activation: Activation::GeluTanh,
        ..Defaults::LLAMA
    },
    ..FamilyInfo::LLAMA
};
