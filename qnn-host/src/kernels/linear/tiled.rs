//! Many rows of `X`: register tiles over transposed panels.
//!
//! *Layouts*, with `P` = two vectors, `R` = rows of the register tile:
//!
//! ```text
//! packed X   panels of P rows of X, each k x P:     X^T[panel][k][P]     all threads, packed in phase one
//! panel of W R rows of W widened to f32, A_STRIDE   W[R][A_STRIDE]       each thread, first-level cache
//! products   outputs x rows of X:                   Y^T[n][m]            each thread, second-level cache
//! ```
//!
//! A task is a chunk of one layer's outputs. For each block of rows of `X` and each stretch of `A_STRIDE` along `k`, every
//! `R` rows of weights are widened once and multiplied with all panels of the block. At the end the products are transposed
//! back into rows and finished.

use super::super::Isa;
use super::super::convert::move_all;
use super::super::isa::simd_fn;
use super::super::rows::{RowMat, with_row_elem};
use super::super::simd::{A_STRIDE, MAX_LANES, Simd, Tile};
use super::finish::{Affine, MAX_CHUNK, finish};
use super::{Job, Linear};
use crate::pool::Worker;

/// Rows of `X` in a block: its stretch along `k` (256 KiB) and the products stay in the second-level cache.
const BLOCK_ROWS: usize = 256;
/// Floats of scratch for each thread: the panel of weights, the products of a layer and of its gate.
const THREAD_LEN: usize = MAX_TILE_ROWS * A_STRIDE + 2 * MAX_CHUNK * BLOCK_ROWS;
const MAX_TILE_ROWS: usize = 12;
/// Floats of a cache line: scratch begins at a whole one, for vectors that straddle two cost twice.
const LINE: usize = 16;

pub(super) fn scratch_len(isa: Isa, m: usize, k: usize, threads: usize) -> usize {
    LINE + m.next_multiple_of(panel_rows(isa)) * k + threads * THREAD_LEN
}

simd_fn! {
    fn panel_rows() -> usize = panel_rows_body
}

#[inline(always)]
fn panel_rows_body<S: Simd>(_: S) -> usize {
    2 * S::LANES
}

simd_fn! {
    /// # Safety
    /// As [`super::linear`], operands and scratch checked.
    pub(super) unsafe fn run(worker: Worker<'_>, job: &Job<'_>) = body
}

/// # Safety
/// As [`run`].
#[inline(always)]
unsafe fn body<S: Simd>(s: S, worker: Worker<'_>, job: &Job<'_>) {
    let panel = 2 * S::LANES;
    let (panels, stretches) = (job.m.div_ceil(panel), job.k.div_ceil(A_STRIDE));
    let packed = job.scratch.ptr();
    let packed = packed.wrapping_add(packed.align_offset(4 * LINE));
    for task in worker.tasks(panels * stretches) {
        let (p, k0) = (task % panels, task / panels * A_STRIDE);
        let k = A_STRIDE.min(job.k - k0);
        // SAFETY: the panel's stretch lies inside the packed part of the scratch, and this thread alone took it.
        unsafe { pack(s, job, p * panel, k0, k, packed.add(panels * panel * k0 + p * panel * k)) };
    }
    worker.barrier();
    // SAFETY: behind the packed part, the scratch has `THREAD_LEN` numbers for each thread.
    let own = unsafe { packed.add(panels * panel * job.k + worker.index() * THREAD_LEN) };

    let chunk = chunk_len::<S>(job, worker.count());
    let mut task = worker.take();
    let mut first = 0;
    for layer in job.layers {
        let Some(weights) = layer.weights.as_rows() else { continue };
        let n = weights.rows;
        let tasks = n.div_ceil(chunk);
        while task < first + tasks {
            let n0 = (task - first) * chunk;
            // SAFETY: the chunk lies inside the layer, and this thread alone took it; `X` is packed, as the barrier ensures.
            unsafe { outputs(s, job, packed, own, layer, weights, n0, chunk.min(n - n0)) };
            task = worker.take();
        }
        first += tasks;
    }
}

