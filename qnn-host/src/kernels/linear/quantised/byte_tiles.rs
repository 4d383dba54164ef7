//! Some rows of `X` on a matrix unit's products of bytes (`tdpbssd` of AMX).
//!
//! Weights are opened as in [`tiled`], a group and 256 columns at a time. That form, four columns of each of sixteen outputs in a row of
//! 64 bytes, is a tile of 32 columns already, and a panel of up to 16 quantised rows is the other operand. A tile of sums is the exact integer
//! products of one block (or of half of it, where weights have scales for each 16): it is stored, and scaled and added up in vectors. So an output
//! is the same to the last bit as on vectors, in the same order; only the integers are found another way.
//!
//! *Where it pays*: products of a block with 16 rows take 16 cycles, where vectors alone take 64. What the vectors do beside it costs more than
//! alone: while a thread uses tiles, multiplications and conversions of 512 bits have one port and not two (48 of them take 51 cycles with a tile
//! load before them, 26 without; additions and logic are as before), and to store a tile takes 17 cycles in which nothing else begins, whatever its
//! rows. With few rows vectors are as fast; with [`MATRIX_ROWS`], `wide`, which opens weights with their scales.
//!
//! *Scratch of a thread*: as `tiled`'s. Where that has opened weights: those of two items, and two tiles of sums; their scales;
//! products of a layer and of its gate, `[row][MAX_CHUNK]` f32.

use super::super::super::isa::{DotLevel, Isa, Matrix};
use super::super::super::packed::{Bits, Packed, Packing, Scales};
use super::super::super::simd::amx::{Amx, ByteTiles};
use super::super::super::simd::avx512_dot::Vnni512;
use super::super::super::simd::dot::{BLOCK, Dot, GROUP};
use super::super::Job;
use super::super::MATRIX_ROWS;
use super::super::finish::{Affine, MAX_CHUNK, finish_rows};
use super::acts::{self, Order, len_bytes};
use super::byte_open::{Kind, Next};
use super::byte_panel::{Operands, SUMS_BYTES, Tile, panel_products};
use super::tasks::{Task, TaskSizes, tasks};
use super::tiled::{self, OPEN_BLOCKS, OPEN_BYTES};
use super::{DIRECT_ROWS, LINE, blocks};
use crate::pool::Worker;

/// Fewest rows of `X` that come here.
const ROWS: usize = DIRECT_ROWS + 1;
/// Most rows of a panel: those of a tile.
const PANEL_ROWS: usize = 16;
/// Blocks of a panel that a thread quantises at a time: a panel may be all there is.
const QUANTISED_BLOCKS: usize = 16;
/// Tasks of a layer for each thread, about, where it has groups enough.
const TASKS: usize = 4;

// The room that `tiled` leaves is enough.
const _: () = assert!(2 * OPEN_BLOCKS * OPEN_BYTES + 2 * SUMS_BYTES <= 4 * tiled::SCALES_AT);
const _: () = assert!(tiled::SCALES_AT + 2 * tiled::GROUP_SCALES <= tiled::PRODUCTS_AT);
const _: () = assert!(MATRIX_ROWS.next_multiple_of(PANEL_ROWS) * MAX_CHUNK <= tiled::PRODUCTS_LEN);

/// The units that are needed.
#[derive(Clone, Copy)]
pub(super) struct Unit(Amx, Vnni512);

/// The units for steps of `m` rows, where there are such and it pays.
pub(super) fn unit(isa: Isa, m: usize) -> Option<Unit> {
    match (isa.2, isa.1) {
        (Some(Matrix::Amx(amx)), DotLevel::Vnni512(vectors)) if (ROWS..MATRIX_ROWS).contains(&m) => {
            Some(Unit(amx, vectors))
        }
        _ => None,
    }
}

/// Rows of each panel of `m` rows, as even parts as there can be: 12 or 16.
fn panel_rows(m: usize) -> usize {
    m.div_ceil(m.div_ceil(PANEL_ROWS)).next_multiple_of(4)
}

/// Computes the layers with packed weights that have scales for each 16, or those with others.
///
/// # Safety
/// As [`super::super::linear`], operands and scratch checked.
pub(super) unsafe fn run(unit: Unit, worker: Worker<'_>, job: &Job<'_>, by_halves: bool) {
    // SAFETY: the token proves that the CPU has the features; the caller's promise is the body's.
    unsafe {
        match panel_rows(job.m) {
            12 => body::<12>(unit, worker, job, by_halves),
            _ => body::<16>(unit, worker, job, by_halves),
        }
    }
}

