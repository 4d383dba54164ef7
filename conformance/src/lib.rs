//! The harness of the conformance suite: backends by name, random bundles, one-op graphs with a double-precision reference.
//!
//! The suite itself is in `tests/`; each file says what it holds against what.
//!
//! ```
//! use conformance::suite::{Answers, Linked, Runtime, all, compare};
//!
//! let (host, problem) = (Linked::start(), &all()[0]);
//! let outputs = host.run(problem).unwrap();
//! compare(problem, Answers { host: Some(&outputs), emulator: None }).unwrap();
//! ```
// Denied, except in `genie::ffi`, which calls Qualcomm's `libGenie.so`.
#![deny(unsafe_code)]

pub mod backends;
pub mod bundles;
pub mod compiled;
pub mod genie;
pub mod gguf;
pub mod golden;
pub mod greedy;
pub mod recorder;
pub mod suite;
