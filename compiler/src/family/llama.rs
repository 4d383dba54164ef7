//! Llama: grouped-query attention, SwiGLU, optional biases, `llama3` rotary scaling.
//!
//! *Source*: `LlamaConfig` of Hugging Face transformers. `sliding_window` is no key of Llama itself, but of models that reuse
//! its class.

use super::skeleton::FamilyInfo;

pub(super) const FAMILY: FamilyInfo = FamilyInfo { gguf: Some("llama"), gguf_paired_heads: true, ..FamilyInfo::LLAMA };
