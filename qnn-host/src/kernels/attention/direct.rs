//! Products for few queries: keys and values go from memory through registers once, for four queries at a time.

use super::super::simd::{Piece, Simd};
use super::COLS;
use super::ahead::Ahead;
use super::block::Block;
use super::source::Source;

/// Vectors of a tile.
#[inline(always)]
fn wide<S: Simd>() -> usize {
    if S::MANY_REGISTERS { 4 } else { 2 }
}

/// As [`super::packed::Scores`].
pub(super) struct Scores<'a, R> {
    pub(super) block: &'a Block<'a>,
    pub(super) keys: R,
    pub(super) stride: usize,
    pub(super) count: usize,
    /// The values, which are read next.
    pub(super) ahead: Ahead,
}

impl<R: Source> Piece for Scores<'_, R> {
    #[inline(always)]
    unsafe fn run<S: Simd>(mut self, s: S) {
        let queries = self.block.count();
        self.ahead.spread(self.count / (wide::<S>() * S::LANES) * self.block.job.dim);
        // SAFETY: queries in fours stay inside the padded memory (a multiple of four); columns stay under `count`.
        unsafe {
            match queries {
                1 => self.score::<S, 1>(s, 0),
                2 => self.score::<S, 2>(s, 0),
                _ => {
                    for query in (0..queries).step_by(4) {
                        self.score::<S, 4>(s, query);
                    }
                }
            }
        }
    }
}

impl<R: Source> Scores<'_, R> {
    /// # Safety
    /// `query .. query + Q` are queries of the padded memory; `count` columns are readable.
    #[inline(always)]
    unsafe fn score<S: Simd, const Q: usize>(&mut self, s: S, query: usize) {
        let mut j = 0;
        // SAFETY: each step stays under `count`.
        unsafe {
            while j + wide::<S>() * S::LANES <= self.count {
                if S::MANY_REGISTERS {
                    self.tile::<S, Q, 4>(s, query, j, S::LANES);
                } else {
                    self.tile::<S, Q, 2>(s, query, j, S::LANES);
                }
                j += wide::<S>() * S::LANES;
            }
            // A stretch of a mask is two vectors of the widest unit: twice as many sums that do not wait for each other.
            if S::MANY_REGISTERS && j + 2 * S::LANES <= self.count {
                self.tile::<S, Q, 2>(s, query, j, S::LANES);
                j += 2 * S::LANES;
            }
            while j < self.count {
                let n = S::LANES.min(self.count - j);
                self.tile::<S, Q, 1>(s, query, j, n);
                j += n;
            }
        }
    }

    /// `V` vectors of columns from `j` on; with `V = 1`, only `n` columns.
    ///
    /// # Safety
    /// As [`Self::score`].
    #[inline(always)]
    unsafe fn tile<S: Simd, const Q: usize, const V: usize>(&mut self, s: S, query: usize, j: usize, n: usize) {
        let Self { block, keys, stride, count, mut ahead } = *self;
        let goes_on = j + V * S::LANES < count;
        let mut acc = [[s.zero(); V]; Q];
        // SAFETY: each of the `dim` rows has the columns; the queries have `dim` numbers; scores have `COLS` for each query.
        unsafe {
            let q = block.queries.add(query * COLS);
            for d in 0..block.job.dim {
                let row = keys.from(d * stride + j);
                // Rows lie far apart: hardware streams do not follow that many, so ask for the next columns of this one.
                if goes_on {
                    let next = row.from(V * S::LANES).start();
                    for line in (0..V * S::LANES * R::BYTES).step_by(64) {
                        s.prefetch(next.wrapping_add(line));
                    }
                }
                ahead.step(s);
                let mut k = [s.zero(); V];
                for (v, k) in k.iter_mut().enumerate() {
                    *k = if n == S::LANES { row.load(s, v * S::LANES) } else { row.load_first(s, 0, n) };
                }
                for (i, acc) in acc.iter_mut().enumerate() {
                    let x = s.splat(*q.add(i * COLS + d));
                    for (acc, k) in acc.iter_mut().zip(k) {
                        *acc = s.fma(x, k, *acc);
                    }
                }
            }
            for (i, acc) in acc.iter().enumerate() {
                for (v, &acc) in acc.iter().enumerate() {
                    let to = block.scores.add((query + i) * COLS + j + v * S::LANES);
                    if n == S::LANES { s.store(to, acc) } else { s.store_first(to, acc, n) }
                }
            }
        }
        self.ahead = ahead;
    }
}