/// # Safety
/// As [`run`]; the CPU has the features.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn body<const R: usize>(Unit(amx, d): Unit, worker: Worker<'_>, job: &Job<'_>, by_halves: bool) {
    let scratch = job.scratch.ptr();
    let scratch = scratch.wrapping_add(scratch.align_offset(4 * LINE));
    let blocks = blocks(job.k, by_halves);
    let panels = job.m.div_ceil(R);
    let quantised = len_bytes(panels * R, blocks).div_ceil(4).next_multiple_of(LINE);
    // SAFETY: the scratch is as long as `scratch_len` says: quantised rows, then the threads' own parts. A record is written by one thread,
    // and read after the barrier.
    unsafe {
        let parts = blocks.div_ceil(QUANTISED_BLOCKS);
        for task in worker.tasks(panels * parts) {
            let (panel, first) = (task / parts, task % parts * QUANTISED_BLOCKS);
            let to = scratch.cast::<u8>().add(len_bytes(panel * R, blocks));
            let part = first..blocks.min(first + QUANTISED_BLOCKS);
            acts::quantize(d, job, panel * R, R, part, (Order::Rows, by_halves), to);
        }
        worker.barrier();
        let own = scratch.add(quantised + worker.index() * tiled::THREAD_LEN);
        let tiles = amx.byte_tiles(R, if by_halves { BLOCK / 2 } else { BLOCK });
        outputs::<R>(d, &tiles, worker, job, by_halves, scratch.cast(), blocks, own);
    }
}

/// # Safety
/// As [`body`]; `acts` are panels of `R` quantised rows, complete; `own` is this thread's scratch.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
#[allow(clippy::too_many_arguments)]
unsafe fn outputs<const R: usize>(
    d: Vnni512,
    tiles: &ByteTiles,
    worker: Worker<'_>,
    job: &Job<'_>,
    by_halves: bool,
    acts: *const u8,
    blocks: usize,
    own: *mut f32,
) {
    let main = own.wrapping_add(tiled::PRODUCTS_AT);
    let gate = main.wrapping_add(tiled::PRODUCTS_LEN);
    // As many groups as there is room for, if all threads have some tasks.
    let sizes_of = |weights: Packed<'_>| {
        let fair = weights.rows().div_ceil(GROUP).div_ceil(TASKS * worker.count());
        let chunk = fair.clamp(1, MAX_CHUNK / GROUP) * GROUP;
        TaskSizes { least: chunk, most: chunk }
    };
    for Task { layer, weights, n0, count } in tasks(worker, job, by_halves, sizes_of) {
        // SAFETY: the chunk lies inside the layer, and this thread alone took it; products of whole panels with whole groups fit, and are
        // written before they are read (those of a gate only if there is one).
        unsafe {
            let to_main = Products { d, tiles, w: weights, n0, count, acts, m: job.m, blocks, open: own, to: main };
            if let Some(g) = layer.gate.and_then(|g| g.weights.packed()) {
                products::<R>(Products { w: g, to: gate, ..to_main });
            }
            products::<R>(to_main);
            let affine = Affine::of(layer, n0, count);
            finish_rows(d.float(), layer, &affine, 0..job.m, n0, count, main, gate);
        }
    }
}

/// The operands of [`products`].
#[derive(Clone, Copy)]
struct Products<'a> {
    d: Vnni512,
    tiles: &'a ByteTiles,
    w: Packed<'a>,
    /// The first output, which begins a group.
    n0: usize,
    count: usize,
    /// Panels of quantised rows, complete, of `m` rows and `blocks` blocks.
    acts: *const u8,
    m: usize,
    blocks: usize,
    /// This thread's scratch.
    open: *mut f32,
    to: *mut f32,
}

/// `to[row * MAX_CHUNK + i]` = row `row` of all panels times weights `n0 + i`, for whole groups.
///
/// # Safety
/// As [`outputs`]; `n0` begins a group.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn products<const R: usize>(p: Products<'_>) {
    macro_rules! of {
        ($($bits:ident, $scales:ident, $less:literal;)*) => {
            match (p.w.packing().bits, p.w.packing().scales, p.w.minima(0).is_some()) {
                $((Bits::$bits, Scales::$scales, $less) => {
                    struct Known;
                    impl Kind for Known {
                        const PACKING: Packing = Packing { bits: Bits::$bits, scales: Scales::$scales };
                        const LESS: bool = $less;
                    }
                    // SAFETY: the caller's promise.
                    unsafe { products_of::<R, Known>(p) }
                })*
                other => unreachable!("no weights of {other:?}"),
            }
        };
    }
    of! {
        Four, Row, false;
        Eight, Row, false;
        Four, Block, false;
        Eight, Block, false;
        Five, Block, false;
        Nonlinear, Block, false;
        FloatFour, Block, false;
        Levels, Block, false;
        UFour, Block, false;
        UFive, Block, false;
        UFour, Block, true;
        UFive, Block, true;
        Six, Block, false;
        Three, Block, false;
        UTwo, Block, false;
        UTwo, Block, true;
    }
}

