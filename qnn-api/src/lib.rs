//! Safe handles over a QNN library, loaded or linked in.
//!
//! ```
//! use qnn_api::{Backend, BackendOptions, Context, Library};
//!
//! fn logits_name(library: &str, binary: &str) -> qnn_api::Result<String> {
//!     let backend = Backend::new(&Library::open(library)?, &BackendOptions::default())?;
//!     let context = Context::from_file(&backend, binary, &Default::default())?;
//!     Ok(context.graph("ar1_cl512_1_of_1")?.info().outputs[0].name.clone())
//! }
//! let error = logits_name("/nowhere/libQnnHtp.so", "model.bin").unwrap_err();
//! assert_eq!(error.to_string(), "cannot load library `/nowhere/libQnnHtp.so`");
//! ```
//!
//! # What is in here
//!
//! | concept | type |
//! |---|---|
//! | a library, its versions, where it came from | [`Library`] |
//! | a backend with log and device | [`Backend`], [`Device`] |
//! | graphs of one binary, or under construction | [`Context`], [`binary_info`] |
//! | a graph under construction | [`GraphBuilder`], [`TensorRef`], [`Param`] |
//! | a graph that runs, buffers lent to it | [`Graph`], [`Session`] |
//! | shared memory | [`Allocator`], [`Registered`] |
//! | time spent | [`Profile`] |
//! | clocks | [`PowerVote`], [`PerfPolicy`] |
//! | what went wrong | [`Error`], [`QnnError`] |
//!
//! Layers, each on the one before: `qnn-sys` (C's spelling), [`library`] (which table, of which version), `table` (one
//! thin function per slot), and the handles. A handle keeps its parents by `Arc`; drop order does the freeing.
//!
//! *Trust*: loading a library runs its code, and QNN has no way to check that a library keeps its contract. Handles are
//! safe against mistakes of their user, not against a broken or hostile library.
//!
//! # What it never does
//!
//! Know models, caches or tokens; call C after a parent is gone; panic on what a library says.

mod backend;
mod builder;
mod context;
mod convert;
mod device;
pub mod error;
mod graph;
mod htp_blob;
pub mod library;
mod log;
mod mem;
mod options;
mod perf;
mod profile;
mod save;
pub mod soc;
mod system;
mod table;

#[cfg(test)]
mod fake;
#[cfg(test)]
mod tests;

pub use backend::{Backend, BackendOptions};
pub use builder::{GraphBuilder, Param, TensorKind, TensorRef};
pub use context::Context;
pub use device::Device;
pub use error::{Error, QnnError, Result};
pub use graph::{Graph, Session};
pub use htp_blob::HtpGraphBlob;
pub use library::{Library, SystemLibrary, Version};
pub use log::LogLevel;
pub use mem::{Allocator, Block, PlainMemory, Registered, Rpcmem};
pub use options::{ContextOptions, GraphOptions, HtpGraphOptions, Priority};
pub use perf::{PerfPolicy, PowerVote};
pub use profile::{Profile, ProfileEvent, ProfileLevel, ProfileUnit};
pub use soc::Soc;
pub use system::{BinaryInfo, binary_info};