/// As [`super::packed::Weighted`].
pub(super) struct Weighted<'a, R> {
    pub(super) block: &'a Block<'a>,
    pub(super) values: R,
    pub(super) count: usize,
    /// The keys that are read next.
    pub(super) ahead: Ahead,
}

impl<R: Source> Piece for Weighted<'_, R> {
    #[inline(always)]
    unsafe fn run<S: Simd>(mut self, s: S) {
        let queries = self.block.count();
        self.ahead.spread(self.block.job.dim.div_ceil(wide::<S>() * S::LANES) * self.count);
        // SAFETY: queries in fours stay inside the padded memory (a multiple of four).
        unsafe {
            match queries {
                1 => self.weigh::<S, 1>(s, 0),
                2 => self.weigh::<S, 2>(s, 0),
                _ => {
                    for query in (0..queries).step_by(4) {
                        self.weigh::<S, 4>(s, query);
                    }
                }
            }
        }
    }
}

impl<R: Source> Weighted<'_, R> {
    /// # Safety
    /// `query .. query + Q` are queries of the padded memory; `count` rows are readable.
    #[inline(always)]
    unsafe fn weigh<S: Simd, const Q: usize>(&mut self, s: S, query: usize) {
        let dim = self.block.job.dim;
        let mut d = 0;
        // SAFETY: each step stays under `dim`.
        unsafe {
            while d + wide::<S>() * S::LANES <= dim {
                if S::MANY_REGISTERS {
                    self.tile::<S, Q, 4>(s, query, d, S::LANES);
                } else {
                    self.tile::<S, Q, 2>(s, query, d, S::LANES);
                }
                d += wide::<S>() * S::LANES;
            }
            while d < dim {
                let n = S::LANES.min(dim - d);
                self.tile::<S, Q, 1>(s, query, d, n);
                d += n;
            }
        }
    }

    /// `V` vectors of a value from number `d` on; with `V = 1`, only `n` numbers.
    ///
    /// # Safety
    /// As [`Self::weigh`].
    #[inline(always)]
    unsafe fn tile<S: Simd, const Q: usize, const V: usize>(&mut self, s: S, query: usize, d: usize, n: usize) {
        let Self { block, values, count, mut ahead } = *self;
        // SAFETY: sums have `value_stride` numbers for each query, whole vectors; scores have `COLS >= count`; rows have `dim`.
        unsafe {
            let sums = block.sums.add(query * block.value_stride + d);
            let mut acc = [[s.zero(); V]; Q];
            for (i, acc) in acc.iter_mut().enumerate() {
                for (v, acc) in acc.iter_mut().enumerate() {
                    *acc = s.load(sums.add(i * block.value_stride + v * S::LANES));
                }
            }
            let weights = block.scores.add(query * COLS);
            for j in 0..count {
                let row = values.from(j * block.job.dim + d);
                ahead.step(s);
                let mut x = [s.zero(); V];
                for (v, x) in x.iter_mut().enumerate() {
                    *x = if n == S::LANES { row.load(s, v * S::LANES) } else { row.load_first(s, 0, n) };
                }
                for (i, acc) in acc.iter_mut().enumerate() {
                    let w = s.splat(*weights.add(i * COLS + j));
                    for (acc, x) in acc.iter_mut().zip(x) {
                        *acc = s.fma(w, x, *acc);
                    }
                }
            }
            for (i, acc) in acc.iter().enumerate() {
                for (v, &acc) in acc.iter().enumerate() {
                    s.store(sums.add(i * block.value_stride + v * S::LANES), acc);
                }
            }
        }
        self.ahead = ahead;
    }
}
