//! Runs graphs that carry a chunk of one request's prompt and a decode row of another: `model.0.pd.s{N}`, and `model.0.s1` for a
//! decode row alone.
//!
//! `plan` chooses the graph of a step from numbers alone, `feeds` writes a graph's small inputs, `step` binds two caches and runs,
//! `runner` holds the sequences, `batch` takes any number of requests through steps, `model` is what a dialog and a scheduler see,
//! `saved` takes one sequence out and puts it back, `times` measures steps, `open` reads a bundle. Rows of a sequence lie in a store of its own ([`kvmanager::RowStore`]), row = position; which store is
//! the prefill's and which the decode's is said for each step by binding it, so a request that goes from one to the other moves
//! no byte.

mod batch;
mod config;
mod feeds;
mod model;
mod open;
mod plan;
mod runner;
mod saved;
mod step;
mod times;

pub use config::PairConfig;
pub use plan::{PairLimits, PairStep, next_step};
pub use runner::PairRunner;
