//! Safe handles over a QNN library, loaded at run time or linked in.
//!
//! ```
//! use genie_types::{Dtype, TensorInfo};
//! use qnn_api::{Backend, Context, Library, TensorKind};
//!
//! fn main() -> qnn_api::Result<()> {
//!     let library = Library::linked(qnn_host::providers())?; // or Library::open("libQnnHtp.so")
//!     let backend = Backend::new(&library, &Default::default())?;
//!     let context = Context::create(&backend, &Default::default())?;
//!
//!     let mut builder = context.compose("double", &Default::default())?;
//!     let x = builder.tensor(&TensorInfo::new("x", [1], Dtype::F32), TensorKind::Input)?;
//!     let y = builder.tensor(&TensorInfo::new("y", [1], Dtype::F32), TensorKind::Output)?;
//!     builder.node("add", "ElementWiseAdd", &[], &[x, x], &[y])?;
//!     let mut graph = builder.finalize()?;
//!
//!     let (input, mut output) = (1.5_f32.to_ne_bytes(), [0; 4]);
//!     let mut session = graph.session();
//!     session.input(0, &input)?.output(0, &mut output)?;
//!     session.run()?;
//!     assert_eq!(f32::from_ne_bytes(output), 3.0);
//!     Ok(())
//! }
//! ```
//!
//! # What is in here
//!
//! | concept | type |
//! |---|---|
//! | a library, its versions, where it came from | [`Library`], [`SystemLibrary`], [`LinkedProviders`] |
//! | a backend with log and device | [`Backend`], [`Device`] |
//! | graphs of one binary, or under construction | [`Context`] |
//! | its mapped file, and how that comes into memory | [`MappedBinary`] |
//! | what a binary holds, without loading it | [`binary_info`], [`BinaryInfo`] |
//! | a graph under construction | [`GraphBuilder`], [`TensorRef`], [`Param`] |
//! | a graph that runs, buffers lent to it | [`Graph`], [`Session`] |
//! | shared memory | [`Allocator`], [`Registered`], [`SharedMemory`] |
//! | a chip's number, architecture and VTCM | [`Soc`] |
//! | timings | [`Profile`] |
//! | clocks | [`PowerVote`], [`PerfPolicy`] |
//! | errors, and what to do about them | [`Error`], [`QnnError`], [`Hint`] |
//!
//! Layers, each on the one before: `qnn-sys` (C's spelling), [`library`] (which table, of which version), `table` (one
//! thin function per slot), and the handles. A handle keeps its parents by `Arc`; drop order does the freeing. Programs to
//! start from are in `examples/`.
//!
//! # Trust
//!
//! Safe code cannot misuse a handle. Two facts lie outside of what any program can check, and are promised where they arise:
//!
//! * *A library keeps QNN's contract.* For one that is linked in, the maker of its [`LinkedProviders`] promises it (`unsafe`).
//!   For a file, naming QNN's entry point is its declaration, which [`Library::open`] reads before any of its code runs;
//!   choosing the file is the user's act, as installing any shared library is. [`Library::open_unchecked`] is the same
//!   without that check (`unsafe`).
//! * *A mapped binary stays as it is.* No Rust reference is ever made to the bytes of [`Context::from_file`]; the library
//!   may read them as long as the context lives. Replace a binary by renaming, as [`Context::save`] does.
//!   [`Context::from_bytes`] maps nothing.
//!
//! # What it never does
//!
//! Know models, caches or tokens; call C after a parent is gone; panic on what a library returns.

mod backend;
mod binary_section;
mod builder;
mod context;
mod context_handle;
mod convert;
mod device;
pub mod error;
mod graph;
mod hint;
mod htp_blob;
pub mod library;
mod log;
mod mapped;
mod mapped_binary;
mod mem;
#[cfg(target_os = "linux")]
mod moved_pages;
mod options;
mod param;
mod perf;
mod profile;
mod registrations;
mod save;
mod save_watch;
pub mod soc;
mod system;
mod table;

#[cfg(test)]
mod fake;
#[cfg(test)]
mod tests;

pub use backend::{Backend, BackendOptions};
pub use builder::{GraphBuilder, TensorKind, TensorRef};
pub use context::Context;
pub use device::Device;
pub use error::{Error, QnnError, Result};
pub use graph::{Graph, Session};
pub use hint::Hint;
pub use htp_blob::HtpGraphBlob;
pub use library::{Library, SystemLibrary, Version};
pub use log::LogLevel;
pub use mapped_binary::MappedBinary;
pub use mem::{Allocator, Block, PlainMemory, Registered, Rpcmem, SharedBlock, SharedMemory};
pub use options::{ContextOptions, GraphOptions, HtpGraphOptions, Priority, SpillFill, SpillGroup};
pub use param::Param;
pub use perf::{PerfPolicy, PowerVote, RpcTimes};
pub use profile::{Profile, ProfileEvent, ProfileLevel, ProfileUnit};
pub use qnn_sys::LinkedProviders;
pub use save_watch::{SavePart, SaveReport, SaveWatch};
pub use soc::Soc;
pub use system::{BinaryInfo, binary_info};
