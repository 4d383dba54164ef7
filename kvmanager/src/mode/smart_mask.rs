//! `SmartMask`: rows stay where they are, from column 0; the attention mask hides what lies beyond.
//!
//! ```text
//!   past input   |r0 r1 r2 .  .  .  .  .|      stride = past length, append = copy of the new columns
//! ```

use super::{CacheMode, ModeKind, Place};
use crate::geometry::KvTensor;

/// The default mode: least movement at fixed addresses.
#[derive(Clone, Copy, Debug)]
pub struct SmartMask;

impl CacheMode for SmartMask {
    fn kind(&self) -> ModeKind {
        ModeKind::SmartMask
    }

    fn name(&self) -> &'static str {
        "smart-mask"
    }

    fn buffer_units(&self, tensor: &KvTensor, past_len: usize) -> usize {
        tensor.n_lines() * past_len
    }

    fn place(&self, past_len: usize, _n_rows: usize) -> Place {
        Place { lead: 0, stride: past_len, first: 0 }
    }

    fn view_unit(&self, _past_len: usize, _n_rows: usize) -> usize {
        0
    }

    fn past_idx(&self, _past_len: usize, _n_rows: usize) -> usize {
        0
    }
}
