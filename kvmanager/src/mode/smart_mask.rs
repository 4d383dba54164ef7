//! `SmartMask`: rows stay where they are, from column 0; the attention mask hides what lies beyond.
//!
//! ```text
//!   past input   |r0 r1 r2 .  .  .  .  .|      stride = past length, append = copy of the new columns
//! ```

use super::{CacheMode, RowLayout};
use crate::geometry::KvTensor;

/// The default mode: least movement at fixed addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SmartMask;

impl CacheMode for SmartMask {
    fn name(&self) -> &'static str {
        "smart-mask"
    }

    fn buffer_units(&self, tensor: &KvTensor, past_len: usize, _ar: usize) -> usize {
        tensor.n_lines() * past_len
    }

    fn place(&self, past_len: usize, _extent: usize) -> RowLayout {
        RowLayout::dense(past_len)
    }

    fn rows_stay(&self) -> bool {
        true
    }
}
