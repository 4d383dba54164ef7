//! Weights as rows of floats or bytes: dot products along `k`.
//!
//! Every product of two rows is summed up in one order: lane by lane along `k`, then over the lanes. So tiles differ in how many
//! of them are under way at once, and in nothing else.
//!
//! *Order of work*. A task is a chunk of one layer's outputs. Few rows of `X` (decode, short drafts): weights stream from memory
//! once, a few rows at a time, and are multiplied with all rows of `X`. Many: a few rows of `X` at a time stay in the first-level
//! cache, and the chunk, in the second, is multiplied with them. Where tiles are small, so that an element would be widened for
//! every other row of `X`, a chunk of other elements than f32 is widened into the second-level cache first.
//!
//! *Layout*: products `[row][MAX_CHUNK]` f32 on the thread's stack, `row < FEW_ROWS`.

use std::mem::MaybeUninit;

use super::super::first_cache::first_cache_bytes;
use super::super::float::Load;
use super::super::isa::simd_fn;
use super::super::rows::{RowElem, RowMat, with_row_elem};
use super::super::simd::{Piece, Simd};
use super::super::stream::{FAR_OF_WIDE, ask};
use super::super::{Float, Mat};
use super::finish::{Affine, MAX_CHUNK, finish};
use super::{Job, Linear};
use crate::pool::Worker;

/// Most rows of `X` for which weights are read once.
const FEW_ROWS: usize = 8;
/// Bytes of weights of a task for many rows: a part of the second-level cache.
const CHUNK_BYTES: usize = 256 << 10;
/// Floats of scratch of a thread: a widened chunk, with its gate.
const WIDENED_LEN: usize = CHUNK_BYTES / 4;
/// Bytes of a cache line.
const LINE: usize = 64;
/// Rows that are read at a time, and asked for as many rows ahead, where a row of `X` leaves no room in the first-level cache.
const STREAMS: usize = 8;
/// Bytes of weights of a vector from which on sums are faster than memory although each waits for the one before it: half a cache line in the
/// four cycles of an addition.
const FAST_SUM: usize = 32;

/// f32 numbers of scratch for `m` rows of `X` with `threads` threads.
pub(super) fn scratch_len(m: usize, threads: usize) -> usize {
    if m > FEW_ROWS { threads * WIDENED_LEN } else { 0 }
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
    // A chunk is shared with its gate's.
    let fits = |layer: &Linear<'_>| {
        let parts = 1 + usize::from(layer.gate.is_some());
        widens::<S>(job, layer).then_some(4 * parts).filter(|bytes| 4 * job.k * bytes <= CHUNK_BYTES)
    };
    let rows_of = |layer: &Linear<'_>, weights: RowMat<'_>| {
        chunk_rows::<S>(job, fits(layer).unwrap_or(weights.elem_bytes()), worker.count())
    };
    let tasks_of = |layer: &Linear<'_>| here(job, layer).map_or(0, |w| w.rows.div_ceil(rows_of(layer, w)));
    let all = job.layers.iter().map(tasks_of).sum();
    let own = job.scratch.ptr().wrapping_add(worker.index() * WIDENED_LEN);
    let mut run = worker.take_run(all);
    let mut first = 0;
    for layer in job.layers {
        let Some(weights) = here(job, layer) else { continue };
        let n = weights.rows;
        let rows = rows_of(layer, weights);
        let tasks = tasks_of(layer);
        let own = fits(layer).map(|_| own);
        while run.start < first + tasks {
            let n0 = (run.start - first) * rows;
            // SAFETY: the chunk lies inside the layer, and this thread alone took it; its part of the scratch holds it and its gate's.
            unsafe { chunk(s, job, layer, weights, n0, rows.min(n - n0), own) };
            run.start += 1;
            if run.is_empty() {
                run = worker.take_run(all);
            }
        }
        first += tasks;
    }
}

/// Outputs of a task. Few rows of `X`: about 64 KiB of weights, so that taking costs nothing beside streaming them and the last
/// task is short. Many: as many as stay in the second-level cache, but enough tasks that threads end together.
#[inline(always)]
fn chunk_rows<S: Simd>(job: &Job<'_>, elem_bytes: usize, threads: usize) -> usize {
    let of_bytes = |bytes: usize| bytes / (job.k * elem_bytes).max(1);
    if job.m <= FEW_ROWS {
        return (of_bytes(64 << 10) / STREAMS * STREAMS).clamp(STREAMS, MAX_CHUNK);
    }
    let unit = if S::MANY_REGISTERS { 6 } else { 4 };
    let outputs: usize = job.layers.iter().filter_map(|l| l.weights.as_rows()).map(|w| w.rows).sum();
    let fair = outputs.div_ceil(4 * threads);
    (of_bytes(CHUNK_BYTES).min(fair) / unit * unit).clamp(unit, MAX_CHUNK)
}

/// Whether elements of a layer's chunk are widened before they are multiplied.
#[inline(always)]
fn widens<S: Simd>(job: &Job<'_>, layer: &Linear<'_>) -> bool {
    let narrow = |weights: Mat<'_>| weights.as_rows().is_some_and(|w| w.elem != RowElem::Float(Float::F32));
    !S::MANY_REGISTERS && job.m > FEW_ROWS && (narrow(layer.weights) || layer.gate.is_some_and(|g| narrow(g.weights)))
}

