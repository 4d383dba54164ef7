//! A QNN backend on the CPU: builds, checks, fuses, plans and executes graphs.

pub mod bytes;
pub mod container;
mod edge;
pub mod error;
pub mod exec;
pub mod exports;
pub mod ir;
pub mod kernels;
pub mod passes;
pub mod pool;
mod registry;
pub mod validate;

pub use exports::{QnnInterface_getProviders, QnnSystemInterface_getProviders};

/// Names the build in context binaries and to clients.
pub const BUILD_ID: &str = concat!("qnn-host-", env!("CARGO_PKG_VERSION"));
