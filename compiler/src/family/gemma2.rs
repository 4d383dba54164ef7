//! Gemma 2: norms on both sides of attention and feed-forward part, their weights stored less one; the embedding times the root
//! of its width; GELU; scores and logits bounded; an attention window in every second layer.
//!
//! *Source*: `Gemma2Config` and `Gemma2ForCausalLM` of Hugging Face transformers. *Trap*: transformers rounds the root of the
//! width to the type of the weights (55.5 for 3072 in bfloat16); here it has all its digits.

use super::skeleton::{Bias, Defaults, FamilyInfo};
use super::{Activation, FactorKeys, NormKind, NormPlace, SlidingWindow};

pub(super) const FAMILY: FamilyInfo = FamilyInfo {
    name: "gemma2",
    class: "Gemma2ForCausalLM",
    gguf: Some("gemma2"),
    mlp_bias: Bias::Never,
    norm: NormKind::RmsPlusOne,
    norm_place: NormPlace::Both,
    factors: FactorKeys::Gemma { caps: [Some(50.0), Some(30.0)] },
    sliding_window: SlidingWindow::AllBut { every: 2, default: 4096 },
    defaults: Defaults { head_dim: Some(256), tied: true, activation: Activation::GeluTanh, ..Defaults::LLAMA },
    ..FamilyInfo::LLAMA
};
