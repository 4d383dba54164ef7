//! From a checkpoint to a bundle of compiled graphs.
#![forbid(unsafe_code)]
