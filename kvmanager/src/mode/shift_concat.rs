//! `ShiftConcat`: rows end where the new columns begin, so past and new are one block of attention without a gap.
//!
//! ```text
//!   before   |.  .  .  .  r0 r1 r2|     append of n3 n4: all rows move left by two,
//!   after    |.  .  r0 r1 r2 n3 n4|     then the new columns come in at the right
//! ```
//!
//! The oldest mode, for bundles whose graphs expect it; every append moves the whole past.

use super::{CacheMode, RowLayout};
use crate::geometry::KvTensor;

/// Rows at the right end of the past.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ShiftConcat;

impl CacheMode for ShiftConcat {
    fn name(&self) -> &'static str {
        "shift-concat"
    }

    fn buffer_units(&self, tensor: &KvTensor, past_len: usize, _ar: usize) -> usize {
        tensor.n_lines() * past_len
    }

    fn place(&self, past_len: usize, extent: usize) -> RowLayout {
        RowLayout { first: past_len.saturating_sub(extent), ..RowLayout::dense(past_len) }
    }

    fn past_idx(&self, past_len: usize, extent: usize) -> usize {
        past_len.saturating_sub(extent)
    }
}
