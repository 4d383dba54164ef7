//! The online softmax of one task's queries.
//!
//! *Layouts* (f32, `Q` queries in whole tiles; query `g * rows + i` is head `head0 + g`, row `row0 + i`):
//!
//! ```text
//! state   values[Q][value_stride]  highest[Q]  total[Q][3 * LANES]      running; the division is still to come
//! work    queries[Q][COLS]  scores[Q][COLS]                then, for packed blocks, keys[dim][COLS] values[COLS][value_stride]
//! ```
//!
//! *The bits of a result do not depend on how the columns are cut into blocks and spans*, as long as their order is the same and
//! no ranges are joined: weights are relative to a power of two (`highest` is its exponent), so that a new maximum changes no
//! digit of what was added before; weighted values are added one after the other; and the total has three times the digits of a
//! number, so that the order of its parts is not seen in the result. A token then has the same result as one of many new rows
//! and as the only one behind a cache that holds the others.

use super::super::float::{Elem, with_elem};
use super::super::simd::Simd;
use super::super::softmax::{maximum, scale};
use super::ahead::Ahead;
use super::source::{Source, with_source};
use super::team::{DIRECT_QUERIES, Plan};
use super::weights::{TOTAL_VECTORS, Total, exponent, power, weigh};
use super::{Attention, COLS, Span, by_row, direct, mask, matrix, packed};

/// The queries of a task.
#[derive(Clone, Copy)]
pub(super) struct Queries {
    pub(super) kv_head: usize,
    pub(super) head0: usize,
    pub(super) heads: usize,
    pub(super) row0: usize,
    pub(super) rows: usize,
}

/// One task: its queries and the memory it works in.
///
/// Invariant (of [`Block::new`]'s caller): the pointers lead to memory of the sizes above that only this thread uses, and
/// the job's operands fit its shapes.
pub(super) struct Block<'a> {
    pub(super) job: &'a Attention<'a>,
    pub(super) at: Queries,
    /// Queries in whole tiles.
    pub(super) padded: usize,
    pub(super) value_stride: usize,
    pub(super) sums: *mut f32,
    highest: *mut f32,
    total: *mut f32,
    pub(super) queries: *mut f32,
    pub(super) scores: *mut f32,
    /// Space for packed keys and values; unused when direct.
    pub(super) keys: *mut f32,
    pub(super) values: *mut f32,
    /// The highest mask value of each of the task's rows.
    mask_highest: *const f32,
    direct: bool,
    on_matrix: Option<OnMatrix<'a>>,
}

/// This thread's tiles of a matrix unit, and the memory that they are loaded from.
#[derive(Clone, Copy)]
pub(super) struct OnMatrix<'a> {
    pub(super) tiles: &'a matrix::Tiles,
    pub(super) place: matrix::Place,
}

impl<'a> Block<'a> {
    /// # Safety
    /// `state` and `work` have the sizes of the plan's partial result and working memory, and are this thread's alone;
    /// `mask_highest` has a number for each row.
    #[inline(always)]
    pub(super) unsafe fn new(
        job: &'a Attention<'a>,
        plan: &Plan,
        at: Queries,
        state: *mut f32,
        work: *mut f32,
        mask_highest: *const f32,
    ) -> Self {
        let padded = plan.whole_tiles(at.heads * at.rows);
        let value_stride = plan.value_stride;
        let highest = state.wrapping_add(padded * value_stride);
        let scores = work.wrapping_add(padded * COLS);
        let keys = scores.wrapping_add(padded * COLS);
        Self {
            job,
            at,
            padded,
            value_stride,
            sums: state,
            highest,
            total: highest.wrapping_add(padded),
            queries: work,
            scores,
            keys,
            values: keys.wrapping_add(plan.dim * COLS),
            mask_highest,
            direct: plan.direct || at.heads * at.rows <= DIRECT_QUERIES,
            on_matrix: None,
        }
    }

