//! Products for few queries: keys and values go from memory through registers once, for four queries at a time.

use super::super::simd::{Piece, Simd};
use super::COLS;
use super::block::Block;
use super::source::Source;

/// As [`super::packed::Scores`], which see.
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
        let queries = block.count();
        // SAFETY: queries in fours stay inside the padded memory (a multiple of four); columns stay under `count`.
        unsafe {
            match queries {
                1 => score::<S, R, 1>(s, block, 0, keys, stride, count),
                2 => score::<S, R, 2>(s, block, 0, keys, stride, count),
                _ => {
                    for query in (0..queries).step_by(4) {
                        score::<S, R, 4>(s, block, query, keys, stride, count);
                    }
                }
            }
        }
    }
}

/// # Safety
/// `query .. query + Q` are queries of the padded memory; `count` columns are readable.
#[inline(always)]
unsafe fn score<S: Simd, R: Source, const Q: usize>(
    s: S,
    block: &Block<'_>,
    query: usize,
    keys: R,
    stride: usize,
    count: usize,
) {
    let mut j = 0;
    // SAFETY: each step stays under `count`.
    unsafe {
        if S::MANY_REGISTERS {
            while j + 4 * S::LANES <= count {
                score_tile::<S, R, Q, 4>(s, block, query, keys, stride, j, S::LANES);
                j += 4 * S::LANES;
            }
        } else {
            while j + 2 * S::LANES <= count {
                score_tile::<S, R, Q, 2>(s, block, query, keys, stride, j, S::LANES);
                j += 2 * S::LANES;
            }
        }
        while j < count {
            let n = S::LANES.min(count - j);
            score_tile::<S, R, Q, 1>(s, block, query, keys, stride, j, n);
            j += n;
        }
    }
}

/// `V` vectors of columns from `j` on; with `V = 1`, only `n` columns.
///
/// # Safety
/// As [`score`].
#[inline(always)]
unsafe fn score_tile<S: Simd, R: Source, const Q: usize, const V: usize>(
    s: S,
    block: &Block<'_>,
    query: usize,
    keys: R,
    stride: usize,
    j: usize,
    n: usize,
) {
    let mut acc = [[s.zero(); V]; Q];
    // SAFETY: each of the `dim` rows has the columns; the queries have `dim` numbers; scores have `COLS` for each query.
    unsafe {
        let q = block.queries.add(query * COLS);
        for d in 0..block.job.dim {
            let row = keys.from(d * stride + j);
            // Rows lie far apart: no hardware stream follows so many, so ask for the next columns of this one.
            let next = row.from(V * S::LANES).start();
            for line in (0..V * S::LANES * R::BYTES).step_by(64) {
                s.prefetch(next.wrapping_add(line));
            }
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
}

/// As [`super::packed::Weighted`], which see.
pub(super) struct Weighted<'a, R> {
    pub(super) block: &'a Block<'a>,
    pub(super) values: R,
    pub(super) count: usize,
}

impl<R: Source> Piece for Weighted<'_, R> {
    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) {
        let Self { block, values, count } = self;
        let queries = block.count();
        // SAFETY: queries in fours stay inside the padded memory (a multiple of four).
        unsafe {
            match queries {
                1 => weigh::<S, R, 1>(s, block, 0, values, count),
                2 => weigh::<S, R, 2>(s, block, 0, values, count),
                _ => {
                    for query in (0..queries).step_by(4) {
                        weigh::<S, R, 4>(s, block, query, values, count);
                    }
                }
            }
        }
    }
}

/// # Safety
/// `query .. query + Q` are queries of the padded memory; `count` rows are readable.
#[inline(always)]
unsafe fn weigh<S: Simd, R: Source, const Q: usize>(s: S, block: &Block<'_>, query: usize, values: R, count: usize) {
    let dim = block.job.dim;
    let mut d = 0;
    // SAFETY: each step stays under `dim`.
    unsafe {
        if S::MANY_REGISTERS {
            while d + 4 * S::LANES <= dim {
                weigh_tile::<S, R, Q, 4>(s, block, query, values, count, d, S::LANES);
                d += 4 * S::LANES;
            }
        } else {
            while d + 2 * S::LANES <= dim {
                weigh_tile::<S, R, Q, 2>(s, block, query, values, count, d, S::LANES);
                d += 2 * S::LANES;
            }
        }
        while d < dim {
            let n = S::LANES.min(dim - d);
            weigh_tile::<S, R, Q, 1>(s, block, query, values, count, d, n);
            d += n;
        }
    }
}

/// `V` vectors of a value from number `d` on; with `V = 1`, only `n` numbers.
///
/// # Safety
/// As [`weigh`].
#[inline(always)]
unsafe fn weigh_tile<S: Simd, R: Source, const Q: usize, const V: usize>(
    s: S,
    block: &Block<'_>,
    query: usize,
    values: R,
    count: usize,
    d: usize,
    n: usize,
) {
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
}
