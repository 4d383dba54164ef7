//! Weights as rows of floats or bytes: dot products along `k`.
//!
//! Every product of two rows is summed up in one order: lane by lane along `k`, then over the lanes. So tiles differ in how many
//! of them are under way at once, and in nothing else.
//!
//! *Order of work*. A task is a chunk of one layer's outputs. Few rows of `X` (decode, short drafts): weights stream from memory
//! once, a few rows at a time, and are multiplied with all rows of `X`. Many: a few rows of `X` at a time stay in the first-level
//! cache, and the chunk, in the second, is multiplied with them. Units with sixteen registers have [`super::many_rows`] for them.
//!
//! *Layout*: products `[row][MAX_CHUNK]` f32 on the thread's stack, `row < FEW_ROWS`.

use std::mem::MaybeUninit;

use super::super::float::Load;
use super::super::isa::simd_fn;
use super::super::rows::{RowMat, with_row_elem};
use super::super::simd::{Piece, Simd};
use super::super::stream::{Ahead, FAR_OF_WIDE, ask, leaves_room};
use super::finish::{Affine, MAX_CHUNK, finish_rows};
use super::{Job, Linear, many_rows};
use crate::pool::Worker;

/// Most rows of `X` for which weights are read once.
const FEW_ROWS: usize = 8;
/// Bytes of weights of a task for many rows: a part of the second-level cache.
const CHUNK_BYTES: usize = 256 << 10;
/// Bytes of a cache line.
const LINE: usize = 64;
/// Rows that are read at a time, and asked for as many rows ahead, where a row of `X` leaves no room in the first-level cache.
const STREAMS: usize = 8;
/// Bytes of weights of a vector from which on sums are faster than memory although each waits for the one before it: half a cache line in the
/// four cycles of an addition.
const FAST_SUM: usize = 32;

/// f32 numbers of scratch for `m` rows of `X` with `threads` threads.
pub(super) fn scratch_len(m: usize, threads: usize) -> usize {
    if m > FEW_ROWS { threads * many_rows::THREAD_LEN } else { 0 }
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
    // Each task is a chunk of one layer's outputs; layers follow each other in the task numbers.
    fn here<'a>(job: &Job<'_>, layer: &Linear<'a>) -> Option<RowMat<'a>> {
        layer.weights.as_rows().filter(|_| !layer.on_tiles(job.wide))
    }
    let in_parts = !S::MANY_REGISTERS && job.m > FEW_ROWS;
    let rows_of = |weights: RowMat<'_>| chunk_rows::<S>(job, weights.elem_bytes(), worker.count());
    let tasks_of = |layer: &Linear<'_>| here(job, layer).map_or(0, |w| w.rows.div_ceil(rows_of(w)));
    let all = job.layers.iter().map(tasks_of).sum();
    let own = job.scratch.ptr().wrapping_add(worker.index() * many_rows::THREAD_LEN);
    let mut run = worker.take_run(all);
    let mut first = 0;
    for layer in job.layers {
        let Some(weights) = here(job, layer) else { continue };
        let n = weights.rows;
        let rows = rows_of(weights);
        let tasks = tasks_of(layer);
        while run.start < first + tasks {
            let n0 = (run.start - first) * rows;
            let count = rows.min(n - n0);
            // SAFETY: the chunk lies inside the layer, and this thread alone took it and this part of the scratch.
            unsafe {
                if in_parts {
                    many_rows::chunk(s, job, layer, weights, n0, count, own);
                } else {
                    chunk(s, job, layer, weights, n0, count);
                }
            }
            run.start += 1;
            if run.is_empty() {
                run = worker.take_run(all);
            }
        }
        first += tasks;
    }
}