    /// Multiplies on a matrix unit, unless queries are few.
    #[inline(always)]
    pub(super) fn with_matrix(self, unit: Option<OnMatrix<'a>>) -> Self {
        Self { on_matrix: unit.filter(|_| !self.direct), ..self }
    }

    /// Queries of this task.
    #[inline(always)]
    pub(super) fn count(&self) -> usize {
        self.at.heads * self.at.rows
    }

    /// Gathers and scales the queries; no column is added yet.
    ///
    /// # Safety
    /// The invariant.
    #[inline(always)]
    pub(super) unsafe fn begin<S: Simd>(&self, s: S) {
        // SAFETY: whole parts of the memory that the invariant promises, all f32.
        unsafe {
            self.sums.write_bytes(0, self.padded * self.value_stride);
            if self.on_matrix.is_none() {
                self.queries.write_bytes(0, self.padded * COLS);
            }
            for query in 0..self.padded {
                *self.highest.add(query) = f32::NEG_INFINITY;
                Total::none(s).store(s, self.total::<S>(query));
            }
        }
        for query in 0..self.count() {
            let (head, row) = (self.at.head0 + query / self.at.rows, self.at.row0 + query % self.at.rows);
            let from = row * self.job.q_row_stride + head * self.job.q_head_stride;
            let from = &self.job.q[from..from + self.job.dim];
            // SAFETY: a query has `dim <= COLS` numbers.
            unsafe {
                let to = self.queries.add(query * COLS);
                to.copy_from_nonoverlapping(from.as_ptr(), from.len());
                if self.job.scale != 1.0 {
                    scale(s, to, from.len(), self.job.scale);
                }
            }
        }
        if let Some(on) = self.on_matrix {
            // SAFETY: the invariant; there are tiles.
            unsafe { matrix::queries(self, on.place) };
        }
    }

    /// Adds the visible columns of range `range` of `ranges` of all spans.
    ///
    /// # Safety
    /// The invariant; `classes` are those of this task's rows.
    #[inline(always)]
    pub(super) unsafe fn absorb_range<S: Simd>(&self, s: S, classes: &[f32], range: usize, ranges: usize) {
        // A range is a share of the stretches of all spans together.
        let (from, to) = (classes.len() * range / ranges, classes.len() * (range + 1) / ranges);
        let (mut first, mut column) = (0, 0);
        for span in self.job.spans {
            let stretches = mask::stretches(span.len);
            let (a, b) = (from.clamp(first, first + stretches), to.clamp(first, first + stretches));
            let start = (a - first) * mask::STRETCH;
            let len = ((b - first) * mask::STRETCH).min(span.len) - start.min(span.len);
            let mut runs = mask::Runs::new(&classes[a..b], len, COLS).peekable();
            while let Some(run) = runs.next() {
                let at = start + run.first;
                let next = runs.peek().map_or([0, 0], |next| [start + next.first, next.count]);
                // SAFETY: the run lies inside the span; the caller's promise.
                unsafe { self.absorb(s, span, [at, run.count], next, run.mixed.then_some(column + at)) };
            }
            first += stretches;
            column += span.len;
        }
    }

