//! Layers with packed weights: products of 8-bit quantised values.
//!
//! `X` is quantised inside the kernel: each block of 32 numbers along `k` to signed bytes with a scale of its own, so that one large number
//! costs digits only in its block. A scale is `max |x| / 127` rounded up to 2^n times 1.125, 1.375, 1.625 or 1.875 (by a tenth on average, by
//! two ninths at most): a weight's scale times each of these four is computed once for all rows. A product of blocks is an exact
//! integer; it is scaled (by the weights' and the block's scales) and added up in f32.
//!
//! *Error*: a number of `X` is off by at most half its block's scale, so an output is off from the exact product with the
//! dequantised weights by at most `sum over blocks of (11 / 9 * max |x| / 254 * sum |w|)`, besides f32 rounding. With
//! numbers above 2.5e33, whose scales have no base ([`Dot::BASED`]), rows of a prompt are NaN on such units. A row that holds NaN or infinity is NaN
//! on all: the scale of a block with either is NaN.

mod acts;
#[cfg(target_arch = "x86_64")]
mod byte_open;
#[cfg(target_arch = "x86_64")]
mod byte_panel;
#[cfg(target_arch = "x86_64")]
mod byte_tiles;
#[cfg(not(target_arch = "x86_64"))]
#[path = "no_byte_tiles.rs"]
mod byte_tiles;
mod direct;
mod few_bits;
mod half_blocks;
mod k_blocks;
mod nibbles;
mod register_tile;
mod tasks;
#[cfg(test)]
mod tests;
mod tiled;
mod written_out;

use self::acts::Order;
use super::super::half_blocks as halves;
use super::super::isa::{Isa, dot_fn};
use super::super::packed::{Packed, STRETCH};
use super::super::simd::dot::{BLOCK, Dot};
use super::{Job, Linear};
use crate::pool::Worker;

/// Most rows of a panel that is multiplied straight from memory.
const DIRECT_ROWS: usize = 8;
/// Most such panels: what a group of weights is multiplied with while it is cached, on units with registers for eight rows.
const DIRECT_PANELS: usize = 4;
/// Up to this many numbers of `X`, each thread quantises all of them for itself, which is cheaper than a barrier.
const SMALL_X: usize = 16 << 10;
/// Floats of a cache line.
const LINE: usize = 16;

/// f32 numbers of scratch for `m` rows of `k` numbers.
pub(super) fn scratch_len(m: usize, k: usize, threads: usize) -> usize {
    // Panels are of at most 8 rows: of the rows at hand, or of a tile; of bytes on a matrix unit, of 16.
    let quantised = acts::len_bytes(m.next_multiple_of(16), blocks(k, true)).div_ceil(4).next_multiple_of(LINE);
    let copies = if is_small(m, k) { threads } else { 1 };
    LINE + copies * quantised + if m > DIRECT_ROWS { threads * tiled::THREAD_LEN } else { 0 }
}

fn is_small(m: usize, k: usize) -> bool {
    m <= DIRECT_ROWS && m * k <= SMALL_X
}

/// Blocks along `k`, in whole stretches of weights with scales for each 16 (`by_halves`) or of others.
fn blocks(k: usize, by_halves: bool) -> usize {
    let stretch = if by_halves { halves::STRETCH } else { STRETCH };
    k.div_ceil(stretch) * (stretch / BLOCK)
}

/// A layer's weights, if they are packed and have scales for each 16, or others, as asked.
#[inline(always)]
fn packed<'a>(layer: &Linear<'a>, by_halves: bool) -> Option<Packed<'a>> {
    layer.weights.packed().filter(|w| w.packing().by_halves() == by_halves)
}

/// Computes the layers with packed weights that have scales for each 16, or those with others.
///
/// # Safety
/// As [`super::linear`], operands and scratch checked.
pub(super) unsafe fn run(isa: Isa, worker: Worker<'_>, job: &Job<'_>, by_halves: bool) {
    // SAFETY: the caller's promise.
    unsafe {
        match byte_tiles::unit(isa, job.m) {
            Some(unit) => byte_tiles::run(unit, worker, job, by_halves),
            None => on_vectors(isa, worker, job, by_halves),
        }
    }
}

dot_fn! {
    /// # Safety
    /// As [`run`].
    unsafe fn on_vectors(worker: Worker<'_>, job: &Job<'_>, by_halves: bool) = body
}

/// # Safety
/// As [`run`].
#[inline(always)]
unsafe fn body<D: Dot>(d: D, worker: Worker<'_>, job: &Job<'_>, by_halves: bool) {
    let scratch = job.scratch.ptr();
    let scratch = scratch.wrapping_add(scratch.align_offset(4 * LINE));
    let blocks = blocks(job.k, by_halves);
    let direct = job.m <= if D::TILE.1 >= 3 { DIRECT_PANELS * DIRECT_ROWS } else { DIRECT_ROWS };
    let rows = if direct { job.m.next_power_of_two().min(DIRECT_ROWS) } else { D::TILE.0 };
    let order = if D::BASED && !direct { Order::Based } else { Order::Quads };
    let panels = job.m.div_ceil(rows);
    let quantised = acts::len_bytes(panels * rows, blocks).div_ceil(4).next_multiple_of(LINE);
    let small = is_small(job.m, job.k);
    // SAFETY: the scratch is as long as `scratch_len` says: quantised rows (for each thread, if small), then the threads' own
    // parts. A panel's records are written by one thread, and read after the barrier (or by that thread alone).
    unsafe {
        let to = if small { scratch.add(worker.index() * quantised) } else { scratch };
        // Each thread quantises all panels for itself, or those that it takes.
        let mut panel = if small { 0 } else { worker.take() };
        while panel < panels {
            let to = to.cast::<u8>().add(acts::len_bytes(panel * rows, blocks));
            acts::quantize(d, job, panel * rows, rows, 0..blocks, (order, by_halves), to);
            panel = if small { panel + 1 } else { worker.take() };
        }
        if !small {
            worker.barrier();
        }
        if direct {
            direct::run(d, worker, job, by_halves, to.cast(), rows, blocks);
        } else {
            let own = scratch.add(quantised + worker.index() * tiled::THREAD_LEN);
            tiled::run(d, worker, job, by_halves, to.cast(), blocks, own);
        }
    }
}