/// Outputs of a task. Few rows of `X`: about 64 KiB of weights, so that taking costs nothing beside streaming them and the last
/// task is short. Many: as many as stay in the second-level cache, or as there is room for, but enough tasks that threads end together.
#[inline(always)]
fn chunk_rows<S: Simd>(job: &Job<'_>, elem_bytes: usize, threads: usize) -> usize {
    let of_bytes = |bytes: usize| bytes / (job.k * elem_bytes).max(1);
    if job.m <= FEW_ROWS {
        return (of_bytes(64 << 10) / STREAMS * STREAMS).clamp(STREAMS, MAX_CHUNK);
    }
    let outputs: usize = job.layers.iter().filter_map(|l| l.weights.as_rows()).map(|w| w.rows).sum();
    let fair = outputs.div_ceil(4 * threads);
    let (most, unit) = if S::MANY_REGISTERS { (of_bytes(CHUNK_BYTES), 6) } else { (MAX_CHUNK, many_rows::OUTPUTS) };
    (most.min(fair) / unit * unit).clamp(unit, MAX_CHUNK)
}

/// Outputs `n0 .. n0 + count`.
///
/// # Safety
/// The outputs are the layer's, `count <= MAX_CHUNK`, and this thread alone uses them.
#[inline(always)]
unsafe fn chunk<S: Simd>(s: S, job: &Job<'_>, layer: &Linear<'_>, weights: RowMat<'_>, n0: usize, count: usize) {
    // Products are written before they are read, those of a gate only if there is one.
    let mut main = [const { MaybeUninit::<f32>::uninit() }; FEW_ROWS * MAX_CHUNK];
    let mut gate = [const { MaybeUninit::<f32>::uninit() }; FEW_ROWS * MAX_CHUNK];
    let (main, gate) = (main.as_mut_ptr().cast::<f32>(), gate.as_mut_ptr().cast::<f32>());
    let affine = Affine::of(layer, n0, count);
    let gate_weights = layer.gate.and_then(|g| g.weights.as_rows());
    let many = job.m > FEW_ROWS;
    let most = if many { 4 } else { FEW_ROWS };
    for row0 in (0..job.m).step_by(most) {
        let m = most.min(job.m - row0);
        let x = job.x[row0 * job.k..].as_ptr();
        let k = job.k;
        // SAFETY: the products of `count` rows of weights with `m <= FEW_ROWS` rows fit; the rows exist; the caller's promise covers the
        // outputs.
        unsafe {
            for (weights, to) in [(gate_weights, gate), (Some(weights), main)] {
                if let Some(weights) = weights {
                    with_row_elem!(weights.elem, E => {
                        let w = weights.ptr::<E>().add(n0 * k);
                        s.outline(Products { x, m, k, w, count, many, to });
                    });
                }
            }
            finish_rows(s, layer, &affine, row0..row0 + m, n0, count, main, gate);
        }
    }
}

/// `to[row * MAX_CHUNK + i] = x[row] . w[i]` for `count` rows of weights and `m` rows of `x`.
///
/// Safe to run while `count` rows of `k` elements are readable at `w` and `m` at `x`, and `to` has space.
struct Products<E> {
    x: *const f32,
    m: usize,
    k: usize,
    w: *const E,
    count: usize,
    /// Rows of `x` are one tile's, and what is loaded of them is worth more products.
    many: bool,
    to: *mut f32,
}

