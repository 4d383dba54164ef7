//! Runs prepared graphs: an [`Executable`] is a list of steps over one arena, made once by [`Executable::prepare`].
//!
//! *Units and dtype*: what the client never sees is kept as `f32` (floats and fixed-point numbers) or `i32` (integers,
//! booleans), whatever type was declared. Client buffers and static tensors keep their declared type.
//! *Invariants*: a run allocates nothing and takes no lock, except to report an error; every thread of the pool walks
//! all steps, with a barrier between those that depend on each other.

pub mod executable;
mod plan;
pub mod profile;
mod schedule;
mod tiles;
mod units;

pub use executable::Executable;
pub use profile::{Profile, StepTimes};
