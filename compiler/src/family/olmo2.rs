//! OLMo 2: norms behind attention and feed-forward part instead of before them, and over all queries, and all keys, of a token.
//!
//! *Source*: `Olmo2Config` and `Olmo2ForCausalLM` of Hugging Face transformers.

use super::skeleton::{Bias, Defaults, FamilyInfo};
use super::{NormPlace, QkNorm};

pub(super) const FAMILY: FamilyInfo = FamilyInfo {
    name: "olmo2",
    class: "Olmo2ForCausalLM",
    gguf: Some("olmo2"),
    mlp_bias: Bias::Never,
    norm_place: NormPlace::After,
    qk_norm: QkNorm::Whole,
    defaults: Defaults { norm_eps: 1e-5, ..Defaults::LLAMA },
    prepends_bos: false,
    ..FamilyInfo::LLAMA
};
