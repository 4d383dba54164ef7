//! Scores where keys lie row by row: a product of two rows for each column.
//!
//! Vectors go along the head, so that each product ends in a vector of partial sums. Those of [`Simd::LANES`] keys are turned and
//! added up together. *The bits of a score* depend on its query and its key alone: not on where the key lies, nor on whether it
//! is read in place or was widened before, nor on what else is multiplied with it.

use std::mem::MaybeUninit;

use super::super::simd::{MAX_LANES, Piece, Simd};
use super::COLS;
use super::ahead::Ahead;
use super::block::Block;
use super::source::{Numbers, Source};

/// Queries that are multiplied with a key while it is in registers.
const QUERIES: usize = 4;

/// `scores[query][j] = queries[query] . keys[j]` for `count` rows of `dim` at `keys`, read in place.
///
/// Safe to run while the invariant of [`Block`] holds and the rows are readable.
pub(super) struct Direct<'a, R> {
    pub(super) block: &'a Block<'a>,
    pub(super) keys: R,
    pub(super) count: usize,
    /// The values, which are read next.
    pub(super) ahead: Ahead,
}

impl<R: Source> Piece for Direct<'_, R> {
    #[inline(always)]
    unsafe fn run<S: Simd>(mut self, s: S) {
        self.ahead.spread(self.count.div_ceil(S::LANES));
        for first in (0..self.count).step_by(S::LANES) {
            self.ahead.step(s);
            let n = S::LANES.min(self.count - first);
            // SAFETY: `first + n <= count` rows are readable.
            unsafe { columns(s, self.block, self.keys.from(first * self.block.job.dim), first, n) };
        }
    }
}

/// The same; the rows are widened to f32 in the cache first.
///
/// Safe to run as [`Direct`] is, where the block has memory for packed keys.
pub(super) struct Packed<'a, R> {
    pub(super) block: &'a Block<'a>,
    pub(super) keys: R,
    pub(super) count: usize,
}

impl<R: Source> Piece for Packed<'_, R> {
    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) {
        let Self { block, keys, count } = self;
        let dim = block.job.dim;
        for first in (0..count).step_by(S::LANES) {
            let n = S::LANES.min(count - first);
            // SAFETY: `count <= COLS` rows of `dim` numbers have room among packed keys.
            unsafe {
                for j in first..first + n {
                    keys.from(j * dim).widen(s, block.keys.add(j * dim), dim);
                }
                columns(s, block, Numbers(block.keys.add(first * dim).cast_const()), first, n);
            }
        }
    }
}

/// The scores of all queries with the `n <= LANES` keys from `keys` on, which are columns `first ..`.
///
/// # Safety
/// The invariant of [`Block`]; the rows are readable, and `first + n <= COLS`.
#[inline(always)]
unsafe fn columns<S: Simd, R: Source>(s: S, block: &Block<'_>, keys: R, first: usize, n: usize) {
    let queries = block.count();
    // SAFETY: queries in fours stay inside the padded memory (a multiple of four).
    unsafe {
        match queries {
            1 => products::<S, R, 1>(s, block, keys, 0, first, n),
            2 => products::<S, R, 2>(s, block, keys, 0, first, n),
            _ => {
                for query in (0..queries).step_by(QUERIES) {
                    products::<S, R, QUERIES>(s, block, keys, query, first, n);
                }
            }
        }
    }
}

/// Those of `Q` queries.
///
/// # Safety
/// As [`columns`]; `query .. query + Q` are queries of the padded memory.
#[inline(always)]
unsafe fn products<S: Simd, R: Source, const Q: usize>(
    s: S,
    block: &Block<'_>,
    keys: R,
    query: usize,
    first: usize,
    n: usize,
) {
    let dim = block.job.dim;
    // Partial sums `[query][key][lane]`, and turned `[lane][key]`.
    let mut sums = [const { MaybeUninit::<[f32; MAX_LANES * MAX_LANES]>::uninit() }; Q];
    let mut turned = MaybeUninit::<[f32; MAX_LANES * MAX_LANES]>::uninit();
    let turned = turned.as_mut_ptr().cast::<f32>();
    // SAFETY: queries have `COLS >= dim` numbers, zeros behind `dim`; keys have `dim`; the arrays hold a vector for each key of any
    // instruction set, and are written before they are read; scores have `COLS >= first + n` numbers for each query.
    unsafe {
        let q = block.queries.add(query * COLS);
        for j in 0..n {
            let row = keys.from(j * dim);
            let mut acc = [s.zero(); Q];
            let whole = dim - dim % S::LANES;
            for d in (0..whole).step_by(S::LANES) {
                let key = row.load(s, d);
                for (i, acc) in acc.iter_mut().enumerate() {
                    *acc = s.fma(s.load(q.add(i * COLS + d)), key, *acc);
                }
            }
            if whole < dim {
                let key = row.load_first(s, whole, dim - whole);
                for (i, acc) in acc.iter_mut().enumerate() {
                    *acc = s.fma(s.load_first(q.add(i * COLS + whole), dim - whole), key, *acc);
                }
            }
            for (sums, acc) in sums.iter_mut().zip(acc) {
                s.store(sums.as_mut_ptr().cast::<f32>().add(j * S::LANES), acc);
            }
        }
        for sums in &mut sums {
            for j in n..S::LANES {
                s.store(sums.as_mut_ptr().cast::<f32>().add(j * S::LANES), s.zero());
            }
        }
        for (i, sums) in sums.iter().enumerate() {
            s.transpose(sums.as_ptr().cast(), S::LANES, turned, S::LANES);
            let mut all = s.load(turned);
            for lane in 1..S::LANES {
                all = s.add(all, s.load(turned.add(lane * S::LANES)));
            }
            let to = block.scores.add((query + i) * COLS + first);
            if n == S::LANES { s.store(to, all) } else { s.store_first(to, all, n) }
        }
    }
}
