//! Tokenizer, sampler, stop rules, conversation, KPIs and Genie's JSON config.
#![forbid(unsafe_code)]

pub mod config;
pub mod conversation;
pub mod kpi;
pub mod sampler;
pub mod tokenizer;

pub use config::{ConfigError, DialogConfig};
pub use conversation::{Chunk, Control, Dialog, DialogError, Reply, SentenceCode, Signal, StopReason};
pub use kpi::{Profile, QueryKpis};
pub use sampler::{Sampler, SamplerError, SamplerSettings};
pub use tokenizer::{Detokenizer, Tokenizer, TokenizerError};
