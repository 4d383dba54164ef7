//! Tokenizer, sampler, stop rules, conversation, KPIs and Genie's JSON config.
#![forbid(unsafe_code)]

pub mod config;
pub mod sampler;

pub use config::{ConfigError, DialogConfig};
pub use sampler::{Sampler, SamplerError, SamplerSettings};
