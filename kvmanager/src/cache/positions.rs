//! Where each sequence stands, and whether one of them has the cache to itself.

use super::image::KvImage;
use crate::cells::SeqId;
use crate::plan::Column;

/// Whose rows are in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Contents {
    /// No rows.
    Empty,
    /// Rows of one sequence, appended in the order of their positions; nothing was removed before the end, nor moved.
    InOrder(SeqId),
    /// Anything else: only the cells know.
    Mixed,
}

/// Next position of each sequence.
#[derive(Debug)]
pub(super) struct Positions {
    pub(super) next: [usize; SeqId::COUNT],
    contents: Contents,
    /// Some keys are rotated to other positions than their cells'.
    pub(super) shifted: bool,
}

impl Default for Positions {
    fn default() -> Self {
        Self { next: [0; SeqId::COUNT], contents: Contents::Empty, shifted: false }
    }
}

impl Positions {
    /// Those of an image that replaces all rows.
    pub(super) fn of(image: &KvImage) -> Self {
        let mut positions = Self::default();
        image.next.iter().for_each(|&(seq, next)| positions.next[usize::from(seq.0)] = next);
        let in_order = |seq: SeqId| {
            let rows = image.groups.iter().flat_map(|g| g.cells.iter().enumerate());
            rows.into_iter().all(|(slot, cell)| cell.pos == slot && cell.seqs == seq.bit())
        };
        positions.contents = match image.next.as_slice() {
            [] => Contents::Empty,
            &[(seq, _)] if in_order(seq) => Contents::InOrder(seq),
            _ => Contents::Mixed,
        };
        positions
    }

    /// Whether all rows are a sequence's own, in order. No scan of the cells.
    pub(super) fn is_alone(&self, seq: SeqId) -> bool {
        self.contents == Contents::Empty || self.contents == Contents::InOrder(seq)
    }

    /// A column was kept. One that stands right behind the rows of its sequence leaves them in order.
    pub(super) fn advance(&mut self, column: Column) {
        let next = &mut self.next[usize::from(column.seq.0)];
        let in_order = column.pos == *next;
        *next = (*next).max(column.pos + 1);
        self.contents =
            if in_order && self.is_alone(column.seq) { Contents::InOrder(column.seq) } else { Contents::Mixed };
    }

    /// Rows were removed inside a sequence, shared or moved.
    pub(super) fn mix(&mut self) {
        self.contents = Contents::Mixed;
    }

    /// No rows are left.
    pub(super) fn emptied(&mut self) {
        (self.contents, self.shifted) = (Contents::Empty, false);
    }
}