/// As [`products`], for weights of kind `K`.
///
/// # Safety
/// As [`products`].
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
unsafe fn products_of<const R: usize, K: Kind>(p: Products<'_>) {
    let Products { d, tiles, w, n0, count, acts, m, blocks, open, to } = p;
    let packing = w.packing();
    let panels = m.div_ceil(R);
    let groups = count.div_ceil(GROUP);
    let chunks = blocks.div_ceil(OPEN_BLOCKS);
    let opened = |i: usize| open.cast::<u8>().wrapping_add(i % 2 * OPEN_BLOCKS * OPEN_BYTES);
    let scales = |i: usize| open.wrapping_add(tiled::SCALES_AT + i % 2 * tiled::GROUP_SCALES);
    let sums = open.cast::<u8>().wrapping_add(2 * OPEN_BLOCKS * OPEN_BYTES);
    let next = |i: usize, at: Item| {
        let blocks = if at.passed { 0 } else { OPEN_BLOCKS.min(blocks - at.block0) };
        let group = n0 / GROUP + at.group;
        Next { weights: w, group, block0: at.block0, blocks, opened: opened(i), scales: scales(i) }
    };
    let operands = |i: usize, at: Item, panel: usize| Operands {
        acts: acts.wrapping_add(len_bytes(panel * R, blocks) + len_bytes(R, at.block0)),
        opened: opened(i),
    };
    // Quantised rows of a chunk of columns stay in the first-level cache for all groups.
    let mut item = Item { group: 0, block0: 0, passed: false };
    // SAFETY: the group has these blocks, an even number; `block0` begins a stretch; `OPEN_BLOCKS` opened ones fit, and sums.
    unsafe {
        for first in (0..OPEN_BLOCKS).step_by(2) {
            next(0, item).open::<K>(d, first);
        }
        operands(0, item, 0).begin::<R, K>(tiles, sums);
    }
    for i in 0..chunks * groups {
        let following = item.following(groups, blocks);
        // What is opened with the item behind the next one.
        let ask = following.following(groups, blocks);
        let lines = OPEN_BLOCKS * K::LINES / 2;
        let ask = packing.group_header()
            + ask.block0 * BLOCK / const { K::PACKING.stretch_cols() } * const { K::PACKING.stretch_bytes() }
            + (n0 / GROUP + ask.group) * w.group_bytes();
        let ask = w.group(0).wrapping_add(ask);
        let (mut from, blocks) = (0, OPEN_BLOCKS.min(blocks - item.block0));
        for panel in 0..panels {
            let until = if panel + 1 < panels { from + lines / panels } else { lines };
            let then = match (panel + 1 < panels, following.passed) {
                (true, _) => operands(i, item, panel + 1),
                (false, false) => operands(i + 1, following, 0),
                // Nothing: once more what is there.
                (false, true) => operands(i, item, panel),
            };
            // All that is opened next is opened beside the first panel.
            let mut next = next(i + 1, following);
            if panel > 0 {
                next.blocks = 0;
            }
            // SAFETY: panel `panel` has these blocks; its products fit.
            unsafe {
                let tile = Tile {
                    operands: operands(i, item, panel),
                    scales: scales(i),
                    blocks,
                    then,
                    ask: ask.wrapping_add(64 * from),
                    lines: until - from,
                    to: to.add(panel * R * MAX_CHUNK + item.group * GROUP),
                    first: item.block0 == 0,
                    sums,
                };
                panel_products::<R, K>(d, tiles, tile, next);
            }
            from = until;
        }
        item = following;
    }
    if !K::BLOCK_SCALES {
        for (row, g) in (0..panels * R).flat_map(|row| (0..groups).map(move |g| (row, g))) {
            // SAFETY: a group with scales by row begins with them; the products are those of whole panels.
            unsafe {
                let to = to.add(row * MAX_CHUNK + g * GROUP);
                d.store_group(to, d.mul(d.load_group(to), d.load_group(w.group(n0 / GROUP + g).cast())));
            }
        }
    }
}

/// Some blocks of a group, which are opened at once.
#[derive(Clone, Copy)]
struct Item {
    /// The group, of those of a task.
    group: usize,
    block0: usize,
    /// Whether it is behind the last one: one of the next task's, if that is of the same layer.
    passed: bool,
}

impl Item {
    /// What is multiplied behind this: all groups for some columns, then for others.
    fn following(self, groups: usize, blocks: usize) -> Self {
        let (group, block0) = (self.group + 1, self.block0 + OPEN_BLOCKS);
        if group != groups && group != 2 * groups {
            Self { group, ..self }
        } else if block0 < blocks {
            Self { group: group - groups, block0, ..self }
        } else {
            Self { group, block0: 0, passed: true }
        }
    }
}
