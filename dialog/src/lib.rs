//! Tokenizer, sampler, stop rules, conversation, KPIs and Genie's JSON config.
#![forbid(unsafe_code)]

pub mod sampler;

pub use sampler::{Sampler, SamplerError, SamplerSettings};
