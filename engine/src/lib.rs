//! Plan, graphs and cache together: bundles in, logits out.
//!
//! ```
//! # use engine::{Binding, ExecuteError, Executor};
//! # use genie_types::{Dtype, GraphInfo, TensorInfo};
//! # struct Host;
//! # impl Executor for Host {
//! #     fn execute<'io>(&mut self, _: usize, _: usize, _: &mut dyn Iterator<Item = Binding<'io>>) -> Result<(), ExecuteError> {
//! #         Ok(())
//! #     }
//! # }
//! # let t = |name: &str, dims: &[usize], dtype| TensorInfo::new(name, dims, dtype);
//! # let graph = GraphInfo {
//! #     name: "ar4_cl4_1_of_1".into(),
//! #     inputs: vec![t("input_ids", &[1, 4], Dtype::I32), t("attention_mask", &[1, 1, 4, 4], Dtype::F32)],
//! #     outputs: vec![t("logits", &[1, 4, 10], Dtype::F32)],
//! # };
//! # let graphs = [nsp_graph::BinaryGraphs { source: "model.bin".into(), graphs: vec![graph] }];
//! use engine::{Engine, EngineConfig, TokenModel};
//! use genie_types::TokenId;
//!
//! // `Engine::open(&config, &backend)` does the same for files and a QNN backend.
//! let layout = nsp_graph::analyze(&graphs, &nsp_graph::Options::default())?;
//! let mut model = Engine::with_executor(layout, Host, &EngineConfig::new(["model.bin"]))?;
//! let logits = model.process(&[TokenId(3), TokenId(5)])?;
//! assert_eq!(logits.len(), 10);
//! assert_eq!(model.steps().runs(), [("ar4_cl4_1_of_1", 1)]);
//! # Ok::<(), engine::EngineError>(())
//! ```
//!
//! # What is in here, in reading order
//!
//! | module | holds |
//! |---|---|
//! | [`model`] | [`TokenModel`]: what a dialog sees; [`SequenceModel`]: what batching and speculation need |
//! | [`config`] | [`EngineConfig`]: the settings of an engine, as plain checked data |
//! | `load` | [`Engine::open`]: files to contexts, layout, graphs |
//! | `engine`, `run` | [`Engine`]: the run loop over a plan's steps; batches and drafts are calls of it |
//! | `graphs` | one step: inputs, splits in order, logits |
//! | `rollback`, `genie_overflow` | the way back after a failure; what libGenie does when nothing fits |
//! | [`sequences`] | the cache's operations: rewind, remove, share, copy, shift |
//! | `saved` | the cache with its sequences as a snapshot, and back |
//! | [`prefix_cache`] | [`PrefixCache`]: prompt prefixes kept on disk |
//! | [`calibrate`] | times for the planner's `Cost` policy |
//! | [`executor`] | [`Executor`]: the seam to whatever runs a graph; `qnn` is the one over QNN |
//! | `cache` | the layout's cache in kvmanager's words |
//! | `transcript` | [`Transcript`]: the tokens of a sequence, their positions, which were generated |
//! | `head` | logits for the rows that are asked for, by a narrower LM head where there is one |
//! | `io` | persistent buffers, shared by variants and between splits |
//! | `feed`, `mask`, `rope`, `embed` | what a step's inputs are filled with |
//! | `quant` | numbers to element types and back, logits among them |
//! | [`perplexity`] | NLL and perplexity of token windows |
//! | [`profile`] | [`GraphProfile`]: the backend's own times of each graph |
//! | [`step_log`] | [`StepLog`]: which graphs ran |
//! | [`error`] | [`EngineError`] |
//!
//! # What it must never know
//!
//! Text, sampling, stopping. Which QNN backend runs the graphs. How cache rows lie in memory (that is `kvmanager`'s).

#![forbid(unsafe_code)]

mod buffer;
mod cache;
pub mod calibrate;
pub mod config;
mod embed;
mod engine;
pub mod error;
pub mod executor;
mod feed;
mod genie_overflow;
mod graphs;
mod head;
mod io;
mod load;
mod mask;
pub mod model;
pub mod perplexity;
pub mod prefix_cache;
pub mod profile;
mod qnn;
mod quant;
mod rollback;
mod rope;
mod run;
mod saved;
pub mod sequences;
pub mod step_log;
mod transcript;

#[cfg(test)]
mod tests;

pub use config::{EmbeddingLut, EngineConfig, LutDtype};
pub use engine::Engine;
pub use error::EngineError;
pub use executor::{Binding, ExecuteError, Executor};
pub use genie_types::{Llama3Scaling, RopeConfig};
pub use kvmanager::{Admission, ContextLimit, Eviction, HolePolicy, ModeKind, Overflow, PlanError, Policy, SeqId};
pub use model::{SequenceModel, TokenModel};
pub use nsp_graph::GroupOptions;
pub use prefix_cache::PrefixCache;
pub use profile::{GraphProfile, GraphRun};
pub use qnn::QnnExecutor;
pub use run::SeqTokens;
pub use session_store::{CacheSchema, ModelHash, Snapshot};
pub use step_log::StepLog;
pub use transcript::Transcript;
