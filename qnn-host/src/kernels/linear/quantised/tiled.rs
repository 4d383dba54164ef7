//! Many rows of `X`: weights are opened into bytes in the first-level cache, a few groups and 256 columns at a time, and
//! multiplied with all panels of quantised rows in register tiles ([`super::register_tile`]).
//!
//! *Scratch of a thread*: opened weights `[group][block][8 quads][64]` (two quads at a time in the unit's own order), their
//! scales `[group][block][16]` (6 bits: one for each half of a block; on units with [`Dot::BASED`] times each of the mantissas of scales of `X`,
//! one after the other; with minima: the scales, then the minima) f32, and the products of a layer and of its gate, `[panel][row][groups * 16]` f32.

use std::ops::Range;

use super::super::super::k_blocks;
use super::super::super::packed::{Bits, Packed, SCALES_BYTES, Scales};
use super::super::super::simd::Simd;
use super::super::super::simd::act_scale::MANTISSAS;
use super::super::super::simd::dot::{BLOCK, Dot, GROUP};
use super::super::finish::{Affine, ask_for_outputs, finish};
use super::super::{Job, Linear};
use super::acts::len_bytes;
use super::register_tile::{Tile, by_shape, products_stay};
use super::{few_bits, half_blocks as halves, nibbles, packed};
use crate::pool::Worker;

/// Most groups of a task.
const MAX_GROUPS: usize = 3;
/// Tasks of a layer for each thread, where tasks are of all rows that there is room for: threads end one task apart at the worst.
const LARGE_TASKS: usize = 32;
/// The same where they are of several register tiles.
const TASKS: usize = 8;
/// Blocks that are opened at a time.
pub(super) const OPEN_BLOCKS: usize = 8;
/// Most rows of `X` whose products are kept: with their quantised rows, a part of the second-level cache.
const BLOCK_ROWS: usize = 512;
/// Bytes of an opened block.
pub(super) const OPEN_BYTES: usize = 512;
/// Where opened minima of a group begin, behind its scales times all mantissas, where a block has one of each; where it has two, twice as far.
pub(super) const LESS_AT: usize = MANTISSAS.len() * OPEN_BLOCKS * GROUP;
/// Opened scales of a group, and minima: one or two for each block of each row.
pub(super) const GROUP_SCALES: usize = 2 * (LESS_AT + OPEN_BLOCKS * GROUP);
/// Floats of opened weights.
const OPEN_LEN: usize = MAX_GROUPS * OPEN_BLOCKS * OPEN_BYTES / 4;
/// Floats of opened scales.
const SCALES_LEN: usize = MAX_GROUPS * GROUP_SCALES;
/// Floats of products.
pub(super) const PRODUCTS_LEN: usize = BLOCK_ROWS * MAX_GROUPS * GROUP;
/// Where a thread's scales begin, in floats of its scratch.
pub(super) const SCALES_AT: usize = OPEN_LEN;
/// Where its products do.
pub(super) const PRODUCTS_AT: usize = OPEN_LEN + SCALES_LEN;
/// Floats of scratch of a thread.
pub(super) const THREAD_LEN: usize = PRODUCTS_AT + 2 * PRODUCTS_LEN;

/// How opened weights are kept.
pub(super) trait Form<D: Dot>: Copy {
    /// Keeps the weights of two quads that follow each other (the first at an even place), unsigned or, of 8 bits, as [`Dot::bytes`] has them.
    /// Must be `inline(always)`.
    ///
    /// # Safety
    /// 128 bytes are writable at `to`.
    unsafe fn keep(self, d: D, to: *mut u8, first: D::Weights, second: D::Weights);
}

/// As [`Dot::products`] takes them.
#[derive(Clone, Copy)]
struct ForProducts;

impl<D: Dot> Form<D> for ForProducts {
    #[inline(always)]
    unsafe fn keep(self, d: D, to: *mut u8, first: D::Weights, second: D::Weights) {
        // SAFETY: the caller's promise.
        unsafe { d.store_opened(to, first, second) }
    }
}

