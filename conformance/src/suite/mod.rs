//! One suite of graphs over several backends: each op that decoders are lowered to, alone and in company.
//!
//! A [`Problem`] has a graph, inputs, an answer in double precision and bounds; [`all`] is the table of them, one op a
//! file; a [`Runtime`] runs one. `docs/ops.md` is printed from the table and checked against it.

pub mod bad;
pub mod bounds;
pub mod codec;
pub mod decoder;
mod ops;
pub mod problem;
pub mod runtime;
pub mod table;
pub mod values;

pub use bounds::{Answers, Bound, Bounds, Mismatch, Used, compare};
pub use ops::all;
pub use problem::{Problem, Support};
pub use runtime::{Emulator, Linked, Loaded, Runtime};
pub use values::Values;

/// Environment variable that keeps only problems whose op or case holds its text.
pub const ONLY: &str = "CONFORMANCE_ONLY";

/// [`all`], or what [`ONLY`] leaves of it.
///
/// # Panics
/// It leaves nothing: a test of nothing would pass.
pub fn chosen() -> Vec<Problem> {
    let only = std::env::var(ONLY).unwrap_or_default();
    let chosen: Vec<Problem> = all().into_iter().filter(|p| p.title().contains(&only)).collect();
    assert!(!chosen.is_empty(), "{ONLY}={only} leaves no problem");
    chosen
}
