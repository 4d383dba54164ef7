//! Which rows are computed together: neighbours that see much the same columns.
//!
//! A block of rows reads every column that one of its rows sees, once, and multiplies it with all of them. Rows of one prompt
//! gain by that; rows of sequences that share a cache but no columns would each compute what belongs to the others.
//!
//! *Units*: stretches of columns ([`super::mask::STRETCH`]), f32 classes as in [`super::mask`].

use std::ops::Range;

use super::mask::{HIDDEN, MIXED};

/// How many times the stretches that its rows see a block may compute, in 1/4 (and one more stretch for each row, so that few
/// columns are not taken apart).
const WASTE: usize = 5;

/// f32 numbers of scratch for the blocks of `rows` rows of `stretches` stretches.
pub(super) fn scratch_len(rows: usize, stretches: usize) -> usize {
    rows + 1 + stretches
}

/// Consecutive rows, block by block.
pub(super) struct Blocks<'a> {
    /// Classes of each row.
    all: &'a [f32],
    stretches: usize,
    /// The first row of each block, then the number of rows.
    starts: &'a [f32],
    /// Classes of a block.
    joined: &'a mut [f32],
}

impl<'a> Blocks<'a> {
    /// Divides `rows` rows into blocks of at most `most`; `even`: as many rows as go into each.
    ///
    /// `all` are the classes of each row, `scratch` has [`scratch_len`] numbers.
    #[inline(always)]
    pub(super) fn new(
        all: &'a [f32],
        rows: usize,
        stretches: usize,
        most: usize,
        even: bool,
        scratch: &'a mut [f32],
    ) -> Self {
        let (starts, joined) = scratch.split_at_mut(rows + 1);
        let (mut n_blocks, mut first, mut sum) = (0, 0, 0);
        for row in 0..rows {
            let classes = &all[row * stretches..(row + 1) * stretches];
            let full = row - first == most;
            let apart = !even && {
                let own = seen(classes);
                let n = row - first + 1;
                let union = if row == first { own } else { union(joined, classes) };
                let apart = row > first && 4 * n * union > WASTE * (sum + own) + 4 * n;
                sum = if apart || full || row == first { own } else { sum + own };
                apart
            };
            if row == 0 || full || apart {
                starts[n_blocks] = row as f32;
                (n_blocks, first) = (n_blocks + 1, row);
                joined.copy_from_slice(classes);
            } else if !even {
                join(joined, classes);
            }
        }
        starts[n_blocks] = rows as f32;
        Self { all, stretches, starts: &starts[..=n_blocks], joined }
    }

    /// Blocks.
    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        self.starts.len() - 1
    }

    /// The rows of a block.
    #[inline(always)]
    pub(super) fn rows(&self, block: usize) -> Range<usize> {
        self.starts[block] as usize..self.starts[block + 1] as usize
    }

    /// What `rows` rows from `row0` on see together.
    #[inline(always)]
    pub(super) fn classes(&mut self, row0: usize, rows: usize) -> &[f32] {
        let mut each = self.all[row0 * self.stretches..(row0 + rows) * self.stretches].chunks_exact(self.stretches);
        if let Some(first) = each.next() {
            self.joined.copy_from_slice(first);
        }
        each.for_each(|classes| join(self.joined, classes));
        self.joined
    }
}

/// Stretches that are not hidden.
#[inline(always)]
fn seen(classes: &[f32]) -> usize {
    classes.iter().map(|&class| usize::from(class != HIDDEN)).sum()
}

/// Stretches that one of both sees.
#[inline(always)]
fn union(a: &[f32], b: &[f32]) -> usize {
    a.iter().zip(b).map(|(&a, &b)| usize::from(a != HIDDEN || b != HIDDEN)).sum()
}

/// Hidden where both are hidden, clear where both are clear.
#[inline(always)]
fn join(to: &mut [f32], from: &[f32]) {
    for (to, &from) in to.iter_mut().zip(from) {
        *to = if *to == from { from } else { MIXED };
    }
}

#[cfg(test)]
mod tests {
    use super::super::mask::CLEAR;
    use super::*;

    /// Rows of each block.
    fn blocks(rows: &[&str], most: usize, even: bool) -> Vec<usize> {
        let all: Vec<f32> = rows
            .iter()
            .flat_map(|row| row.chars())
            .map(|class| match class {
                '.' => HIDDEN,
                'o' => CLEAR,
                _ => MIXED,
            })
            .collect();
        let stretches = rows[0].len();
        let mut scratch = vec![f32::NAN; scratch_len(rows.len(), stretches)];
        let blocks = Blocks::new(&all, rows.len(), stretches, most, even, &mut scratch);
        (0..blocks.len()).map(|block| blocks.rows(block).len()).collect()
    }

    #[test]
    fn rows_of_a_prompt_stay_together_and_those_of_others_apart() {
        // Two replies, then a prompt; each sees the new columns at the end.
        let rows =
            ["oooooo..........m", "......oooooo....m", "............oooom", "............oooom", "............oooom"];
        assert_eq!(blocks(&rows, 4, false), [1, 1, 3]);
        assert_eq!(blocks(&rows, 2, false), [1, 1, 2, 1]);
        assert_eq!(blocks(&rows, 4, true), [4, 1]);
        // A prefix in common is worth reading once.
        assert_eq!(blocks(&["oooooooom...m", "oooooooo.m..m", "oooooooo..m.m"], 8, false), [3]);
        // So are a few columns.
        assert_eq!(blocks(&["m.m", ".mm"], 8, false), [2]);
    }

    #[test]
    fn what_rows_see_together() {
        let all = [HIDDEN, CLEAR, MIXED, HIDDEN, HIDDEN, HIDDEN, CLEAR, CLEAR];
        let mut scratch = [0.0; 7];
        let mut blocks = Blocks::new(&all, 2, 4, 2, true, &mut scratch);
        assert_eq!(blocks.classes(0, 2), [HIDDEN, MIXED, MIXED, MIXED]);
        assert_eq!(blocks.classes(0, 1), [HIDDEN, CLEAR, MIXED, HIDDEN]);
    }
}