/// # Safety
/// As [`super::run`]; `acts` are panels of `D::TILE.0` quantised rows, complete; `own` is this thread's scratch.
#[inline(always)]
pub(super) unsafe fn run<D: Dot>(
    d: D,
    worker: Worker<'_>,
    job: &Job<'_>,
    by_halves: bool,
    acts: *const u8,
    blocks: usize,
    own: *mut f32,
) {
    let mut task = worker.take();
    let mut first = 0;
    for layer in job.layers {
        let Some(weights) = packed(layer, by_halves) else { continue };
        let n = weights.rows();
        let (chunk, rows) = shape_of_task(D::TILE.1, n, job.m, worker.count());
        let parts = job.m.div_ceil(rows);
        let tasks = n.div_ceil(chunk) * parts;
        while task < first + tasks {
            // Tasks that follow each other read the same weights.
            let (n0, row0) = ((task - first) / parts * chunk, (task - first) % parts * rows);
            let rows = row0..job.m.min(row0 + rows);
            // SAFETY: the outputs and rows exist, and this thread alone took them; a part of the rows begins with a panel.
            unsafe { outputs(d, acts, blocks, own, layer, weights, rows, n0, chunk.min(n - n0)) };
            task = worker.take();
        }
        first += tasks;
    }
}

/// Outputs and rows of a task of a layer with `n` outputs for `m` rows: as many as there is room for, so that quantised rows and weights are
/// read seldom, but half the rows, and then a register tile's outputs, where there would be few tasks for all threads.
pub(super) const fn shape_of_task(of_tile: usize, n: usize, m: usize, threads: usize) -> (usize, usize) {
    let most = MAX_GROUPS / of_tile * of_tile * GROUP;
    if n.div_ceil(most) * m.div_ceil(BLOCK_ROWS) >= LARGE_TASKS * threads {
        return (most, BLOCK_ROWS);
    }
    let rows = BLOCK_ROWS / 2;
    let outputs = if n.div_ceil(most) * m.div_ceil(rows) < TASKS * threads { of_tile * GROUP } else { most };
    (outputs, rows)
}

/// Outputs `n0 .. n0 + count` of a layer, for rows `rows`.
///
/// # Safety
/// As [`run`]; `n0` begins a group, `count` is at most [`MAX_GROUPS`] groups, `rows` at most [`BLOCK_ROWS`] from a panel's first one on.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
unsafe fn outputs<D: Dot>(
    d: D,
    acts: *const u8,
    blocks: usize,
    own: *mut f32,
    layer: &Linear<'_>,
    weights: Packed<'_>,
    rows: Range<usize>,
    n0: usize,
    count: usize,
) {
    let s = d.float();
    let affine = Affine::of(layer, n0, count);
    let width = count.div_ceil(GROUP) * GROUP;
    let main = own.wrapping_add(PRODUCTS_AT);
    let gate = main.wrapping_add(PRODUCTS_LEN);
    // SAFETY: rows begin with a panel; each part of the scratch is used for one thing; products of as many rows with `width` outputs fit.
    unsafe {
        let acts = acts.add(len_bytes(rows.start, blocks));
        if let Some(g) = layer.gate.and_then(|g| g.weights.packed()) {
            products(d, g, n0 / GROUP, width / GROUP, acts, rows.len(), blocks, own, gate);
        }
        products(d, weights, n0 / GROUP, width / GROUP, acts, rows.len(), blocks, own, main);
        for (i, row) in rows.enumerate() {
            ask_for_outputs(s, layer, row, n0, count);
            let at = i * width;
            let out = layer.out_at(row, n0);
            finish(s, layer, &affine, row, n0, count, main.add(at), gate.add(at), out);
        }
    }
}

