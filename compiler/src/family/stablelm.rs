//! StableLM 3B and StableLM 2: layer norms with biases, and a part of each head rotated.
//!
//! *Source*: `StableLmConfig` and `StableLmForCausalLM` of Hugging Face transformers. Norms on heads and the parallel form of the
//! 12B model are refused by their keys.

use super::NormKind;
use super::skeleton::{Bias, Defaults, FamilyInfo};

pub(super) const FAMILY: FamilyInfo = FamilyInfo {
    name: "stablelm",
    class: "StableLmForCausalLM",
    gguf: Some("stablelm"),
    qkv_bias: Bias::QkvKey,
    o_bias: Bias::Never,
    mlp_bias: Bias::Never,
    norm: NormKind::Layer,
    defaults: Defaults { norm_eps: 1e-5, rotary_part: 0.25, ..Defaults::LLAMA },
    prepends_bos: false,
    ..FamilyInfo::LLAMA
};