/// Outputs `n0 .. n0 + count`. Weights are widened into `own`, if that is given.
///
/// # Safety
/// The outputs are the layer's, `count <= MAX_CHUNK`, and this thread alone uses them; `own` has space for `count` rows, twice if
/// there is a gate.
#[inline(always)]
unsafe fn chunk<S: Simd>(
    s: S,
    job: &Job<'_>,
    layer: &Linear<'_>,
    weights: RowMat<'_>,
    n0: usize,
    count: usize,
    own: Option<*mut f32>,
) {
    // Products are written before they are read, those of a gate only if there is one.
    let mut main = [const { MaybeUninit::<f32>::uninit() }; FEW_ROWS * MAX_CHUNK];
    let mut gate = main;
    let (main, gate) = (main.as_mut_ptr().cast::<f32>(), gate.as_mut_ptr().cast::<f32>());
    let affine = Affine::of(s, layer, n0, count);
    let gate_weights = layer.gate.and_then(|g| g.weights.as_rows());
    // Chunks of f32, if they are widened: the layer's, then its gate's.
    let wide = |weights: RowMat<'_>, part: usize| {
        let own = own?.wrapping_add(part * count * job.k);
        // SAFETY: the rows exist, and the caller promised space for them.
        unsafe {
            with_row_elem!(weights.elem, E => {
                s.outline(Widen { from: weights.ptr::<E>().add(n0 * job.k), len: count * job.k, to: own });
            });
        }
        Some(own.cast_const())
    };
    let wide_main = wide(weights, 0);
    let wide_gate = gate_weights.and_then(|weights| wide(weights, 1));
    let many = job.m > FEW_ROWS;
    let most = match (many, S::MANY_REGISTERS) {
        (false, _) => FEW_ROWS,
        (true, true) => 4,
        (true, false) => 2,
    };
    for row0 in (0..job.m).step_by(most) {
        let m = most.min(job.m - row0);
        let x = job.x[row0 * job.k..].as_ptr();
        let k = job.k;
        // SAFETY: the products of `count` rows of weights with `m <= FEW_ROWS` rows fit; the rows exist.
        unsafe {
            for (weights, wide, to) in [(gate_weights, wide_gate, gate), (Some(weights), wide_main, main)] {
                match (weights, wide) {
                    (Some(_), Some(w)) => s.outline(Products { x, m, k, w, count, many, to }),
                    (Some(weights), None) => with_row_elem!(weights.elem, E => {
                        let w = weights.ptr::<E>().add(n0 * k);
                        s.outline(Products { x, m, k, w, count, many, to });
                    }),
                    (None, _) => {}
                }
            }
        }
        for row in 0..m {
            let at = row * MAX_CHUNK;
            // SAFETY: row `row < FEW_ROWS` of the products has `count <= MAX_CHUNK` numbers; the caller's promise covers the outputs.
            unsafe {
                let out = layer.out_at(row0 + row, n0);
                finish(s, layer, &affine, row0 + row, n0, count, main.add(at), gate.add(at), out);
            }
        }
    }
}

/// `to[i] = from[i]` for `len` elements. Safe to run while they are readable and `to` has space.
struct Widen<E> {
    from: *const E,
    len: usize,
    to: *mut f32,
}

impl<E: Load> Piece for Widen<E> {
    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) {
        let whole = self.len - self.len % S::LANES;
        // SAFETY: `whole <= len`.
        unsafe {
            for at in (0..whole).step_by(S::LANES) {
                s.store(self.to.add(at), E::load(s, self.from.add(at)));
            }
            for at in whole..self.len {
                *self.to.add(at) = E::get(self.from.add(at));
            }
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
        let sequential = 3 * k * size_of::<f32>() <= 2 * first_cache_bytes();
        let streams = !many && m == 1 && S::MANY_REGISTERS && S::LANES * size_of::<E>() >= FAST_SUM;
        let mut i = 0;
        while i < count {
            // SAFETY: rows `i .. i + 8`, `i .. i + 6`, `i .. i + 4` or `i` of the weights and all rows of `x` exist.
            unsafe {
                let (w, to) = (w.add(i * k), to.add(i));
                if streams && sequential {
                    dots::<S, E, 1, 1>(s, x, w, k, FAR_OF_WIDE, to);
                    i += 1;
                } else if streams && count - i >= STREAMS {
                    dots::<S, E, 1, STREAMS>(s, x, w, k, STREAMS * k * size_of::<E>(), to);
                    i += STREAMS;
                } else if many && S::MANY_REGISTERS && m == 4 && count - i >= 6 {
                    dots::<S, E, 4, 6>(s, x, w, k, 0, to);
                    i += 6;
                } else if count - i >= 4 {
                    let mut row = 0;
                    while row < m {
                        let (x, to) = (x.add(row * k), to.add(row * MAX_CHUNK));
                        // Later passes over the rows find them cached.
                        let ahead = if many || row > 0 { 0 } else { ahead };
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
                        dots::<S, E, 1, 1>(s, x.add(row * k), w, k, 0, to.add(row * MAX_CHUNK));
                    }
                    i += 1;
                }
            }
        }
    }
}

/// `M` rows of `x` times `N` rows of `w`, a sum in flight for each product. Returns `M`. Asks for what lies `ahead` bytes after what
/// is read of `w`, and of what is near, unless it is 0.
///
/// # Safety
/// The rows of `k` elements are readable; `to[row * MAX_CHUNK + i]` is writable.
#[inline(always)]
unsafe fn dots<S: Simd, E: Load, const M: usize, const N: usize>(
    s: S,
    x: *const f32,
    w: *const E,
    k: usize,
    ahead: usize,
    to: *mut f32,
) -> usize {
    let mut sums = [[s.zero(); N]; M];
    let whole = k - k % S::LANES;
    for at in (0..whole).step_by(S::LANES) {
        if ahead > 0 && (at * size_of::<E>()).is_multiple_of(LINE) {
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