impl<E: Load> Piece for Products<E> {
    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) {
        let Self { x, m, k, w, count, many, to } = self;
        // The next rows at the same column, or where that is far, further on in the same rows.
        let ahead = if k * size_of::<E>() <= FAR_OF_WIDE { 4 * k * size_of::<E>() } else { FAR_OF_WIDE };
        // Weights are one stream, row after row, as long as the row of `x` stays in the first-level cache beside it.
        let sequential = leaves_room(k * size_of::<f32>());
        let streams = !many && m == 1 && S::MANY_REGISTERS && S::LANES * size_of::<E>() >= FAST_SUM;
        let mut i = 0;
        while i < count {
            // SAFETY: rows `i .. i + 8`, `i .. i + 6`, `i .. i + 4` or `i` of the weights and all rows of `x` exist.
            unsafe {
                let (w, to) = (w.add(i * k), to.add(i));
                if streams && sequential {
                    dots::<S, E, 1, 1>(s, x, w, k, Ahead::of_one_stream(FAR_OF_WIDE), to);
                    i += 1;
                } else if streams && count - i >= STREAMS {
                    dots::<S, E, 1, STREAMS>(s, x, w, k, Ahead::of_streams(STREAMS * k * size_of::<E>()), to);
                    i += STREAMS;
                } else if many && m == 4 && count - i >= 6 {
                    dots::<S, E, 4, 6>(s, x, w, k, Ahead::NOTHING, to);
                    i += 6;
                } else if count - i >= 4 {
                    let mut row = 0;
                    while row < m {
                        let (x, to) = (x.add(row * k), to.add(row * MAX_CHUNK));
                        // Later passes over the rows find them cached.
                        let ahead = if many || row > 0 { Ahead::NOTHING } else { Ahead::of_streams(ahead) };
                        row += match m - row {
                            1 => dots::<S, E, 1, 4>(s, x, w, k, ahead, to),
                            2 => dots::<S, E, 2, 4>(s, x, w, k, ahead, to),
                            3 if S::MANY_REGISTERS => dots::<S, E, 3, 4>(s, x, w, k, ahead, to),
                            _ if S::MANY_REGISTERS => dots::<S, E, 4, 4>(s, x, w, k, ahead, to),
                            _ => dots::<S, E, 2, 4>(s, x, w, k, ahead, to),
                        };
                    }
                    i += 4;
                } else {
                    for row in 0..m {
                        dots::<S, E, 1, 1>(s, x.add(row * k), w, k, Ahead::NOTHING, to.add(row * MAX_CHUNK));
                    }
                    i += 1;
                }
            }
        }
    }
}

/// `M` rows of `x` times `N` rows of `w`, a sum in flight for each product. Returns `M`. Asks for what lies `ahead` of what
/// is read of `w`.
///
/// # Safety
/// The rows of `k` elements are readable; `to[row * MAX_CHUNK + i]` is writable.
#[inline(always)]
unsafe fn dots<S: Simd, E: Load, const M: usize, const N: usize>(
    s: S,
    x: *const f32,
    w: *const E,
    k: usize,
    ahead: Ahead,
    to: *mut f32,
) -> usize {
    let mut sums = [[s.zero(); N]; M];
    let whole = k - k % S::LANES;
    for at in (0..whole).step_by(S::LANES) {
        if !ahead.is_nothing() && (at * size_of::<E>()).is_multiple_of(LINE) {
            (0..N).for_each(|i| ask(s, w.wrapping_add(i * k + at), ahead));
        }
        // SAFETY: `at + LANES <= k`.
        unsafe {
            accumulate::<S, E, M, N>(s, x, w, k, &mut sums, |s, p| s.load(p.add(at)), |s, p| E::load(s, p.add(at)));
        }
    }
    let rest = k - whole;
    if rest > 0 {
        // SAFETY: `whole + rest == k`.
        unsafe {
            accumulate::<S, E, M, N>(
                s,
                x,
                w,
                k,
                &mut sums,
                |s, p| s.load_first(p.add(whole), rest),
                |s, p| E::load_first(s, p.add(whole), rest),
            );
        }
    }
    for (row, sums) in sums.into_iter().enumerate() {
        for (i, sum) in sums.into_iter().enumerate() {
            // SAFETY: the caller promised space.
            unsafe { *to.add(row * MAX_CHUNK + i) = s.sum(sum) };
        }
    }
    M
}

/// One vector of each row, multiplied and added.
///
/// # Safety
/// The loaders may be called for each row's start.
#[inline(always)]
unsafe fn accumulate<S: Simd, E: Load, const M: usize, const N: usize>(
    s: S,
    x: *const f32,
    w: *const E,
    k: usize,
    sums: &mut [[S::V; N]; M],
    load_x: impl Fn(S, *const f32) -> S::V,
    load_w: impl Fn(S, *const E) -> S::V,
) {
    let mut ws = [s.zero(); N];
    for (i, v) in ws.iter_mut().enumerate() {
        *v = load_w(s, w.wrapping_add(i * k));
    }
    for (row, sums) in sums.iter_mut().enumerate() {
        let v = load_x(s, x.wrapping_add(row * k));
        for (sum, w) in sums.iter_mut().zip(ws) {
            *sum = s.fma(v, w, *sum);
        }
    }
}