/// Outputs of a task: as many as the products' memory holds, but enough tasks that threads end together.
#[inline(always)]
fn chunk_len<S: Simd>(job: &Job<'_>, threads: usize) -> usize {
    let outputs: usize = job.layers.iter().filter_map(|l| l.weights.as_rows()).map(|w| w.rows).sum();
    let fair = outputs.div_ceil(4 * threads).next_multiple_of(S::TILE_ROWS);
    fair.min(MAX_CHUNK / S::TILE_ROWS * S::TILE_ROWS)
}

/// Transposes rows `row0 ..` of `X`, columns `k0 .. k0 + count`, into `to[k][2 * LANES]`; rows past the end become zeros.
///
/// # Safety
/// The columns exist; `count * 2 * LANES` numbers are writable at `to`.
#[inline(always)]
unsafe fn pack<S: Simd>(s: S, job: &Job<'_>, row0: usize, k0: usize, count: usize, to: *mut f32) {
    let panel = 2 * S::LANES;
    for half in [0, S::LANES] {
        let rows = job.m.saturating_sub(row0 + half).min(S::LANES);
        let whole = if rows == S::LANES { count - count % S::LANES } else { 0 };
        for k in (0..whole).step_by(S::LANES) {
            // SAFETY: `LANES` rows and columns are left in `X`; the block lies inside `to`.
            unsafe {
                let from = job.x.as_ptr().add((row0 + half) * job.k + k0 + k);
                s.transpose(from, job.k, to.add(k * panel + half), panel);
            }
        }
        for k in whole..count {
            for i in 0..S::LANES {
                let x = if i < rows { job.x[(row0 + half + i) * job.k + k0 + k] } else { 0.0 };
                // SAFETY: `k < count`, `half + i < panel`.
                unsafe { *to.add(k * panel + half + i) = x };
            }
        }
    }
}

/// Computes outputs `n0 .. n0 + count` of `layer` for all rows.
///
/// # Safety
/// The outputs exist and are this thread's alone, `count <= MAX_CHUNK`; `packed` is all of `X`, `own` is this thread's
/// scratch.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
unsafe fn outputs<S: Simd>(
    s: S,
    job: &Job<'_>,
    packed: *const f32,
    own: *mut f32,
    layer: &Linear<'_>,
    weights: RowMat<'_>,
    n0: usize,
    count: usize,
) {
    // SAFETY: the three parts of `THREAD_LEN`.
    let (panel, main, gate) = unsafe {
        let main = own.add(MAX_TILE_ROWS * A_STRIDE);
        (own, main, main.add(MAX_CHUNK * BLOCK_ROWS))
    };
    let affine = Affine::of(s, layer, n0, count);
    for row0 in (0..job.m).step_by(BLOCK_ROWS) {
        let rows = BLOCK_ROWS.min(job.m - row0);
        // SAFETY: the caller's promise; each part of the scratch is used for one thing.
        unsafe {
            if let Some(g) = layer.gate.and_then(|g| g.weights.as_rows()) {
                products(s, job, packed, panel, g, n0, count, row0, rows, gate);
            }
            products(s, job, packed, panel, weights, n0, count, row0, rows, main);
            store(s, layer, &affine, n0, count, row0, rows, main, gate);
        }
    }
}

