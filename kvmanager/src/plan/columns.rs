//! The columns of a step: which token of which sequence each of them holds.

use crate::cells::SeqId;

/// One token of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its sequence.
    pub seq: SeqId,
    /// Its position.
    pub pos: usize,
}

/// Columns that follow each other: the `n` tokens of one sequence at positions `first..first + n`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SequenceSlice {
    /// The sequence.
    pub seq: SeqId,
    /// Position of the first token.
    pub first: usize,
    /// Tokens.
    pub n: usize,
}

impl SequenceSlice {
    /// The columns one by one.
    pub fn columns(self) -> impl Iterator<Item = Column> + Clone {
        (self.first..self.first + self.n).map(move |pos| Column { seq: self.seq, pos })
    }
}

/// The columns of a step, in order. Those of a single sequence take no heap memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Columns {
    first: SequenceSlice,
    more: Vec<SequenceSlice>,
    n: usize,
}

impl Columns {
    /// `n` tokens of one sequence from position `first` on.
    pub const fn of(seq: SeqId, first: usize, n: usize) -> Self {
        Self { first: SequenceSlice { seq, first, n }, more: Vec::new(), n }
    }

    /// Adds columns at the end.
    pub fn push(&mut self, slice: SequenceSlice) {
        if slice.n == 0 {
            return;
        }
        let last = self.more.last_mut().unwrap_or(&mut self.first);
        if self.n == 0 {
            self.first = slice;
        } else if (last.seq, last.first + last.n) == (slice.seq, slice.first) {
            last.n += slice.n;
        } else {
            self.more.push(slice);
        }
        self.n += slice.n;
    }

    /// How many there are.
    pub const fn len(&self) -> usize {
        self.n
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.n == 0
    }

    /// Whether all are tokens of one sequence at positions that follow each other: what the fast paths ask for.
    pub const fn contiguous(&self) -> bool {
        self.more.is_empty()
    }

    /// The first column.
    pub fn first(&self) -> Option<Column> {
        self.iter().next()
    }

    /// The columns as the fewest slices.
    pub fn slices(&self) -> impl Iterator<Item = SequenceSlice> + Clone + '_ {
        let first = (self.n > 0).then_some(self.first);
        first.into_iter().chain(self.more.iter().copied())
    }

    /// The columns one by one.
    pub fn iter(&self) -> impl Iterator<Item = Column> + Clone + '_ {
        self.slices().flat_map(SequenceSlice::columns)
    }
}

impl FromIterator<SequenceSlice> for Columns {
    fn from_iter<I: IntoIterator<Item = SequenceSlice>>(slices: I) -> Self {
        let mut columns = Self::default();
        slices.into_iter().for_each(|slice| columns.push(slice));
        columns
    }
}

impl FromIterator<Column> for Columns {
    fn from_iter<I: IntoIterator<Item = Column>>(columns: I) -> Self {
        columns.into_iter().map(|Column { seq, pos }| SequenceSlice { seq, first: pos, n: 1 }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_join_and_others_do_not() {
        let column = |seq, pos| Column { seq: SeqId(seq), pos };
        let given = [column(0, 4), column(0, 5), column(1, 6), column(0, 6), column(0, 8)];
        let columns: Columns = given.into_iter().collect();
        assert_eq!(
            columns.slices().map(|s| (s.seq.0, s.first, s.n)).collect::<Vec<_>>(),
            [(0, 4, 2), (1, 6, 1), (0, 6, 1), (0, 8, 1)]
        );
        assert_eq!(columns.iter().collect::<Vec<_>>(), given);
        assert_eq!((columns.len(), columns.contiguous(), columns.first()), (5, false, Some(given[0])));
        let one: Columns = given[..2].iter().copied().collect();
        assert_eq!(one, Columns::of(SeqId(0), 4, 2));
        assert!(one.contiguous() && Columns::default().is_empty() && Columns::default().first().is_none());
    }
}
