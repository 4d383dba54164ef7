//! Compiles a checkpoint (Hugging Face directory or GGUF file) into a bundle of graphs in context binaries.
//!
//! ```
//! use compiler::{CompileOptions, Family, Silent, compile, testmodel::TestModel};
//! use qnn_api::{Backend, BackendOptions, Library};
//!
//! let dir = tempfile::tempdir()?;
//! TestModel::tiny(Family::Qwen3).write(&dir.path().join("model"))?;
//! let host = Library::linked(qnn_host::providers())?;
//! let backend = Backend::new(&host, &BackendOptions::default())?;
//! let mut options = CompileOptions::new(dir.path().join("model"), dir.path().join("bundle"));
//! (options.ars, options.cls) = (vec![1, 16], vec![64]);
//! let manifest = compile(&options, &backend, &mut Silent)?;
//! assert_eq!(manifest.graphs[1].name, "ar16_cl64_1_of_1");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What is in here
//!
//! | module | what it does |
//! |---|---|
//! | [`options`] | variants, splits, precision, weight formats |
//! | [`HtpOptions`] | the Hexagon chip to compile for |
//! | [`family`] | Llama, Qwen 2 and Qwen 3 configurations to one neutral [`ModelSpec`] |
//! | [`checkpoint`] | safetensors, one file or many, streamed as f32 |
//! | [`KvPeaks`] | how large keys and values become, for caches of 8 bits |
//! | `json` | JSON of model files, read by type |
//! | `unread` | which tensors the model takes; what is left over is an error |
//! | `gguf` | GGUF files, read as a checkpoint with a configuration and a tokenizer |
//! | [`GgufError`] | what is wrong with a GGUF file, in its own names |
//! | `own_weights` | the weight format of a model where no other is asked for |
//! | `model_files` | the small files of a model, in a folder or in memory |
//! | [`AdapterSource`] | LoRA adapters of PEFT, in the graphs or added to the weights |
//! | `lower` | a [`ModelSpec`] to QNN ops, all variants side by side, each weight read once |
//! | `weight_files` | weights that graphs take as inputs, as files of the bundle |
//! | [`ModelSummary`] | shape and length of a model, without reading its weights |
//! | `size` | predicted file lengths, and where to cut |
//! | `finish` | graphs are finalized, context binaries written, stage by stage |
//! | `hashes` | of a model's files and of a bundle's |
//! | `target`, `qnn` | where graphs are composed: a library behind the QNN table |
//! | `bundle` | the output directory; its file names and its manifest are [`genie_bundle`]'s |
//! | [`dequantize()`] | the quantised weights of a model as a float32 checkpoint |
//! | [`CompileError`], [`Hint`] | errors, and advice as data, for a front end to word |
//! | [`progress`] | progress reports |
//! | [`testmodel`] | small random checkpoints, written to disk |
//!
//! # What it never does
//!
//! It does not run graphs, plan steps or keep a cache: its only output is the bundle.

#![forbid(unsafe_code)]

mod bundle;
pub mod checkpoint;
mod compile;
#[cfg(test)]
mod damage_tests;
mod dequantize;
mod eagle;
mod error;
pub mod family;
mod finish;
mod fs;
mod gguf;
mod gguf_error;
mod hashes;
mod hint;
mod htp;
mod json;
mod kv_peaks;
mod lora;
mod lower;
mod model;
mod model_files;
mod near;
pub mod options;
mod own_weights;
pub mod progress;
mod qnn;
mod size;
mod summary;
mod target;
#[cfg(test)]
mod testing;
pub mod testmodel;
mod unread;
mod weight_files;

pub use bundle::Entries;
pub use checkpoint::Checkpoint;
pub use compile::Prove;
pub use dequantize::dequantize;
pub use error::{CompileError, Result};
pub use family::{Activation, EagleHead, Family, ModelSpec, QkNorm};
pub use genie_bundle::{CONFIG_FILE, Manifest};
pub use gguf::gguf_tokenizer;
pub use gguf_error::GgufError;
pub use hashes::model_hash;
pub use hint::Hint;
pub use htp::{FILE_LIMIT, HtpOptions};
pub use kv_peaks::KvPeaks;
pub use options::{
    AdapterSource, CacheUpdate, CompileOptions, GraphKinds, KvCacheType, PdGraphs, PdUpdate, Precision, Splits, Weights,
};
pub use progress::{Amount, Progress, Silent, Stage};
pub use qnn::{compile, compile_and_prove};
pub use summary::ModelSummary;