/// `to[row * groups * 16 + i]` = row `row` of `acts` times row `16 * group0 + i` of the weights.
///
/// # Safety
/// As [`outputs`].
#[inline(always)]
#[allow(clippy::too_many_arguments)]
unsafe fn products<D: Dot>(
    d: D,
    w: Packed<'_>,
    group0: usize,
    groups: usize,
    acts: *const u8,
    rows: usize,
    blocks: usize,
    open: *mut f32,
    to: *mut f32,
) {
    let scales = open.wrapping_add(SCALES_AT);
    let panels = rows.div_ceil(D::TILE.0);
    let packing = w.packing();
    let by_block = packing.scales == Scales::Block;
    let stretch_blocks = packing.stretch_cols() / BLOCK;
    if blocks == 0 || !products_stay::<D>() {
        // SAFETY: whole panels of products fit, as `BLOCK_ROWS` is a multiple of a panel's rows.
        unsafe { to.write_bytes(0, panels * D::TILE.0 * groups * GROUP) };
    }
    for block0 in (0..blocks).step_by(OPEN_BLOCKS) {
        let count = OPEN_BLOCKS.min(blocks - block0);
        for group in 0..groups {
            // SAFETY: the group has `count` (an even number) blocks from `block0` (as well) on; the opened ones fit.
            unsafe {
                let opened = open.cast::<u8>().add(group * OPEN_BLOCKS * OPEN_BYTES);
                open_group(
                    d,
                    ForProducts,
                    w,
                    packing.bits,
                    group0 + group,
                    block0,
                    0..count,
                    opened,
                    scales.add(group * GROUP_SCALES),
                );
                if D::BASED && by_block {
                    let parts = if packing.by_halves() { 2 } else { 1 };
                    times_mantissas(d, scales.add(group * GROUP_SCALES), parts);
                }
            }
        }
        // The next columns' weights come from memory while these are multiplied.
        let next0 = block0 + count;
        let next_lines = OPEN_BLOCKS.min(blocks - next0) / stretch_blocks * packing.stretch_bytes() / 64;
        let next = packing.group_header() + next0 / stretch_blocks * packing.stretch_bytes();
        for panel in 0..panels {
            for line in next_lines * panel / panels..next_lines * (panel + 1) / panels {
                for group in 0..groups {
                    d.float().prefetch_l2(w.group(group0 + group).wrapping_add(next + 64 * line));
                }
            }
            // The next panel's rows come from the second-level cache, or a further one, meanwhile.
            let acts = acts.wrapping_add(len_bytes(panel * D::TILE.0, blocks) + len_bytes(D::TILE.0, block0));
            let next_acts = acts.wrapping_add(len_bytes(D::TILE.0, blocks));
            for line in 0..len_bytes(D::TILE.0, count).div_ceil(64) {
                d.float().prefetch(next_acts.wrapping_add(64 * line));
            }
            for group in (0..groups).step_by(D::TILE.1) {
                // SAFETY: panel `panel` has these blocks; its products fit: whole panels, of whose rows `BLOCK_ROWS` is a multiple.
                unsafe {
                    let tile = Tile {
                        opened: open.cast::<u8>().add(group * OPEN_BLOCKS * OPEN_BYTES),
                        scales: scales.add(group * GROUP_SCALES),
                        acts,
                        blocks: count,
                        bits: packing.bits,
                        to: to.add((panel * D::TILE.0 * groups + group) * GROUP),
                        add: block0 > 0,
                        width: groups * GROUP,
                    };
                    let of_tile = D::TILE.1.min(groups - group);
                    match (packing.bits, by_block, w.minima(group0).is_some()) {
                        (Bits::Six, ..) => by_shape::<D, true, 2, false, 6>(d, of_tile, tile),
                        (Bits::Three, ..) => by_shape::<D, true, 2, false, 3>(d, of_tile, tile),
                        (Bits::UTwo, _, true) => by_shape::<D, true, 2, true, 2>(d, of_tile, tile),
                        (Bits::UTwo, _, false) => by_shape::<D, true, 2, false, 2>(d, of_tile, tile),
                        (Bits::Four, true, _) => by_shape::<D, true, 1, false, 4>(d, of_tile, tile),
                        (Bits::Four, false, _) => by_shape::<D, false, 1, false, 4>(d, of_tile, tile),
                        (Bits::UFour, _, true) => by_shape::<D, true, 1, true, 4>(d, of_tile, tile),
                        (Bits::UFour, _, false) => by_shape::<D, true, 1, false, 4>(d, of_tile, tile),
                        (Bits::UFive, _, true) => by_shape::<D, true, 1, true, 5>(d, of_tile, tile),
                        (Bits::Five, ..) | (Bits::UFive, _, false) => {
                            by_shape::<D, true, 1, false, 5>(d, of_tile, tile);
                        }
                        (_, true, _) => by_shape::<D, true, 1, false, 8>(d, of_tile, tile),
                        (_, false, _) => by_shape::<D, false, 1, false, 8>(d, of_tile, tile),
                    }
                }
            }
        }
    }
    if !by_block {
        for (at, group) in (0..panels * D::TILE.0 * groups).map(|i| (i * GROUP, group0 + i % groups)) {
            // SAFETY: a group with scales by row begins with them; the products are those of whole panels.
            unsafe {
                let to = to.add(at);
                d.store_group(to, d.mul(d.load_group(to), d.load_group(w.group(group).cast())));
            }
        }
    }
}

