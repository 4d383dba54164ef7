//! Plan, graphs and cache together: bundles in, logits out.
#![forbid(unsafe_code)]

pub mod config;
pub mod error;
pub mod model;
pub mod step_log;

pub use config::{EmbeddingLut, EngineConfig, LutDtype, RopeConfig, RopeScaling};
pub use error::EngineError;
pub use kvmanager::{ModeKind, Policy};
pub use model::TokenModel;
pub use nsp_graph::GroupOptions;
pub use step_log::StepLog;
