//! Many rows of `X` with weights as rows of floats or bytes, on units with sixteen registers: a part of the weights is opened as f32 in the
//! first-level cache, and stays there for some rows of `X`.
//!
//! Products have the bits of those of [`super::dot`]: lane by lane along `k`, then over the lanes. Sums stay in registers for a part of the
//! columns, and in memory between two of them.
//!
//! *Scratch of a thread*, f32: opened weights `[OUTPUTS][COLS]`; a part of the columns of `X`, `[ROWS][COLS]`, where rows do not compete for the
//! same sets of the first-level cache; sums `[ROWS][MAX_CHUNK][LANES]`; products of a layer and of its gate, each `[ROWS][MAX_CHUNK]`.

use super::super::float::Load;
use super::super::rows::{RowMat, with_row_elem};
use super::super::simd::{Piece, Simd};
use super::finish::{Affine, MAX_CHUNK, finish_rows};
use super::{Job, Linear};

/// Rows of weights that are opened at a time.
pub(super) const OUTPUTS: usize = 16;
/// Columns of them.
const COLS: usize = 256;
/// Rows of `X` for which they stay opened.
const ROWS: usize = 48;
/// Widest vector of a unit with sixteen registers.
const LANES: usize = 8;
/// Rows of `X` and of weights of a register tile, which has a register for each sum, for each row of `X` and for one of weights.
const TILE: (usize, usize) = (3, 4);
/// Vectors of columns in a pass of the loop over them, whose end is predicted where it has few passes.
const UNROLLED: usize = 4;
const X_AT: usize = OUTPUTS * COLS;
const SUMS_AT: usize = X_AT + ROWS * COLS;
const PRODUCTS_AT: usize = SUMS_AT + ROWS * MAX_CHUNK * LANES;
/// Floats of scratch of a thread.
pub(super) const THREAD_LEN: usize = PRODUCTS_AT + 2 * ROWS * MAX_CHUNK;

/// Outputs `n0 .. n0 + count` of a layer, for all rows.
///
/// # Safety
/// The outputs are the layer's, `count <= MAX_CHUNK`, and this thread alone uses them, and the [`THREAD_LEN`] floats at `own`.
#[inline(always)]
pub(super) unsafe fn chunk<S: Simd>(
    s: S,
    job: &Job<'_>,
    layer: &Linear<'_>,
    weights: RowMat<'_>,
    n0: usize,
    count: usize,
    own: *mut f32,
) {
    let affine = Affine::of(layer, n0, count);
    let gate_weights = layer.gate.and_then(|g| g.weights.as_rows());
    let main = own.wrapping_add(PRODUCTS_AT);
    let gate = main.wrapping_add(ROWS * MAX_CHUNK);
    for row0 in (0..job.m).step_by(ROWS) {
        let (m, k) = (ROWS.min(job.m - row0), job.k);
        let x = job.x[row0 * k..].as_ptr();
        // SAFETY: `m` rows of `X` and `count` rows of weights exist; their products fit; the caller's promise covers the outputs.
        unsafe {
            for (weights, to) in [(gate_weights, gate), (Some(weights), main)] {
                if let Some(weights) = weights {
                    with_row_elem!(weights.elem, E => {
                        let w = weights.ptr::<E>().add(n0 * k);
                        s.outline(Products { x, m, k, w, count, own, to });
                    });
                }
            }
            finish_rows(s, layer, &affine, row0..row0 + m, n0, count, main, gate);
        }
    }
}

/// `to[row * MAX_CHUNK + i] = x[row] . w[i]` for `count` rows of weights and `m <= ROWS` rows of `x`.
///
/// Safe to run while `count` rows of `k` elements are readable at `w` and `m` at `x`, and `to` and the scratch at `own` have space.
struct Products<E> {
    x: *const f32,
    m: usize,
    k: usize,
    w: *const E,
    count: usize,
    own: *mut f32,
    to: *mut f32,
}

