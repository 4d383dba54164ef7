//! Phi 3, 3.5, 4 and 4 mini: Llama's graph with the projections of attention and feed-forward part in one tensor each.
//!
//! *Source*: `Phi3Config` and the modules of `Phi3ForCausalLM` in Hugging Face transformers. Phi 4 mini rotates three quarters of
//! each head.

use super::fused::{GATE_UP, QKV};
use super::skeleton::{Bias, Defaults, FamilyInfo};

pub(super) const FAMILY: FamilyInfo = FamilyInfo {
    name: "phi3",
    class: "Phi3ForCausalLM",
    gguf: Some("phi3"),
    qkv_bias: Bias::Never,
    o_bias: Bias::Never,
    mlp_bias: Bias::Never,
    fused: &[QKV, GATE_UP],
    defaults: Defaults { norm_eps: 1e-5, ..Defaults::LLAMA },
    prepends_bos: false,
    ..FamilyInfo::LLAMA
};
