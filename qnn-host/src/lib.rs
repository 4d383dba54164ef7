//! A QNN backend on the CPU: builds, checks, fuses, plans and executes graphs.

pub mod bytes;
pub mod ir;