impl<E: Load> Piece for Products<E> {
    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) {
        const { assert!(S::MANY_REGISTERS || S::LANES <= LANES) };
        let Self { x, m, k, w, count, own, to } = self;
        let (own_x, sums) = (own.wrapping_add(X_AT), own.wrapping_add(SUMS_AT));
        let sums_of = |row: usize, i: usize| sums.wrapping_add((row * MAX_CHUNK + i) * S::LANES);
        // Rows without columns have sums as well.
        for col in (0..k.max(1)).step_by(COLS) {
            let cols = COLS.min(k - col);
            // SAFETY: all rows have these columns.
            unsafe { open(s, x.add(col), k, m, cols, own_x) };
            for first in (0..count).step_by(OUTPUTS) {
                let n = OUTPUTS.min(count - first);
                let part = w.wrapping_add(first * k + col);
                // What is opened next: these columns of the next rows, or the next columns of the first ones.
                let next = if first + n < count { part.wrapping_add(n * k) } else { w.wrapping_add(col + cols) };
                // SAFETY: rows `first .. first + n` of the weights have these columns. The last tile's rows beyond `n` hold numbers of
                // earlier ones; sums with them fit, and are not read.
                unsafe {
                    open(s, part, k, n, cols, own);
                    for row in (0..m).step_by(TILE.0) {
                        ask_for(s, next.wrapping_add(row % OUTPUTS * k), cols);
                        let x = own_x.add(row * COLS).cast_const();
                        for i in (0..n).step_by(TILE.1) {
                            let (w, to) = (own.add(i * COLS).cast_const(), sums_of(row, first + i));
                            match m - row {
                                1 => tile::<S, 1>(s, x, w, cols, to, col == 0),
                                2 => tile::<S, 2>(s, x, w, cols, to, col == 0),
                                _ => tile::<S, 3>(s, x, w, cols, to, col == 0),
                            }
                        }
                    }
                }
            }
        }
        for row in 0..m {
            for i in 0..count {
                // SAFETY: written above; the caller promised space.
                unsafe { *to.add(row * MAX_CHUNK + i) = s.sum(s.load(sums_of(row, i))) };
            }
        }
    }
}

/// Asks for the lines of `count` elements at `at`, which need not be a valid address.
#[inline(always)]
fn ask_for<S: Simd, E>(s: S, at: *const E, count: usize) {
    for byte in (0..count * size_of::<E>()).step_by(64) {
        s.prefetch_l2(at.wrapping_byte_add(byte));
    }
}

/// Opens `cols` columns of `n` rows, `k` elements apart, as f32 [`COLS`] apart, zeros behind them up to whole vectors.
///
/// # Safety
/// The rows are readable; `cols <= COLS`, and `to` has space.
#[inline(always)]
unsafe fn open<S: Simd, E: Load>(s: S, from: *const E, k: usize, n: usize, cols: usize, to: *mut f32) {
    let whole = cols - cols % S::LANES;
    for row in 0..n {
        // SAFETY: the caller's promise; `COLS` is a multiple of any vector.
        unsafe {
            let (from, to) = (from.add(row * k), to.add(row * COLS));
            for at in (0..whole).step_by(S::LANES) {
                s.store(to.add(at), E::load(s, from.add(at)));
            }
            if whole < cols {
                s.store(to.add(whole), E::load_first(s, from.add(whole), cols - whole));
            }
        }
    }
}

/// `M` opened rows of `x` times [`TILE`]'s of weights, for `cols` columns: added to the sums, or the first part of them.
///
/// # Safety
/// All rows are numbers, whole vectors of them; the sums are readable and writable, those of rows of `x` [`MAX_CHUNK`] vectors apart.
#[inline(always)]
unsafe fn tile<S: Simd, const M: usize>(
    s: S,
    x: *const f32,
    w: *const f32,
    cols: usize,
    sums: *mut f32,
    is_first: bool,
) {
    let place = |row: usize, i: usize| sums.wrapping_add((row * MAX_CHUNK + i) * S::LANES);
    let mut all = [[s.zero(); TILE.1]; M];
    if !is_first {
        for (row, all) in all.iter_mut().enumerate() {
            for (i, sum) in all.iter_mut().enumerate() {
                // SAFETY: an earlier part has written them.
                *sum = unsafe { s.load(place(row, i)) };
            }
        }
    }
    // Behind the last column both have zeros.
    let mut at = 0;
    while at + UNROLLED * S::LANES <= cols {
        for part in 0..UNROLLED {
            let at = at + part * S::LANES;
            // SAFETY: these columns are below `cols`.
            unsafe { add_products(s, x.add(at), w.add(at), &mut all) };
        }
        at += UNROLLED * S::LANES;
    }
    while at < cols {
        // SAFETY: as above; opened rows are whole vectors.
        unsafe { add_products(s, x.add(at), w.add(at), &mut all) };
        at += S::LANES;
    }
    for (row, all) in all.into_iter().enumerate() {
        for (i, sum) in all.into_iter().enumerate() {
            // SAFETY: the caller promised space.
            unsafe { s.store(place(row, i), sum) };
        }
    }
}

/// Adds the products of one vector of columns.
///
/// # Safety
/// `x` and `w` are at these columns of the first of their rows, which are [`COLS`] apart.
#[inline(always)]
unsafe fn add_products<S: Simd, const M: usize>(s: S, x: *const f32, w: *const f32, all: &mut [[S::V; TILE.1]; M]) {
    let mut xs = [s.zero(); M];
    for (row, x_row) in xs.iter_mut().enumerate() {
        // SAFETY: the caller's promise.
        *x_row = unsafe { s.load(x.add(row * COLS)) };
    }
    for i in 0..TILE.1 {
        // SAFETY: the caller's promise.
        let w = unsafe { s.load(w.add(i * COLS)) };
        for (all, x) in all.iter_mut().zip(xs) {
            all[i] = s.fma(x, w, all[i]);
        }
    }
}
