//! Many rows of `X` on a matrix unit: tiles of bf16, of AMX or SME, or the same products on AVX-512 vectors.
//!
//! `X` is rounded to bf16 once, and weights are opened into bf16 tiles, a few outputs and [`CHUNK_STEPS`] tiles along `k` at a
//! time, whatever their format: a weight is `value * scale` rounded to bf16. Products are exact and added in f32.
//!
//! *Error*: a weight and a number of `X` are each off by at most 2^-8 of themselves, so a product is off by at most about
//! `|x w| / 128`; less, on the whole, than what the quantised `X` of narrower steps costs. It is not the same arithmetic: a row's bits depend on
//! whether it came in a step of [`ROWS`] or more. Among narrower steps, and among wide ones, they do not.
//!
//! *Order of work*. A task is up to [`WIDTH`] outputs of one layer, or half as many with their gates. A chunk of `X` along `k` stays in the
//! second-level cache for all of them; opened weights stay in the first while all panels of rows are multiplied with them. Sums lie in the
//! second, tile by tile ([`products`]), and are asked for a product ahead.
//!
//! *Units* (`avx512`, which is AMX too, and `sme`) say how a row of `X` lies in a tile and open weights; `simd` has their instructions. All
//! else, here and in [`products`], is the same for all of them.
//!
//! *Between layers*: where only layers of this kind read a result, it is rounded as it is written and lies in their tiles
//! ([`Form::Tiles`]): half of the bytes, and no pass to round it. Its bits are the same.
//!
//! *Scratch*: `X` in the order in which it is read, `[block of rows][chunk along k][pair of panels][step][2 panels]` tiles of
//! bf16; then each thread's own: opened weights `[step][2 groups]` tiles, and sums of a task.

#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(test)]
mod in_tiles;
mod norm;
mod products;
#[cfg(target_arch = "aarch64")]
mod sme;
#[cfg(test)]
mod tests;

#[cfg(target_arch = "x86_64")]
use self::avx512 as unit;
pub(super) use self::norm::rms_norm;
use self::products::{Sums, products};
#[cfg(target_arch = "aarch64")]
use self::sme as unit;
use self::unit::{Float, Tiles};
use super::super::isa::Isa;
use super::super::simd::matrix::{TILE_BYTES, TILE_K, TILE_ROWS};
use super::finish::{Affine, MAX_CHUNK, ask_for_outputs, finish};
use super::{Form, Job, Linear, OnTiles};
use crate::pool::Worker;

/// Fewest rows of `X` that come here.
pub(super) const ROWS: usize = super::MATRIX_ROWS;
/// Sums of a row that are kept: outputs of a task, of a layer with a gate half as many and as many gates.
const WIDTH: usize = 4 * MAX_CHUNK;
/// Most tiles along `k` whose weights are opened at a time.
const CHUNK_STEPS: usize = 16;
/// Most rows of `X` whose sums are kept; weights are opened again for each block of as many.
const BLOCK_ROWS: usize = 512;
/// Floats of a tile.
const TILE_LEN: usize = TILE_BYTES / 4;
/// Floats of opened weights: two groups.
const OPEN_LEN: usize = 2 * CHUNK_STEPS * TILE_LEN;
/// Floats of a cache line.
const LINE: usize = 16;

/// What is computed here of steps of `m` rows on this CPU.
pub(super) fn takes(isa: Isa, m: usize) -> OnTiles {
    match isa.2 {
        Some(matrix) if m >= ROWS && matrix.takes_blocks() => OnTiles::All,
        Some(_) if m >= ROWS => OnTiles::Rows,
        _ => OnTiles::Nothing,
    }
}

/// Whether rows of `n` numbers are whole tiles.
pub(super) fn are_whole_tiles(n: usize) -> bool {
    n > 0 && n.is_multiple_of(TILE_K)
}

/// f32 numbers of scratch for `m` rows of `k` numbers.
pub(super) fn scratch_len(m: usize, k: usize, threads: usize) -> usize {
    LINE + acts_len(m, k) + threads * thread_len(m)
}

/// Floats of scratch of a thread.
fn thread_len(m: usize) -> usize {
    OPEN_LEN + sums_len(m)
}

/// Floats of sums of a task.
fn sums_len(m: usize) -> usize {
    m.next_multiple_of(2 * TILE_ROWS).min(BLOCK_ROWS) * WIDTH
}

/// Floats of `X` in bf16.
fn acts_len(m: usize, k: usize) -> usize {
    m.div_ceil(2 * TILE_ROWS) * k.div_ceil(TILE_K) * 2 * TILE_LEN
}

