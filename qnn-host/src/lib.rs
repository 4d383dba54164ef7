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
//! | `posing` | whether it stands where the HTP's library is looked for |
//! | `edge` | the slots of the tables; pointers become slices there and nowhere deeper |
//! | [`error`] | every failure and its QNN number |
//! | `registry` | handles that are never believed |
//! | [`ir`], [`bytes`] | a graph as described, and its shared bytes |
//! | [`validate`] | the ops and their rules |
//! | [`container`] | context binaries |
//! | [`passes`], [`exec`] | from a graph to steps, and running them |
//! | [`kernels`], [`pool`] | arithmetic and threads |
//! | [`limits`], [`traffic`] | what the machine can do at most, and what a graph asks of it: for measuring |
//!
//! # What it never does
//!
//! Know what a model, a token or a cache is; believe a handle or a file; copy weights that a client promised to keep.

pub mod bytes;
pub mod container;
mod edge;
pub mod error;
pub mod exec;
pub mod exports;
pub mod ir;
pub mod kernels;
pub mod limits;
pub mod passes;
pub mod pool;
mod posing;
mod registry;
pub mod traffic;
pub mod validate;

pub use exports::{QnnInterface_getProviders, QnnSystemInterface_getProviders, providers};

/// Names the build in context binaries and to clients.
pub const BUILD_ID: &str = concat!("qnn-host-", env!("CARGO_PKG_VERSION"));
