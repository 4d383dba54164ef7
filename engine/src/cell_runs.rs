//! Which cells of the cache belong to which sequences, as runs: what a view of the cache draws.
//!
//! *Units*: cells, positions. *Invariant*: runs are ascending and do not overlap; cells between them are free.

use kvmanager::CellTable;

/// The cells of one cache group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupCells {
    /// Prefix of the group's tensors.
    pub name: String,
    /// Cells that there are.
    pub capacity: usize,
    /// Positions that a token sees, and those at the start that it always sees, where the rule is a window.
    pub window: Option<(usize, usize)>,
    /// The cells in use.
    pub runs: Vec<CellRun>,
}

/// Cells beside each other with the same owners, whose positions rise by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellRun {
    /// The first cell.
    pub first: usize,
    /// How many.
    pub len: usize,
    /// The first one's position.
    pub pos: usize,
    /// Bit set of the sequences that own them.
    pub seqs: u64,
}

impl CellRun {
    /// The numbers of the sequences that own it, ascending.
    pub fn owners(self) -> impl Iterator<Item = u8> {
        (0..64).filter(move |n| self.seqs & (1 << n) != 0)
    }

    /// The runs of a table.
    pub fn of(cells: &CellTable) -> Vec<Self> {
        let mut runs: Vec<Self> = Vec::new();
        for (slot, cell) in cells.used() {
            match runs.last_mut() {
                Some(run) if run.first + run.len == slot && run.pos + run.len == cell.pos && run.seqs == cell.seqs => {
                    run.len += 1;
                }
                _ => runs.push(Self { first: slot, len: 1, pos: cell.pos, seqs: cell.seqs }),
            }
        }
        runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_the_bits_that_are_set() {
        let run = CellRun { first: 0, len: 1, pos: 0, seqs: 1 | 1 << 5 | 1 << 63 };
        assert_eq!(run.owners().collect::<Vec<_>>(), [0, 5, 63]);
    }
}