    /// Adds columns `at .. at + count` of a span, `count <= COLS`; those of `next`, their first and their count, are asked for meanwhile.
    /// Adds the mask from column `masked` on, if given.
    ///
    /// # Safety
    /// The invariant; the columns exist.
    #[inline(always)]
    unsafe fn absorb<S: Simd>(
        &self,
        s: S,
        span: &Span<'_>,
        [at, count]: [usize; 2],
        [next_at, next]: [usize; 2],
        masked: Option<usize>,
    ) {
        let (dim, Span { keys, values, len }) = (self.job.dim, span);
        let head = self.at.kv_head * dim * len;
        let values_ahead = Ahead::new(values.place(head + at * dim), 0, 1, count * dim * values.size_bytes());
        let keys_ahead = if self.job.keys_by_row {
            Ahead::new(keys.place(head + next_at * dim), 0, 1, next * dim * keys.size_bytes())
        } else {
            let (key, stride) = (keys.place(head + next_at), len * keys.size_bytes());
            Ahead::new(key, stride, dim, next * keys.size_bytes())
        };
        // SAFETY: head `kv_head` of the span begins at `head`; the columns exist, and `count <= COLS` scores of each query.
        unsafe {
            with_source!(span.keys, keys => {
                let (block, stride) = (self, span.len);
                let keys = keys.from(head + if self.job.keys_by_row { at * dim } else { at });
                match (self.job.keys_by_row, self.direct, self.on_matrix) {
                    (true, true, _) => s.outline(by_row::Direct { block, keys, count, ahead: values_ahead }),
                    (true, false, _) => s.outline(by_row::Packed { block, keys, count }),
                    (false, true, _) => s.outline(direct::Scores { block, keys, stride, count, ahead: values_ahead }),
                    (false, false, Some(on)) => matrix::scores(on.tiles, block, on.place, keys, stride, count),
                    (false, false, None) => s.outline(packed::Scores { block, keys, stride, count }),
                }
            });
            if span.keys.scale() != 1.0 {
                for query in 0..self.count() {
                    scale(s, self.scores.add(query * COLS), count, span.keys.scale());
                }
            }
        }
        if let (Some(mask), Some(column)) = (self.job.mask, masked) {
            let total: usize = self.job.spans.iter().map(|span| span.len).sum();
            with_elem!(mask.ty(), E => {
                for query in 0..self.count() {
                    let row = query % self.at.rows;
                    // SAFETY: the mask has these columns in this row, the scores have `COLS` for each query.
                    unsafe {
                        let mask = mask.ptr::<E>().add((self.at.row0 + row) * total + column);
                        add_mask(s, self.scores.add(query * COLS), mask, *self.mask_highest.add(row), count);
                    }
                }
            });
        }
        // A matrix unit's weights are written as tiles, below.
        if self.on_matrix.is_none() {
            for query in 0..self.count() {
                // SAFETY: `count <= COLS` scores of this query.
                unsafe {
                    self.weigh(s, query, count);
                    if span.values.scale() != 1.0 {
                        scale(s, self.scores.add(query * COLS), count, span.values.scale());
                    }
                }
            }
        }
        // SAFETY: as above, for the values.
        unsafe {
            with_source!(span.values, values => {
                let (block, values) = (self, values.from(head + at * self.job.dim));
                if self.direct {
                    s.outline(direct::Weighted { block, values, count, ahead: keys_ahead });
                } else if let Some(on) = self.on_matrix {
                    matrix::weigh(on.tiles, block, on.place, count, span.values.scale());
                    matrix::weighted(on.tiles, block, on.place, values, count);
                } else {
                    s.outline(packed::Weighted { block, values, count });
                }
            });
        }
    }

    /// Where a query's total is.
    #[inline(always)]
    pub(super) fn total<S: Simd>(&self, query: usize) -> *mut f32 {
        self.total.wrapping_add(query * TOTAL_VECTORS * S::LANES)
    }

    /// Turns a query's scores into weights relative to its new maximum, and scales what was added before.
    ///
    /// # Safety
    /// The invariant; `count <= COLS` scores are there.
    #[inline(always)]
    unsafe fn weigh<S: Simd>(&self, s: S, query: usize, count: usize) {
        // SAFETY: all of it is memory of this query.
        unsafe {
            let scores = self.scores.add(query * COLS);
            let (highest, total) = self.raise(s, query, maximum(s, scores, count));
            weigh(s, scores, count, highest, total).store(s, self.total::<S>(query));
        }
    }

