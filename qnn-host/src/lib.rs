//! A QNN backend on the CPU: builds, checks, fuses, plans and executes graphs behind the C function table.
//!
//! ```
//! let (mut providers, mut n) = (std::ptr::null_mut(), 0);
//! // SAFETY: both pointers are valid for writing.
//! let code = unsafe { qnn_host::QnnInterface_getProviders(&mut providers, &mut n) };
//! assert_eq!((code, n), (0, 1));
//! // SAFETY: one provider was answered, and it lives as long as the program.
//! let table = unsafe { (**providers).table };
//! assert!(table.graphExecute.is_some());
//! ```
//!
//! # What is in here
//!
//! | module | what |
//! |---|---|
//! | [`exports`] | the two symbols a client looks for |
//! | `htp_alias` | whether the library was loaded under the name of the HTP's |
//! | `capi` | the slots of the tables; pointers become slices there and nowhere deeper |
//! | [`error`] | every failure and its QNN number |
//! | `registry` | handles: looked up, never dereferenced |
//! | [`ir`], [`bytes`] | a graph as the client described it, and its shared bytes |
//! | [`validate`], [`ops`] | checks of tensors, nodes and whole graphs; each op: its rules, lowering and step |
//! | [`container`] | context binaries |
//! | [`prepare`], [`passes`] | from a described graph to one that is ready to run |
//! | [`graph`], [`step`] | typed operations, and the steps that they become |
//! | [`exec`] | scheduling and running steps |
//! | [`kernels`], [`pool`] | arithmetic and threads |
//! | [`roofline`], [`weight_traffic`] | for measuring: what the machine can do at most, and what a graph asks of it |
//!
//! # What it never does
//!
//! Know what a model, a token or a cache is; believe a handle or a file; copy weights that a client promised to keep.

pub mod bytes;
mod capi;
pub mod container;
pub mod error;
pub mod exec;
pub mod exports;
pub mod graph;
mod htp_alias;
pub mod ir;
pub mod kernels;
pub mod ops;
pub mod passes;
pub mod pool;
pub mod prepare;
mod registry;
pub mod roofline;
pub mod step;
mod storage;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
pub mod validate;
pub mod weight_traffic;

pub use exports::{QnnInterface_getProviders, QnnSystemInterface_getProviders};

/// Names the build in context binaries and to clients.
pub const BUILD_ID: &str = concat!("qnn-host-", env!("CARGO_PKG_VERSION"));
