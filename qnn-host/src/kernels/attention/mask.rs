//! Which columns a mask leaves visible to each block of rows, in stretches of [`STRETCH`] columns.
//!
//! *Shapes*: a mask `[rows, total]`, `total` the columns of all spans in order. *Units*: f32, added to scores.

use super::super::Floats;
use super::super::float::{Elem, with_elem};
use super::super::simd::Simd;

/// Columns of a stretch: whole vectors on every instruction set.
pub const STRETCH: usize = 32;

/// A column is hidden from a row if its mask is lower than the row's highest by more than this.
pub const HIDDEN_BELOW: f32 = 500.0;

/// How much of a stretch is visible to a block of rows. Kept as numbers in f32 scratch.
pub(super) const HIDDEN: f32 = 0.0;
/// Each row's mask is at its highest everywhere: there is nothing to add.
pub(super) const CLEAR: f32 = 1.0;
/// The mask must be added.
pub(super) const MIXED: f32 = 2.0;

/// Stretches that a span of `len` columns has; the last may be short.
pub(super) fn stretches(len: usize) -> usize {
    len.div_ceil(STRETCH)
}

/// Fills `to` with what is visible to the rows `row0 .. row0 + rows` of each stretch of the spans of `lens`. `highest` is
/// scratch for a number of each row.
///
/// # Safety
/// `mask` has `total` (the sum of `lens`) columns and these rows; `to` has space for all stretches, `highest` for `rows`.
#[inline(always)]
pub(super) unsafe fn classify<S: Simd>(
    s: S,
    mask: Option<Floats<'_>>,
    row0: usize,
    rows: usize,
    lens: impl Iterator<Item = usize> + Clone,
    highest: *mut f32,
    to: *mut f32,
) {
    let Some(mask) = mask else {
        for i in 0..lens.map(stretches).sum() {
            // SAFETY: the caller promised space for all stretches.
            unsafe { *to.add(i) = CLEAR };
        }
        return;
    };
    let total = lens.clone().sum::<usize>();
    with_elem!(mask.ty(), E => {
        // SAFETY: the caller promised the rows, and space for what is written.
        unsafe {
            let mask = mask.ptr::<E>().add(row0 * total);
            for row in 0..rows {
                *highest.add(row) = maximum(s, mask.add(row * total), total);
            }
            let (mut at, mut column) = (0, 0);
            for len in lens {
                for start in (0..len).step_by(STRETCH) {
                    let count = STRETCH.min(len - start);
                    *to.add(at) = stretch(s, mask.add(column + start), total, rows, count, highest);
                    at += 1;
                }
                column += len;
            }
        }
    });
}

/// # Safety
/// `n` elements are readable at `x`.
#[inline(always)]
unsafe fn maximum<S: Simd, E: Elem>(s: S, x: *const E, n: usize) -> f32 {
    let whole = n - n % S::LANES;
    let mut max = s.splat(f32::NEG_INFINITY);
    for i in (0..whole).step_by(S::LANES) {
        // SAFETY: `i + LANES <= n`.
        max = s.max(max, unsafe { E::load(s, x.add(i)) });
    }
    let mut max = s.max_lane(max);
    for i in whole..n {
        // SAFETY: `i < n`.
        max = max.max(unsafe { E::get(x.add(i)) });
    }
    max
}

/// What is visible to `rows` rows of the `count` columns at `x`.
///
/// # Safety
/// `count` elements are readable in each row, `highest` has a number for each.
#[inline(always)]
unsafe fn stretch<S: Simd, E: Elem>(
    s: S,
    x: *const E,
    row_stride: usize,
    rows: usize,
    count: usize,
    highest: *const f32,
) -> f32 {
    let whole = count - count % S::LANES;
    // Of all rows, the best and the worst column, relative to its row's highest.
    let mut best = s.splat(f32::NEG_INFINITY);
    let mut worst = s.zero();
    let (mut best_tail, mut worst_tail) = (f32::NEG_INFINITY, 0.0f32);
    for row in 0..rows {
        // SAFETY: `row < rows`, and the columns up to `count` are readable.
        unsafe {
            let (x, high) = (x.add(row * row_stride), *highest.add(row));
            for i in (0..whole).step_by(S::LANES) {
                let v = s.sub(E::load(s, x.add(i)), s.splat(high));
                best = s.max(best, v);
                worst = s.min(worst, v);
            }
            for i in whole..count {
                let v = E::get(x.add(i)) - high;
                best_tail = best_tail.max(v);
                worst_tail = worst_tail.min(v);
            }
        }
    }
    if s.max_lane(best).max(best_tail) < -HIDDEN_BELOW {
        HIDDEN
    } else if worst_tail == 0.0 && s.max_lane(s.sub(s.zero(), worst)) == 0.0 {
        CLEAR
    } else {
        MIXED
    }
}

/// The visible runs of one span, at most `most` columns (a multiple of [`STRETCH`]) at a time.
///
/// An iterator rather than a function that takes a closure: the body of a kernel's loop must stay in the kernel's function,
/// the only one that is compiled for its instruction set.
pub(super) struct Runs<'a> {
    classes: &'a [f32],
    len: usize,
    most: usize,
    next: usize,
}

/// Visible columns of a span.
pub(super) struct Run {
    pub(super) first: usize,
    pub(super) count: usize,
    /// Whether the mask must be added.
    pub(super) mixed: bool,
}

impl<'a> Runs<'a> {
    /// The runs of `classes`, those of `len` columns.
    pub(super) fn new(classes: &'a [f32], len: usize, most: usize) -> Self {
        Self { classes, len, most, next: 0 }
    }
}

impl Iterator for Runs<'_> {
    type Item = Run;

    #[inline(always)]
    fn next(&mut self) -> Option<Run> {
        while *self.classes.get(self.next)? == HIDDEN {
            self.next += 1;
        }
        let start = self.next;
        let mut mixed = false;
        while let Some(&class) = self.classes.get(self.next)
            && class != HIDDEN
            && self.next - start < self.most / STRETCH
        {
            mixed |= class == MIXED;
            self.next += 1;
        }
        let first = start * STRETCH;
        Some(Run { first, count: (self.next * STRETCH).min(self.len) - first, mixed })
    }
}