/// Where the tiles of a pair of panels from step `step0` (the first of a chunk) on are, in tiles.
fn pair_at(m: usize, steps: usize, pair: usize, step0: usize) -> usize {
    const MOST: usize = BLOCK_ROWS / (2 * TILE_ROWS);
    let (block, pair) = (pair / MOST, pair % MOST);
    let pairs = MOST.min(m.div_ceil(2 * TILE_ROWS) - block * MOST);
    let chunk = chunk_steps(steps).min(steps - step0);
    2 * (block * MOST * steps + step0 * pairs + pair * chunk)
}

/// Tiles along `k` whose weights are opened at a time, of `steps`: as even parts as there can be.
fn chunk_steps(steps: usize) -> usize {
    steps.div_ceil(steps.div_ceil(CHUNK_STEPS).max(1))
}

/// Computes the layers that are [on tiles](Linear::on_tiles).
///
/// # Safety
/// As [`super::linear`], operands and scratch checked; some layer is on tiles.
pub(super) unsafe fn run(isa: Isa, worker: Worker<'_>, job: &Job<'_>) {
    let Some(matrix) = isa.2 else { unreachable!("`takes` was asked") };
    let tiles = matrix.tiles();
    // SAFETY: the token proves that the CPU has the features; the caller's promise is the body's.
    unsafe { body(tiles.float(), &tiles, worker, job) }
}

/// # Safety
/// As [`run`]; the CPU has the features.
#[cfg_attr(
    target_arch = "x86_64",
    target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")
)]
unsafe fn body(s: Float, tiles: &Tiles, worker: Worker<'_>, job: &Job<'_>) {
    let scratch = job.scratch.ptr();
    let acts = scratch.wrapping_add(scratch.align_offset(4 * LINE));
    let own = acts.wrapping_add(acts_len(job.m, job.k) + worker.index() * thread_len(job.m));
    let steps = job.k.div_ceil(TILE_K);
    let acts = match job.x_form {
        Form::Tiles => {
            assert!(job.x.len() >= acts_len(job.m, job.k), "{} numbers for tiles", job.x.len());
            job.x.as_ptr().cast()
        }
        Form::Rows => {
            // SAFETY: a pair of panels is written by the thread that took it, and read after the barrier; scratch is as long as
            // `scratch_len` says.
            unsafe {
                let mut pair = worker.take();
                while pair < job.m.div_ceil(2 * TILE_ROWS) {
                    for panel in 0..2 {
                        round(job, pair, panel, steps, acts.cast());
                    }
                    pair = worker.take();
                }
            }
            worker.barrier();
            acts.cast_const().cast()
        }
    };
    // A block of rows stays in the cache from task to task.
    let mut task = worker.take();
    let mut first = 0;
    for row0 in (0..job.m).step_by(BLOCK_ROWS) {
        for layer in job.layers.iter().filter(|layer| layer.on_tiles(job.wide)) {
            let n = layer.weights.rows();
            let width = task_width(n, layer.gate.is_some(), worker.count());
            let tasks = n.div_ceil(width);
            while task < first + tasks {
                let n0 = (task - first) * width;
                // SAFETY: the outputs lie inside the layer, and this thread alone took them.
                unsafe { outputs(s, tiles, job, layer, acts, own, row0, n0, width.min(n - n0)) };
                task = worker.take();
            }
            first += tasks;
        }
    }
}

/// Outputs of a task of a layer of `n`: as many as there is room for, in even parts for the threads.
fn task_width(n: usize, gate: bool, threads: usize) -> usize {
    let most = if gate { WIDTH / 2 } else { WIDTH };
    let tasks = n.div_ceil(most).next_multiple_of(threads);
    n.div_ceil(tasks).next_multiple_of(2 * TILE_ROWS).min(most)
}

/// Rounds the 16 rows of panel `panel` (0 or 1) of pair `pair`; rows and columns that do not exist are zeros.
///
/// # Safety
/// All tiles of `X` are writable at `to`; the CPU has the features.
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16"))]
unsafe fn round(job: &Job<'_>, pair: usize, panel: usize, steps: usize, to: *mut u8) {
    for row in 0..TILE_ROWS {
        let at = (2 * pair + panel) * TILE_ROWS + row;
        let numbers = if at < job.m { &job.x[at * job.k..][..job.k] } else { &[] };
        // SAFETY: the caller's promise.
        unsafe { round_row(numbers, at, job.m, steps, to) };
    }
}

/// Rounds row `at` of `m`, zeros behind its numbers.
///
/// # Safety
/// All tiles of the rows are writable at `to`; the CPU has the features.
#[inline]
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16"))]
unsafe fn round_row(numbers: &[f32], at: usize, m: usize, steps: usize, to: *mut u8) {
    let len = chunk_steps(steps);
    for chunk in (0..steps).step_by(len) {
        let first = pair_at(m, steps, at / (2 * TILE_ROWS), chunk) + at / TILE_ROWS % 2;
        for step in chunk..steps.min(chunk + len) {
            let rest = numbers.get(step * TILE_K..).unwrap_or(&[]);
            // SAFETY: all tiles are writable, and the CPU has the features, as the caller promised.
            unsafe { unit::round_row(rest, at % TILE_ROWS, to.add((first + 2 * (step - chunk)) * TILE_BYTES)) };
        }
    }
}