    /// The exponent that a query's scores up to `score` are weighed by, and its total, to which weights are to be added: what was added before
    /// is scaled where the exponent grows.
    ///
    /// # Safety
    /// The invariant.
    #[inline(always)]
    pub(super) unsafe fn raise<S: Simd>(&self, s: S, query: usize, score: f32) -> (f32, Total<S>) {
        // SAFETY: all of it is memory of this query.
        unsafe {
            let before = *self.highest.add(query);
            let now = before.max(exponent(score));
            let mut total = Total::load(s, self.total::<S>(query));
            if now > before {
                *self.highest.add(query) = now;
                if before > f32::NEG_INFINITY {
                    let factor = power(before - now);
                    total = total.scaled(s, factor);
                    scale(s, self.sums.add(query * self.value_stride), self.value_stride, factor);
                }
            }
            (now, total)
        }
    }

    /// Adds what another range of the same queries left in `other` (laid out as the state).
    ///
    /// # Safety
    /// The invariant, for `other` as well.
    #[inline(always)]
    pub(super) unsafe fn join<S: Simd>(&self, s: S, other: *const f32) {
        for query in 0..self.count() {
            // SAFETY: both states hold this query.
            unsafe {
                let their_highest = *other.add(self.padded * self.value_stride + query);
                let theirs = other.add(self.padded * (self.value_stride + 1) + query * TOTAL_VECTORS * S::LANES);
                let their_total = Total::load(s, theirs);
                // A range has no highest score where it saw no column, and where no score is a number.
                if their_highest == f32::NEG_INFINITY && !their_total.value(s).is_nan() {
                    continue;
                }
                let highest = self.highest.add(query);
                let now = their_highest.max(*highest);
                let (mine, theirs) = (power(*highest - now), power(their_highest - now));
                *highest = now;
                let total = Total::load(s, self.total::<S>(query)).scaled(s, mine);
                total.join(s, their_total.scaled(s, theirs)).store(s, self.total::<S>(query));
                let (to, from) = (self.sums.add(query * self.value_stride), other.add(query * self.value_stride));
                for i in (0..self.value_stride).step_by(S::LANES) {
                    let sum = s.mul(s.load(to.add(i)), s.splat(mine));
                    s.store(to.add(i), s.fma(s.load(from.add(i)), s.splat(theirs), sum));
                }
            }
        }
    }

    /// Divides and writes the results.
    ///
    /// # Safety
    /// The invariant; the results of these queries are this thread's alone.
    #[inline(always)]
    pub(super) unsafe fn store<S: Simd>(&self, s: S) {
        for query in 0..self.count() {
            let (head, row) = (self.at.head0 + query / self.at.rows, self.at.row0 + query % self.at.rows);
            let to = row * self.job.out_row_stride + head * self.job.out_head_stride;
            // SAFETY: the state holds this query; its result lies inside `out`.
            unsafe {
                let from = self.sums.add(query * self.value_stride);
                let total = Total::load(s, self.total::<S>(query)).value(s);
                scale(s, from, self.job.dim, 1.0 / total);
                self.job.out.ptr().add(to).copy_from_nonoverlapping(from, self.job.dim);
            }
        }
    }
}

/// `scores += mask - highest`. Softmax does not change when all scores of a row do by the same, and so a row that is hidden
/// everywhere by a large number keeps the digits of its scores.
///
/// # Safety
/// `count` numbers are readable at both and writable at `scores`.
#[inline(always)]
unsafe fn add_mask<S: Simd, E: Elem>(s: S, scores: *mut f32, mask: *const E, highest: f32, count: usize) {
    let (whole, rest, highest) = (count - count % S::LANES, count % S::LANES, s.splat(highest));
    for i in (0..whole).step_by(S::LANES) {
        // SAFETY: `i + LANES <= count`.
        unsafe {
            let mask = s.sub(E::load(s, mask.add(i)), highest);
            s.store(scores.add(i), s.add(s.load(scores.add(i)), mask));
        }
    }
    if rest > 0 {
        // SAFETY: `rest` elements are left behind `whole`.
        unsafe {
            let mask = s.sub(E::load_first(s, mask.add(whole), rest), highest);
            s.store_first(scores.add(whole), s.add(s.load_first(scores.add(whole), rest), mask), rest);
        }
    }
}
