//! Plan, graphs and cache together: bundles in, logits out.
#![forbid(unsafe_code)]

mod buffer;
mod codes;
pub mod config;
mod embed;
mod engine;
pub mod error;
pub mod executor;
mod feed;
mod io;
mod load;
mod mask;
pub mod model;
mod qnn;
mod rope;
pub mod step_log;

#[cfg(test)]
mod tests;

pub use config::{EmbeddingLut, EngineConfig, LutDtype, RopeConfig, RopeScaling};
pub use engine::Engine;
pub use error::EngineError;
pub use executor::{Binding, ExecuteError, Executor};
pub use kvmanager::{ModeKind, Policy};
pub use model::TokenModel;
pub use nsp_graph::GroupOptions;
pub use qnn::QnnExecutor;
pub use step_log::StepLog;
