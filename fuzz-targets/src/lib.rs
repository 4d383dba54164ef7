//! Every reader of foreign bytes as a function over bytes: what it reads may be refused, and must not panic, hang or ask for
//! gigabytes.
//!
//! ```
//! let target = fuzz_targets::find("bundle-config").unwrap();
//! (target.run)(b"{ not quite JSON");
//! ```
//!
//! # What is in here
//!
//! | item | what it does |
//! |---|---|
//! | [`TARGETS`] | name, function and form of the seeds of each target |
//! | [`mutate`] | a seed with some of its bytes, numbers or JSON values changed |
//! | [`seeds`] | the seeds in `seeds/`, and how they are made |
//! | `fuzz-driver` | runs targets in child processes for some seconds: `cargo run -p fuzz-targets --bin fuzz-driver -- --seconds 60` |
//!
//! The folder `fuzz/` holds the same targets for `cargo fuzz`, which needs a nightly compiler.
//!
//! # What it must never know
//!
//! What a reader does with good files: that is tested elsewhere.

#![forbid(unsafe_code)]

pub mod mutate;
mod rng;
pub mod seeds;
mod targets;

pub use rng::Rng;
pub use targets::{Form, TARGETS, Target, find};
