//! Runs prepared graphs: an [`Executable`] is a list of steps over one arena, made once by [`Executable::prepare`].
//!
//! *Units and dtype*: what the client never sees is kept as `f32` (floats and fixed-point numbers) or `i32` (integers,
//! booleans), whatever type was declared. Client buffers and static tensors keep their declared type.
//! *Invariants*: a run allocates nothing and takes no lock, except to report an error; every thread of the pool walks
//! all steps, with a barrier between those that depend on each other.

pub mod arena;
mod build;
pub(crate) mod codec;
pub mod error;
pub mod executable;
mod load;
pub(crate) mod ops;
mod plan;
pub mod profile;
mod run_context;
mod step;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

pub use crate::passes::SharedConstants;
pub use arena::Arena;
pub use error::ExecError;
pub use executable::{Executable, PrepareOptions};
pub use profile::{Profile, StepTimes};
