//! Rows of embeddings that no table has: those of an image, of a sound, of a program. Each gets a token id of its own, beyond
//! the vocabulary, and is then a token like any other for transcripts, plans and the cache.
//!
//! *Units*: float32 numbers, converted to the input's type when a step is fed. *Invariant*: an id is given out once, and never
//! one that a restored dialog has used.

use genie_types::TokenId;

use crate::EngineError;

/// The rows, by id.
#[derive(Debug)]
pub(crate) struct ExtraRows {
    width: usize,
    /// Below it are the ids of the vocabulary and of the table.
    first: u32,
    next: u32,
    /// First id of each call's rows, rising, and their numbers.
    blocks: Vec<(u32, Vec<f32>)>,
}

impl ExtraRows {
    /// None yet; ids begin at `first`.
    pub(crate) fn new(width: usize, first: usize) -> Self {
        let first = u32::try_from(first).unwrap_or(u32::MAX);
        Self { width, first, next: first, blocks: Vec::new() }
    }

    /// Numbers of a row.
    pub(crate) const fn width(&self) -> usize {
        self.width
    }

    /// Takes whole rows and gives them ids.
    pub(crate) fn add(&mut self, rows: &[f32]) -> Result<std::ops::Range<u32>, EngineError> {
        let bad = |expected: String, found: String| Err(EngineError::EmbeddingRows { expected, found });
        if rows.is_empty() || !rows.len().is_multiple_of(self.width) {
            return bad(
                format!("whole rows of {} numbers, at least one", self.width),
                format!("{} numbers", rows.len()),
            );
        }
        if let Some(at) = rows.iter().position(|x| !x.is_finite()) {
            let (row, column) = (at / self.width, at % self.width);
            return bad("finite numbers".into(), format!("{} in row {row}, column {column}", rows[at]));
        }
        let n = rows.len() / self.width;
        // Graphs take ids as int32.
        let end =
            u32::try_from(n).ok().and_then(|n| self.next.checked_add(n)).filter(|&end| i32::try_from(end).is_ok());
        let Some(end) = end else {
            return bad(format!("at most {} more", i32::MAX as u32 - self.next), format!("{n}"));
        };
        let ids = self.next..end;
        self.blocks.push((self.next, rows.to_vec()));
        self.next = end;
        Ok(ids)
    }

    /// The numbers of a row.
    pub(crate) fn row(&self, token: TokenId) -> Option<&[f32]> {
        let block = self.blocks.partition_point(|(first, _)| *first <= token.0).checked_sub(1)?;
        let (first, rows) = &self.blocks[block];
        rows.get((token.0 - first) as usize * self.width..)?.get(..self.width)
    }

    /// True for an id that was given out here or in an earlier run.
    pub(crate) const fn is_extra(&self, token: TokenId) -> bool {
        token.0 >= self.first
    }

    /// Never gives out the ids up to this one: a restored dialog has them, without their rows.
    pub(crate) fn leave_out(&mut self, token: TokenId) {
        if self.is_extra(token) {
            self.next = self.next.max(token.0.saturating_add(1));
        }
    }

    /// Forgets all rows; their ids stay given out.
    pub(crate) fn clear(&mut self) {
        self.blocks.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_has_an_id_of_its_own() {
        let mut rows = ExtraRows::new(2, 10);
        assert_eq!(rows.add(&[1.0, 2.0, 3.0, 4.0]).unwrap(), 10..12);
        rows.leave_out(TokenId(14));
        rows.leave_out(TokenId(3));
        assert_eq!(rows.add(&[5.0, 6.0]).unwrap(), 15..16);
        let row = |id| rows.row(TokenId(id));
        assert_eq!((row(10), row(11), row(15)), (Some(&[1.0, 2.0][..]), Some(&[3.0, 4.0][..]), Some(&[5.0, 6.0][..])));
        assert_eq!((row(9), row(12), row(14), row(16)), (None, None, None, None));
        assert!(rows.is_extra(TokenId(10)) && !rows.is_extra(TokenId(9)));
        rows.clear();
        assert_eq!(rows.row(TokenId(15)), None);
        assert_eq!(rows.add(&[0.0, 0.0]).unwrap(), 16..17);
    }

    #[test]
    fn what_is_no_row_is_refused() {
        let mut rows = ExtraRows::new(2, 10);
        for (bad, want) in [
            (&[][..], "rows of embeddings: expected whole rows of 2 numbers, at least one, found 0 numbers"),
            (&[1.0], "rows of embeddings: expected whole rows of 2 numbers, at least one, found 1 numbers"),
            (&[1.0, 2.0, 3.0, f32::NAN], "rows of embeddings: expected finite numbers, found NaN in row 1, column 1"),
        ] {
            assert_eq!(rows.add(bad).unwrap_err().to_string(), want);
        }
        let mut full = ExtraRows::new(1, i32::MAX as usize - 1);
        let want = "rows of embeddings: expected at most 1 more, found 2";
        assert_eq!(full.add(&[0.0, 0.0]).unwrap_err().to_string(), want);
    }
}
