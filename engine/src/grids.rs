//! Images among the tokens of a dialog, whose rows have three positions each: frame, row and column (`mrope`).
//!
//! An image of `f` frames of `h` rows of `w` columns that begins where a text would have position `p` has the positions
//! `(p + frame, p + row, p + column)`, and the token behind it goes on at `p + max(f, h, w)`, on all three axes. In the cache and in transcripts each
//! of its tokens has one place, as every token.
//! *Invariant*: grids do not overlap and rise. *Source*: `get_rope_index` of Qwen 2 VL, and of Qwen 3 VL, whose grids have one frame each.

use kvmanager::SeqId;

use crate::{Engine, EngineError, Executor};

/// The extents of an image, after rows and columns have been merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Frames of a video; 1 for an image.
    pub frames: usize,
    /// Rows of tokens.
    pub rows: usize,
    /// Tokens in a row.
    pub columns: usize,
}

impl Grid {
    /// Its tokens; `None` for more than can be counted.
    pub fn n_tokens(&self) -> Option<usize> {
        self.frames.checked_mul(self.rows)?.checked_mul(self.columns)
    }

    /// The grid of rows with these extents, of which the last is a row's: `[1, rows, columns, width]`, `[frames, rows, columns, width]` or
    /// without the 1. `None` for rows without an order.
    pub fn of_extents(dims: &[usize]) -> Option<Self> {
        let (_, outer) = dims.split_last()?;
        match *outer {
            [1, 1, _] | [1, _] => None,
            [rows, columns] => Some(Self { frames: 1, rows, columns }),
            [frames, rows, columns] => Some(Self { frames, rows, columns }),
            _ => None,
        }
    }

    fn longest(&self) -> usize {
        self.frames.max(self.rows).max(self.columns)
    }
}

/// The grids of sequence 0.
#[derive(Debug, Default)]
pub(crate) struct Grids {
    /// Place of the first token, and the grid.
    placed: Vec<(usize, Grid)>,
}

impl Grids {
    pub(crate) fn is_empty(&self) -> bool {
        self.placed.is_empty()
    }

    /// Adds one behind the others.
    pub(crate) fn place(&mut self, first: usize, n_past: usize, grid: Grid) -> Result<(), EngineError> {
        let bad = |expected: String, found: String| Err(EngineError::Grid { expected, found });
        let Some(n) = grid.n_tokens().filter(|n| *n > 0) else {
            return bad("at least one frame, row and column".into(), format!("{grid:?}"));
        };
        let free = self.placed.last().map_or(0, |(at, last)| at + last.n_tokens().unwrap_or(0)).max(n_past);
        if first < free || first.checked_add(n).is_none() {
            return bad(format!("a place from {free} on"), first.to_string());
        }
        self.placed.push((first, grid));
        Ok(())
    }

    /// Forgets those that begin at a place or behind it.
    pub(crate) fn truncate(&mut self, n_past: usize) {
        self.placed.retain(|(first, _)| *first < n_past);
    }

    /// The three positions of the token at a place.
    pub(crate) fn positions(&self, place: usize) -> [usize; 3] {
        // An image's longest extent is at most its tokens: positions are at most places.
        let mut position = place;
        for (first, grid) in self.placed.iter().take_while(|(first, _)| *first <= place) {
            let (n, at) = (grid.n_tokens().unwrap_or(0), place - first);
            if at < n {
                let (base, of_frame) = (position - at, grid.rows * grid.columns);
                let in_frame = at % of_frame;
                return [at / of_frame, in_frame / grid.columns, in_frame % grid.columns].map(|k| base + k);
            }
            position -= n - grid.longest();
        }
        [position; 3]
    }
}

impl<X: Executor> Engine<X> {
    /// See [`TokenModel::place_grid`](crate::TokenModel::place_grid).
    pub(crate) fn place(&mut self, first: usize, grid: Grid) -> Result<(), EngineError> {
        let n_past = self.kv.next_pos(SeqId(0));
        let writers = &mut self.graphs.writers;
        if !writers.has_axes() {
            let what = "placing an image by frame, row and column".into();
            let hint = "; it needs `positional-encoding` with `rope-type` `qwen2vl-mrope` or `qwen3vl-mrope` and `mrope-section`";
            return Err(EngineError::Unsupported { what, hint });
        }
        writers.grids.place(first, n_past, grid)
    }

    /// Refuses what would take tokens behind an image to places from which their positions do not follow.
    pub(crate) fn check_no_grids(&self, what: &'static str) -> Result<(), EngineError> {
        if self.graphs.writers.grids.is_empty() {
            return Ok(());
        }
        Err(EngineError::Unsupported { what: format!("{what} in a dialog with placed images"), hint: "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn grid(frames: usize, rows: usize, columns: usize) -> Grid {
        Grid { frames, rows, columns }
    }

    #[test]
    fn text_goes_on_behind_the_longest_extent() {
        let mut grids = Grids::default();
        assert_eq!(grids.positions(7), [7; 3]);
        grids.place(3, 0, grid(1, 2, 3)).unwrap();
        grids.place(11, 0, grid(2, 2, 1)).unwrap();
        let found: Vec<[usize; 3]> = (0..17).map(|place| grids.positions(place)).collect();
        let image = [[3, 3, 3], [3, 3, 4], [3, 3, 5], [3, 4, 3], [3, 4, 4], [3, 4, 5]];
        let video = [[8, 8, 8], [8, 9, 8], [9, 8, 8], [9, 9, 8]];
        let text = |from: usize, to: usize| (from..to).map(|p| [p; 3]);
        let expected: Vec<[usize; 3]> =
            text(0, 3).chain(image).chain(text(6, 8)).chain(video).chain(text(10, 12)).collect();
        assert_eq!(found, expected);
        grids.truncate(11);
        assert_eq!(grids.positions(12), [9; 3], "the second is forgotten");
        grids.truncate(0);
        assert!(grids.is_empty());
    }

    #[test]
    fn extents_say_a_grid() {
        let of = |dims: &[usize]| Grid::of_extents(dims).map(|g| (g.frames, g.rows, g.columns));
        assert_eq!(of(&[1, 2, 3, 64]), Some((1, 2, 3)));
        assert_eq!(of(&[2, 3, 64]), Some((1, 2, 3)));
        assert_eq!(of(&[4, 2, 3, 64]), Some((4, 2, 3)));
        for flat in [&[6, 64][..], &[1, 6, 64], &[1, 1, 6, 64], &[64], &[]] {
            assert_eq!(of(flat), None, "{flat:?}");
        }
    }

    #[test]
    fn grids_that_cannot_be_are_refused() {
        let mut grids = Grids::default();
        grids.place(4, 2, grid(1, 2, 2)).unwrap();
        for (first, n_past, grid, want) in [
            (9, 0, grid(1, 0, 2), "at least one frame, row and column"),
            (7, 0, grid(1, 1, 1), "a place from 8 on"),
            (9, 10, grid(1, 1, 1), "a place from 10 on"),
            (9, 0, grid(usize::MAX, 2, 2), "at least one"),
        ] {
            let refused = grids.place(first, n_past, grid).unwrap_err().to_string();
            assert!(refused.contains(want), "{refused}");
        }
    }
}
