//! Granite 3: Llama's graph with factors on embedding, residual stream, scores and logits.
//!
//! *Source*: `GraniteConfig` and `GraniteForCausalLM` of Hugging Face transformers. Scores are multiplied by
//! `attention_multiplier` alone, which is 1 where there is no such key; logits are divided by `logits_scaling`.

use super::FactorKeys;
use super::skeleton::FamilyInfo;

pub(super) const FAMILY: FamilyInfo = FamilyInfo {
    name: "granite",
    class: "GraniteForCausalLM",
    gguf: Some("granite"),
    factors: FactorKeys::Multipliers,
    prepends_bos: false,
    gguf_paired_heads: true,
    ..FamilyInfo::LLAMA
};
