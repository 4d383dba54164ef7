//! `PointerShift`: rows never move; the graph's past input begins one row further after each new row.
//!
//! ```text
//!   one line, past length 5          |.  .  .  .  .  r0 r1 .  .|
//!   the graph's input at extent 2          ^-----------^            it begins at unit `extent`
//! ```
//!
//! Row `r` of line `l` lies at unit `(l + 1) * past_len + r`, whatever the extent; the input of `past_len` columns
//! that begins at unit `extent` therefore ends with the rows, in every line at once. A line's newest rows lie where
//! the next line's oldest columns were, which the sliding window has just left behind. So the keys of a head fit in
//! `(head_dim + 1) * (seq - 1)` elements for AR-1 at CL = seq, and each append writes their new columns only; the values
//! of a tensor with one head are written by the graph itself right behind the rows there are, and nothing is copied.
//!
//! *Limit*: the new rows of a values tensor of several heads come in one block, head after head, and their places in
//! the past are apart; such values are copied like keys. Graphs for this mode have a tensor for each head.
//!
//! *Trap*: the graph's input address changes with each step; bind it again, or take it from
//! [`KvCache::on_rebind`](crate::KvCache::on_rebind).

use super::{CacheMode, RowLayout};
use crate::geometry::{KvLayout, KvTensor};

/// Rows at the right end of a sliding window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PointerShift;

impl CacheMode for PointerShift {
    fn name(&self) -> &'static str {
        "pointer-shift"
    }

    fn buffer_units(&self, tensor: &KvTensor, past_len: usize, ar: usize) -> usize {
        (tensor.n_lines() + 1) * past_len + if self.writes_in_place(tensor) { ar } else { 0 }
    }

    fn place(&self, past_len: usize, _extent: usize) -> RowLayout {
        RowLayout { lead: past_len, ..RowLayout::dense(past_len) }
    }

    fn view_unit(&self, _past_len: usize, extent: usize) -> usize {
        extent
    }

    fn past_idx(&self, past_len: usize, extent: usize) -> usize {
        past_len.saturating_sub(extent)
    }

    fn writes_in_place(&self, tensor: &KvTensor) -> bool {
        tensor.layout == KvLayout::HeadSeqDim && tensor.n_heads == 1
    }
}