/// Multiplies a group's opened scales, `parts` for each block, with all mantissas.
///
/// # Safety
/// They are readable at `scales`, and there is room for all of them.
#[inline(always)]
unsafe fn times_mantissas<D: Dot>(d: D, scales: *mut f32, parts: usize) {
    let each = parts * OPEN_BLOCKS * GROUP;
    for at in (0..each).step_by(GROUP) {
        // SAFETY: the caller's promise.
        unsafe {
            let scale = d.load_group(scales.add(at));
            for (i, mantissa) in MANTISSAS.into_iter().enumerate() {
                d.store_group(scales.add(i * each + at), d.mul_splat(scale, mantissa));
            }
        }
    }
}

/// Opens blocks `part`, an even number of them from an even one on, of the stretch that begins with `block0` of a group, with their scales and
/// minima; with the first of a stretch of 256 columns, the scales of all of it. `bits` are the weights' (where they are known when this is
/// compiled, one form is left).
///
/// # Safety
/// The group has them, and `block0` begins a stretch; [`OPEN_BLOCKS`] blocks and [`GROUP_SCALES`] scales are writable.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
pub(super) unsafe fn open_group<D: Dot>(
    d: D,
    form: impl Form<D>,
    w: Packed<'_>,
    bits: Bits,
    group: usize,
    block0: usize,
    part: Range<usize>,
    opened: *mut u8,
    scales: *mut f32,
) {
    let packing = w.packing();
    let stretch = block0 / (packing.stretch_cols() / BLOCK);
    // SAFETY: the caller's promise.
    unsafe {
        let from = w.group(group).add(packing.group_header() + stretch * packing.stretch_bytes());
        let by_block = packing.scales == Scales::Block;
        match bits {
            Bits::Four => open_blocks::<D, true>(d, form, from, part, by_block, opened, scales),
            Bits::Eight => open_blocks::<D, false>(d, form, from, part, by_block, opened, scales),
            Bits::Five | Bits::Nonlinear | Bits::FloatFour => {
                few_bits::open(d, form, bits, from, part, opened, scales);
            }
            Bits::Six | Bits::Three | Bits::UTwo => {
                let minima = w.minima(group).map(|at| at.add(stretch * k_blocks::BLOCKS_AT));
                halves::open(d, form, bits, from, minima, part, opened, scales);
            }
            Bits::UFour | Bits::UFive | Bits::Levels => {
                let minima = w.minima(group).map(|at| at.add(stretch * k_blocks::BLOCKS_AT));
                super::k_blocks::open(d, form, bits, from, minima, part, opened, scales);
            }
            Bits::Minima | Bits::HalfMinima => unreachable!("minima are no weights"),
        }
    }
}

/// Opens blocks `part`, an even number of them from an even one on, of those at `from`.
///
/// # Safety
/// They are readable, and the opened ones writable.
#[inline(always)]
unsafe fn open_blocks<D: Dot, const FOUR: bool>(
    d: D,
    form: impl Form<D>,
    from: *const u8,
    part: Range<usize>,
    by_block: bool,
    opened: *mut u8,
    scales: *mut f32,
) {
    let bytes = if FOUR { OPEN_BYTES / 2 } else { OPEN_BYTES };
    let scales_bytes = if by_block { SCALES_BYTES } else { 0 };
    for block in part {
        // SAFETY: the caller's promise.
        unsafe {
            let start = from.add(block / 2 * (scales_bytes + 2 * bytes));
            if by_block {
                let group = d.load_group_f16(start.add(block % 2 * 2 * GROUP).cast());
                d.store_group(scales.add(block * GROUP), group);
            }
            let from = start.add(scales_bytes + block % 2 * bytes);
            let to = opened.add(block * OPEN_BYTES);
            if FOUR {
                nibbles::open_block(d, form, Bits::Four, from, to);
                continue;
            }
            for at in (0..OPEN_BYTES).step_by(128) {
                form.keep(d, to.add(at), d.bytes(d.load(from.add(at))), d.bytes(d.load(from.add(at + 64))));
            }
        }
    }
}