/// `to[i * BLOCK_ROWS + j] = w[n0 + i] . x[row0 + j]`.
///
/// # Safety
/// As [`outputs`]; `to` has space for `MAX_CHUNK` rows of `BLOCK_ROWS`, `panel` for a tile's rows of `A_STRIDE`.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
unsafe fn products<S: Simd>(
    s: S,
    job: &Job<'_>,
    packed: *const f32,
    panel: *mut f32,
    w: RowMat<'_>,
    n0: usize,
    count: usize,
    row0: usize,
    rows: usize,
    to: *mut f32,
) {
    let width = 2 * S::LANES;
    let padded = job.m.next_multiple_of(width);
    for k0 in (0..job.k).step_by(A_STRIDE) {
        let k = A_STRIDE.min(job.k - k0);
        for i in (0..count).step_by(S::TILE_ROWS) {
            // Rows past the end keep what the panel held: finite leftovers, whose products are not read.
            for r in 0..S::TILE_ROWS.min(count - i) {
                with_row_elem!(w.elem, E => {
                    // SAFETY: row `n0 + i + r` of the weights has the columns `k0 .. k0 + k`; a row of the panel has space.
                    unsafe {
                        let from = w.ptr::<E>().add((n0 + i + r) * job.k + k0);
                        move_all::<S, E, f32>(s, from, panel.add(r * A_STRIDE), k);
                    }
                });
            }
            let panels = rows.div_ceil(width);
            for (turn, j) in (0..rows).step_by(width).enumerate() {
                // While this tile is multiplied, the next rows of weights come closer: a share of them each time.
                for r in S::TILE_ROWS * turn / panels..S::TILE_ROWS * (turn + 1) / panels {
                    prefetch(s, w, n0 + i + S::TILE_ROWS + r, k0, k);
                }
                // SAFETY: panel `(row0 + j) / width` of the packed `X` has the rows `k0 .. k0 + k`; `count` and `rows` are
                // rounded up to whole tiles inside `to`, as `MAX_CHUNK` and `BLOCK_ROWS` are multiples of theirs.
                unsafe {
                    let b = packed.add(padded * k0 + (row0 + j) * k);
                    let c = to.add(i * BLOCK_ROWS + j);
                    let vectors = if rows - j > S::LANES { 2 } else { 1 };
                    s.tile(Tile { a: panel, b, ldb: width, k, c, ldc: BLOCK_ROWS }, vectors, k0 > 0);
                }
            }
        }
    }
}

/// Prefetches columns `k0 .. k0 + k` of a row, which need not exist.
#[inline(always)]
fn prefetch<S: Simd>(s: S, w: RowMat<'_>, row: usize, k0: usize, k: usize) {
    let size = w.elem_bytes();
    let start = w.ptr_bytes().wrapping_add((row * w.cols + k0) * size);
    for line in (0..k * size).step_by(64) {
        s.prefetch(start.wrapping_add(line));
    }
}

/// Transposes products back into rows and finishes them.
///
/// # Safety
/// As [`outputs`], with `main` (and `gate`, if the layer has one) from [`products`].
#[inline(always)]
#[allow(clippy::too_many_arguments)]
unsafe fn store<S: Simd>(
    s: S,
    layer: &Linear<'_>,
    affine: &Affine,
    n0: usize,
    count: usize,
    row0: usize,
    rows: usize,
    main: *const f32,
    gate: *const f32,
) {
    let mut line = [0.0f32; MAX_LANES * MAX_CHUNK];
    let mut gate_line = [0.0f32; MAX_LANES * MAX_CHUNK];
    for j in (0..rows).step_by(S::LANES) {
        for i in (0..count).step_by(S::LANES) {
            // SAFETY: `MAX_CHUNK` and `BLOCK_ROWS` are multiples of `LANES`, so whole blocks lie inside the products (what
            // is past `count` and `rows` is not used) and inside the lines.
            unsafe {
                let from = i * BLOCK_ROWS + j;
                s.transpose(main.add(from), BLOCK_ROWS, line.as_mut_ptr().add(i), MAX_CHUNK);
                if layer.gate.is_some() {
                    s.transpose(gate.add(from), BLOCK_ROWS, gate_line.as_mut_ptr().add(i), MAX_CHUNK);
                }
            }
        }
        for r in 0..S::LANES.min(rows - j) {
            let at = r * MAX_CHUNK;
            // SAFETY: line `r` has `count` products; the outputs of row `row0 + j + r` are this thread's.
            unsafe {
                finish(s, layer, affine, row0 + j + r, n0, count, line.as_ptr().add(at), gate_line.as_ptr().add(at));
            }
        }
    }
}
