//! Few rows of `X`: dot products along `k`, weights streamed once.
//!
//! *Layout*: products `[row][MAX_CHUNK]` f32 on the thread's stack, `row < MAX_ROWS`.

use super::super::float::Load;
use super::super::isa::simd_fn;
use super::super::rows::{RowMat, with_row_elem};
use super::super::simd::{Piece, Simd};
use super::finish::{Affine, MAX_CHUNK, finish};
use super::{Job, Linear, chunk_rows};
use crate::pool::Worker;

/// Most rows of `X` on this path.
const MAX_ROWS: usize = 8;

simd_fn! {
    /// # Safety
    /// As [`super::linear`], operands checked, `m <= MAX_ROWS`.
    pub(super) unsafe fn run(worker: Worker<'_>, job: &Job<'_>) = body
}

/// # Safety
/// As [`run`].
#[inline(always)]
unsafe fn body<S: Simd>(s: S, worker: Worker<'_>, job: &Job<'_>) {
    // Each task is a chunk of one layer's outputs; layers follow each other in the task numbers.
    let mut task = worker.take();
    let mut first = 0;
    for layer in job.layers {
        let Some(weights) = layer.weights.as_rows() else { continue };
        let n = weights.rows;
        let rows = chunk_rows(job.k, weights.elem_bytes(), MAX_CHUNK);
        let tasks = n.div_ceil(rows);
        while task < first + tasks {
            let n0 = (task - first) * rows;
            // SAFETY: the chunk lies inside the layer, and this thread alone took it.
            unsafe { chunk(s, job, layer, weights, n0, rows.min(n - n0)) };
            task = worker.take();
        }
        first += tasks;
    }
}

/// # Safety
/// `n0 .. n0 + count` are outputs of `layer`, `count <= MAX_CHUNK`, that this thread alone uses.
#[inline(always)]
unsafe fn chunk<S: Simd>(s: S, job: &Job<'_>, layer: &Linear<'_>, weights: RowMat<'_>, n0: usize, count: usize) {
    let mut main = [0.0f32; MAX_ROWS * MAX_CHUNK];
    let mut gate = [0.0f32; MAX_ROWS * MAX_CHUNK];
    // SAFETY: the products of `count` rows of weights with `m <= MAX_ROWS` rows fit; the rows exist.
    unsafe {
        if let Some(g) = layer.gate.and_then(|g| g.weights.as_rows()) {
            with_row_elem!(g.elem, E => {
                let w = g.ptr::<E>().add(n0 * job.k);
                s.outline(Products { job, w, count, to: gate.as_mut_ptr() });
            });
        }
        with_row_elem!(weights.elem, E => {
            let w = weights.ptr::<E>().add(n0 * job.k);
            s.outline(Products { job, w, count, to: main.as_mut_ptr() });
        });
    }
    let affine = Affine::of(s, layer, n0, count);
    for row in 0..job.m {
        let at = row * MAX_CHUNK;
        // SAFETY: row `row` of the products has `count <= MAX_CHUNK` numbers; the caller's promise covers the outputs.
        unsafe { finish(s, layer, &affine, row, n0, count, main.as_ptr().add(at), gate.as_ptr().add(at)) };
    }
}

/// `to[row * MAX_CHUNK + i] = x[row] . w[i]` for `count` rows of weights and all rows of `x`.
///
/// Safe to run while `count` rows of `job.k` elements are readable at `w`, and `to` has space.
struct Products<'a, E> {
    job: &'a Job<'a>,
    w: *const E,
    count: usize,
    to: *mut f32,
}

impl<E: Load> Piece for Products<'_, E> {
    #[inline(always)]
    unsafe fn run<S: Simd>(self, s: S) {
        let Self { job, w, count, to } = self;
        let (k, m) = (job.k, job.m);
        let mut i = 0;
        while i < count {
            // SAFETY: rows `i .. i + 4` (or `i`) of the weights and all rows of `x` exist.
            unsafe {
                let (w, to) = (w.add(i * k), to.add(i));
                if count - i >= 4 {
                    let mut row = 0;
                    while row < m {
                        let (x, to) = (job.x.as_ptr().add(row * k), to.add(row * MAX_CHUNK));
                        row += match m - row {
                            1 => dots::<S, E, 1, 4, 2>(s, x, w, k, to),
                            2 => dots::<S, E, 2, 4, 1>(s, x, w, k, to),
                            3 if S::MANY_REGISTERS => dots::<S, E, 3, 4, 1>(s, x, w, k, to),
                            _ if S::MANY_REGISTERS => dots::<S, E, 4, 4, 1>(s, x, w, k, to),
                            _ => dots::<S, E, 2, 4, 1>(s, x, w, k, to),
                        };
                    }
                    i += 4;
                } else {
                    for row in 0..m {
                        dots::<S, E, 1, 1, 4>(s, job.x.as_ptr().add(row * k), w, k, to.add(row * MAX_CHUNK));
                    }
                    i += 1;
                }
            }
        }
    }
}

/// `M` rows of `x` times `N` rows of `w`, with `U` partial sums for each product. Returns `M`.
///
/// # Safety
/// The rows of `k` elements are readable; `to[row * MAX_CHUNK + i]` is writable.
#[inline(always)]
unsafe fn dots<S: Simd, E: Load, const M: usize, const N: usize, const U: usize>(
    s: S,
    x: *const f32,
    w: *const E,
    k: usize,
    to: *mut f32,
) -> usize {
    let mut sums = [[[s.zero(); N]; M]; U];
    let step = U * S::LANES;
    let mut at = 0;
    while at + step <= k {
        for (u, sums) in sums.iter_mut().enumerate() {
            let at = at + u * S::LANES;
            // SAFETY: `at + LANES <= k`.
            unsafe {
                accumulate::<S, E, M, N>(s, x, w, k, sums, |s, p| s.load(p.add(at)), |s, p| E::load(s, p.add(at)))
            };
        }
        at += step;
    }
    while at < k {
        let n = S::LANES.min(k - at);
        if n == S::LANES {
            // SAFETY: `at + LANES <= k`.
            unsafe {
                accumulate::<S, E, M, N>(
                    s,
                    x,
                    w,
                    k,
                    &mut sums[0],
                    |s, p| s.load(p.add(at)),
                    |s, p| E::load(s, p.add(at)),
                )
            };
        } else {
            // SAFETY: `at + n == k`.
            unsafe {
                accumulate::<S, E, M, N>(
                    s,
                    x,
                    w,
                    k,
                    &mut sums[0],
                    |s, p| s.load_first(p.add(at), n),
                    |s, p| E::load_first(s, p.add(at), n),
                );
            }
        }
        at += n;
    }
    for row in 0..M {
        for i in 0..N {
            let mut sum = sums[0][row][i];
            for more in &sums[1..] {
                sum = s.add(sum, more[row][i]);
            }
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
