//! Graphs that carry a chunk of one request's prompt and a decode row of another: `model.0.pd.s{N}`, with `model.0.s1` beside them.
//!
//! Known by their tensors, whatever their names: an input `fusion_ctrl`, or a past without a direction (`past_key_0`) with its
//! `present_key_0`. They are no variants of the plain graphs: [`crate::analyze`] leaves them out, [`analyze`] here reads them.
//!
//! *Shapes* for N rows, a context of CL columns, P = CL - N: see `docs/prefill-decode.md`.

mod analyze;
mod error;
mod layout;
mod names;

pub(crate) use analyze::is_unnamed;
pub use analyze::{analyze, belongs};
pub use error::PairError;
pub use layout::{Input, Output, PairGraph, PairLayout, PairTensor};
pub use names::{PdName, Slot};

/// Six whole numbers: whether the prefill half is active, whether the decode half is, the rows of the chunk, 0, the tokens in the cache
/// of the prefill request, those of the decode request.
pub const FUSION_CTRL: &str = "fusion_ctrl";
/// Words of [`FUSION_CTRL`].
pub const CTRL_WORDS: usize = 6;
/// Inputs for a reference kernel of attention; a client writes -1.
pub const OVERRIDES: [&str; 2] = ["ref_max_seq_override", "ref_max_past_override"];
