//! Plan, graphs and cache together: bundles in, logits out.
//!
//! ```
//! use compiler::{CompileOptions, Family, Silent, compile, testmodel::TestModel};
//! use engine::{Engine, EngineConfig, RopeConfig, TokenModel};
//! use genie_types::TokenId;
//! use qnn_api::{Backend, BackendOptions, Library};
//!
//! // A small random model for AR 1 and 8, CL 64; `genie compile` makes such a bundle from any checkpoint.
//! let folder = tempfile::tempdir()?;
//! let (checkpoint, bundle) = (folder.path().join("model"), folder.path().join("bundle"));
//! let spec = TestModel::tiny(Family::Llama);
//! spec.write(&checkpoint)?;
//! let backend = Backend::new(&Library::linked(qnn_host::providers())?, &BackendOptions::default())?;
//! let options = CompileOptions { ars: vec![1, 8], cls: vec![64], ..CompileOptions::new(checkpoint, &bundle) };
//! let manifest = compile(&options, &backend, &mut Silent)?;
//!
//! let rope = RopeConfig::new(spec.head_dim / 2, spec.rope_theta).with_scaling(spec.scaling);
//! let config = EngineConfig { rope: Some(rope), ..EngineConfig::new([bundle.join(&manifest.graphs[0].file)]) };
//! let mut model = Engine::open(&config, &backend)?;
//! let logits = model.process(&[3, 5, 7].map(TokenId))?; // of the last token
//! assert_eq!(logits.len(), spec.vocab);
//! model.process(&[TokenId(11)])?;
//! assert_eq!(model.steps().to_string(), "ar8_cl64_1_of_1 x1, ar1_cl64_1_of_1 x1");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Types
//!
//! | you want to | type |
//! |---|---|
//! | load a bundle, with which settings | [`Engine::open`], [`EngineConfig`], [`RopeConfig`], [`EmbeddingLut`], [`Policy`] |
//! | get logits, go back, save | [`TokenModel`]: what a dialog sees; [`Transcript`], [`Snapshot`] |
//! | run several sequences, verify drafts | [`SequenceModel`], [`SeqTokens`], [`SeqId`] |
//! | run graphs that fuse a prompt's chunk with another request's decode row | [`PairRunner`], [`PairConfig`] |
//! | go on when the context is full | [`Eviction`], [`ContextShift`], [`GroupOptions`], [`HolePolicy`]; [`Overflow`] is what does not fit |
//! | keep prompt prefixes on disk | [`PrefixCache`] |
//! | measure a model | [`perplexity::of_window`], [`perplexity::NllStats`]; [`calibrate`] for [`Policy::Cost`] |
//! | draft from another model's hidden states | [`FeatureModel`], [`FeatureWidths`] |
//! | know how large keys and values become, for caches of 8 bits | [`kv_peaks()`] |
//! | switch LoRA adapters | [`LoraModel`], [`LoraConfig`] |
//! | stop a long prompt from another thread | [`StopFlag`], from [`TokenModel::stop_flag`] |
//! | write each step's tensors to files | [`DumpOptions`], [`EngineConfig::dump`] |
//! | see which graphs ran, and how long they took | [`StepLog`], [`GraphProfile`] |
//! | turn a text into vectors | [`TextEncoder`] |
//! | run graphs by other means than QNN | [`Executor`], [`Binding`]; [`QnnExecutor`] is the one over QNN |
//! | feed rows of embeddings, of an image say | [`TokenModel::add_embeddings`], [`ImageEncoder`], [`NumberFile`] |
//! | know what went wrong | [`EngineError`] |
//!
//! Inside, one concept per file: `load` opens files; `run` is the loop over a plan's steps, `graphs` one step of it,
//! `rollback` and `genie_overflow` the way back after a failure; `input_writer`, `mask`, `rope`, `distances`, `embed` write a
//! step's inputs, `positions` says which table is which, `io` holds the buffers, `head` the logits,
//! `quant` their element types; `lora` the adapters and their strengths; `features` the hidden states that go to a drafting model; `sequences`, `saved`, `cache`, `context_shift` and `transcript` are the cache's operations
//! and its tokens.
//!
//! # What it must never know
//!
//! Text, sampling, stopping. Which QNN backend runs the graphs. How cache rows lie in memory (that is `kvmanager`'s).

#![forbid(unsafe_code)]

mod anchors;
mod batch_input;
mod buffer;
mod cache;
mod cache_memory;
pub mod calibrate;
mod cell_runs;
pub mod config;
mod context_shift;
mod distances;
pub mod dump;
mod embed;
pub mod embedding_codes;
mod engine;
pub mod error;
mod error_classes;
mod error_words;
pub mod executor;
mod extra_rows;
pub mod features;
mod genie_overflow;
mod graphs;
mod grids;
mod head;
mod head_weight;
pub mod image_encoder;
mod input_writer;
mod io;
mod kv_peaks;
mod load;
mod lockstep;
pub mod lora;
mod mask;
mod memory;
pub mod model;
pub mod number_file;
pub mod pd;
pub mod perplexity;
mod positions;
pub mod prefix_cache;
pub mod profile;
mod qnn;
mod quant;
mod rollback;
mod rope;
mod run;
mod saved;
mod scorer_network;
mod sequence_rows;
pub mod sequences;
pub mod step_log;
pub mod stop;
pub mod text_encoder;
mod transcript;
pub mod tree;
mod weights_to_memory;

#[cfg(test)]
mod tests;

pub use cell_runs::{CellRun, GroupCells};
pub use config::{EmbeddingCallback, EmbeddingLut, EngineConfig, LoraAdapter, LoraConfig, LoraGroup, LutDtype};
pub use context_shift::ContextShift;
pub use dump::DumpOptions;
pub use embedding_codes::{CodeNumbers, CodeTable};
pub use engine::Engine;
pub use error::EngineError;
pub use executor::{Binding, ExecuteError, Executor};
pub use features::{FeatureModel, FeatureWidths, OnFeatures};
pub use genie_types::{Llama3Scaling, PositionKind, RopeConfig, RopeScaling};
pub use grids::Grid;
pub use image_encoder::{EmbeddingRows, ImageEncoder};
pub use kv_peaks::kv_peaks;
pub use kvmanager::{
    Admission, ContextLimit, Eviction, HeadKeys, HolePolicy, KeyScorer, LogitsRequest, ModeKind, Overflow, PlanError,
    Policy, SeqId, check_shapes,
};
pub use load::Reading;
pub use lora::{LoraModel, LoraSwitch};
pub use model::{RowBudget, SequenceModel, TokenModel};
pub use nsp_graph::GroupOptions;
pub use number_file::NumberFile;
pub use pd::{PairConfig, PairLimits, PairRunner, PairStep, next_step as next_pair_step};
pub use prefix_cache::{FromPrefix, PrefixCache, PrefixCacheFault};
pub use profile::{GraphProfile, GraphRun};
pub use qnn::QnnExecutor;
pub use run::{SeqRows, SeqTokens};
pub use session_store::{CacheSchema, ModelHash, Snapshot};
pub use step_log::StepLog;
pub use stop::StopFlag;
pub use text_encoder::{Encoded, EncoderOptions, TextEncoder};
pub use transcript::Transcript;
pub use tree::{ChoosePath, ChoosePaths, SeqTree, TreeRow};
