//! Products for many queries: a block of keys or values is widened to f32 in the cache once, then multiplied in
//! register tiles.

use super::super::simd::{Piece, Simd, Tile};
use super::COLS;
use super::block::Block;
use super::source::Source;

/// `scores[query][j] = queries[query] . keys[.., j]` for `count` columns at `keys` (rows of `dim`, `stride` apart).
///
/// Safe to run while the invariant of [`Block`] holds and the columns are readable.
pub(super) struct Scores<'a, R> {
    pub(super) block: &'a Block<'a>,
    pub(super) keys: R,
    pub(super) stride: usize,
    pub(super) count: usize,
}

impl<R: Source> Piece for Scores<'_, R> {
    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) {
        let Self { block, keys, stride, count } = self;
        let (dim, pair) = (block.job.dim, 2 * S::LANES);
        // SAFETY: `dim` rows of `COLS >= count` numbers are there for keys, `padded` rows of `COLS` for queries and scores.
        // Columns up to the next whole tile are zeroed, so that their scores, which are not read, are harmless.
        unsafe {
            for d in 0..dim {
                let to = block.keys.add(d * COLS);
                keys.from(d * stride).widen(s, to, count);
                to.add(count).write_bytes(0, count.next_multiple_of(pair) - count);
            }
            for query in (0..block.padded).step_by(S::TILE_ROWS) {
                for j in (0..count).step_by(pair) {
                    let vectors = if count - j > S::LANES { 2 } else { 1 };
                    let (a, b) = (block.queries.add(query * COLS), block.keys.add(j));
                    let c = block.scores.add(query * COLS + j);
                    s.tile(Tile { a, b, ldb: COLS, k: dim, c, ldc: COLS }, vectors, false);
                }
            }
        }
    }
}

/// `sums[query] += sum_j scores[query][j] * values[j]` for `count` rows of `dim` at `values`.
///
/// Safe to run while the invariant of [`Block`] holds and the rows are readable.
pub(super) struct Weighted<'a, R> {
    pub(super) block: &'a Block<'a>,
    pub(super) values: R,
    pub(super) count: usize,
}

impl<R: Source> Piece for Weighted<'_, R> {
    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) {
        let Self { block, values, count } = self;
        let (dim, stride, pair) = (block.job.dim, block.value_stride, 2 * S::LANES);
        // SAFETY: `COLS >= count` rows of `value_stride` numbers are there for values, `padded` rows for sums; `value_stride` is
        // a whole number of tiles, of which what is past `dim` is zeroed.
        unsafe {
            for j in 0..count {
                let to = block.values.add(j * stride);
                values.from(j * dim).widen(s, to, dim);
                to.add(dim).write_bytes(0, stride - dim);
            }
            for query in (0..block.padded).step_by(S::TILE_ROWS) {
                for d in (0..dim).step_by(pair) {
                    let vectors = if dim - d > S::LANES { 2 } else { 1 };
                    let (a, b) = (block.scores.add(query * COLS), block.values.add(d));
                    let c = block.sums.add(query * stride + d);
                    s.tile(Tile { a, b, ldb: stride, k: count, c, ldc: stride }, vectors, true);
                }
            }
        }
    }
}
