//! The planner and the KV cache for fixed-shape graphs.
#![forbid(unsafe_code)]