/// Outputs `n0 .. n0 + count` of a layer, for the block of rows that begins at `row0`.
///
/// # Safety
/// As [`run`]; `n0` begins a group, `count` is at most [`WIDTH`], or half of it with a gate.
#[cfg_attr(
    target_arch = "x86_64",
    target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")
)]
#[allow(clippy::too_many_arguments)]
unsafe fn outputs(
    s: Float,
    tiles: &Tiles,
    job: &Job<'_>,
    layer: &Linear<'_>,
    acts: *const u8,
    own: *mut f32,
    row0: usize,
    n0: usize,
    count: usize,
) {
    let steps = job.k.div_ceil(TILE_K);
    let rows = BLOCK_ROWS.min(job.m - row0);
    let whole = [layer.weights, layer.gate.map_or(layer.weights, |g| g.weights)];
    let parts = if layer.gate.is_some() { &whole[..] } else { &whole[..1] };
    let sums = Sums::new(own.wrapping_add(OPEN_LEN), parts.len(), rows);
    // SAFETY: the panels of these rows exist, their sums fit; each part of the scratch is used for one thing.
    unsafe {
        let acts = acts.add(row0 / TILE_ROWS * steps * TILE_BYTES);
        products(tiles, parts, n0, count, acts, rows, steps, own.cast(), sums);
        for i in (0..count).step_by(MAX_CHUNK) {
            let place = OutPlace { m: job.m, row0, rows, n0 };
            finish_rows(s, layer, sums, place, i, MAX_CHUNK.min(count - i));
        }
    }
}

/// Which outputs a task computes: of rows `row0 .. row0 + rows` of `m`, from output `n0` on.
#[derive(Clone, Copy)]
struct OutPlace {
    m: usize,
    row0: usize,
    rows: usize,
    n0: usize,
}

impl OutPlace {
    /// Number of the tile that holds the 32 outputs from `n0 + from` on of row `row0 + row`; a row of the result is `steps` tiles.
    fn tile(self, steps: usize, row: usize, from: usize) -> usize {
        let (step, row) = ((self.n0 + from) / TILE_K, self.row0 + row);
        let chunk = step / chunk_steps(steps) * chunk_steps(steps);
        pair_at(self.m, steps, row / (2 * TILE_ROWS), chunk) + 2 * (step - chunk) + row / TILE_ROWS % 2
    }
}

/// Writes outputs `from .. from + count` of a task from their sums.
///
/// # Safety
/// As [`outputs`]; `count` is at most [`MAX_CHUNK`].
#[cfg_attr(
    target_arch = "x86_64",
    target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")
)]
unsafe fn finish_rows(s: Float, layer: &Linear<'_>, sums: Sums, place: OutPlace, from: usize, count: usize) {
    let OutPlace { row0, rows, n0, .. } = place;
    let affine = Affine::of(layer, n0 + from, count);
    let (mut main, mut gate) = ([0.0f32; MAX_CHUNK], [0.0f32; MAX_CHUNK]);
    let steps = layer.weights.rows() / TILE_K;
    for row in 0..rows {
        // SAFETY: sums of this row are readable, and this thread alone uses its outputs. Tiles of `m` rows in whole pairs of panels take at most
        // `2 n (m + 31)` bytes, less than the `4 n m` of `out`, as `m >= ROWS`.
        unsafe {
            sums.read(s, 0, row, from, count, &mut main);
            if layer.gate.is_some() {
                sums.read(s, 1, row, from, count, &mut gate);
            }
            let (main, gate, at) = (main.as_ptr(), gate.as_ptr(), row0 + row);
            match layer.out_form {
                Form::Rows => {
                    ask_for_outputs(s, layer, at, n0 + from, count);
                    finish(s, layer, &affine, at, n0 + from, count, main, gate, layer.out_at(at, n0 + from));
                }
                Form::Tiles => {
                    debug_assert!(count.is_multiple_of(TILE_K), "a layer of whole tiles has tasks of whole tiles");
                    let mut done = [0.0f32; MAX_CHUNK];
                    finish(s, layer, &affine, at, n0 + from, count, main, gate, done.as_mut_ptr());
                    for (i, numbers) in done[..count].as_chunks::<TILE_K>().0.iter().enumerate() {
                        let tile = place.tile(steps, row, from + i * TILE_K);
                        let to = layer.out.ptr().cast::<u8>().add(tile * TILE_BYTES);
                        unit::round_row(numbers, at % TILE_ROWS, to);
                    }
                }
            }
        }
    }
}
