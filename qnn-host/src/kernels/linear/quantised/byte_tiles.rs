//! Some rows of `X` on a matrix unit's products of bytes (`tdpbssd` of AMX).
//!
//! Weights are opened as in [`tiled`], a group and 256 columns at a time. That form, four columns of each of sixteen outputs in a row of
//! 64 bytes, is a tile of 32 columns already, and a panel of up to 16 quantised rows is the other operand. A tile of sums is the exact integer
//! products of one block (or of half of it, where weights have scales for each 16): it is stored, and scaled and added up in vectors. So an output
//! is the same to the last bit as on vectors, in the same order; only the integers are found another way.
//!
//! *Where it pays*: products of a block with 16 rows take 16 cycles of a port that vectors need too, where vectors alone take 64; scaling, 24 on
//! either, and opening stay. With few rows vectors are as fast; with [`MATRIX_ROWS`], `wide`, which opens weights with their scales.
//!
//! *Scratch of a thread*: as `tiled`'s. Where that has opened weights: those that are multiplied, those that come next, two tiles of sums. Scales of
//! both; products of a layer and of its gate, `[row][MAX_CHUNK]` f32.

use std::arch::x86_64::*;

use super::super::super::isa::{DotLevel, Isa, Matrix};
use super::super::super::packed::{Bits, Packed, Scales};
use super::super::super::simd::amx::{Amx, ByteTiles};
use super::super::super::simd::avx512_dot::Vnni512;
use super::super::super::simd::dot::{BLOCK, Dot, GROUP};
use super::super::Job;
use super::super::MATRIX_ROWS;
use super::super::finish::{Affine, MAX_CHUNK, finish};
use super::acts::{self, Order, len_bytes};
use super::byte_panel::{SUMS_BYTES, Tile, panel_products};
use super::tiled::{self, Form, GROUP_SCALES, OPEN_BLOCKS, OPEN_BYTES};
use super::{DIRECT_ROWS, LINE, blocks, packed};
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
const _: () = assert!(2 * (OPEN_BLOCKS * OPEN_BYTES + SUMS_BYTES) <= 4 * tiled::SCALES_AT);
const _: () = assert!(2 * GROUP_SCALES <= tiled::PRODUCTS_AT - tiled::SCALES_AT);
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
        let mut task = worker.take();
        while task < panels * parts {
            let (panel, first) = (task / parts, task % parts * QUANTISED_BLOCKS);
            let to = scratch.cast::<u8>().add(len_bytes(panel * R, blocks));
            let part = first..blocks.min(first + QUANTISED_BLOCKS);
            acts::quantize(d, job, panel * R, R, part, (Order::Rows, by_halves), to);
            task = worker.take();
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
    let s = d.float();
    let main = own.wrapping_add(tiled::PRODUCTS_AT);
    let gate = main.wrapping_add(tiled::PRODUCTS_LEN);
    // As many groups as there is room for, if all threads have some tasks.
    let chunk_of = |weights: Packed<'_>| {
        let fair = weights.rows().div_ceil(GROUP).div_ceil(TASKS * worker.count());
        fair.clamp(1, MAX_CHUNK / GROUP) * GROUP
    };
    let tasks_of = |weights: Packed<'_>| weights.rows().div_ceil(chunk_of(weights));
    let all = job.layers.iter().filter_map(|layer| packed(layer, by_halves)).map(tasks_of).sum();
    let mut run = worker.take_run(all);
    let mut first = 0;
    for layer in job.layers {
        let Some(weights) = packed(layer, by_halves) else { continue };
        let (n, chunk, tasks) = (weights.rows(), chunk_of(weights), tasks_of(weights));
        while run.start < first + tasks {
            let n0 = (run.start - first) * chunk;
            let count = chunk.min(n - n0);
            // SAFETY: the chunk lies inside the layer, and this thread alone took it; products of whole panels with whole groups fit, and are
            // written before they are read (those of a gate only if there is one).
            unsafe {
                if let Some(g) = layer.gate.and_then(|g| g.weights.packed()) {
                    products::<R>(d, tiles, g, n0, count, acts, job.m, blocks, own, gate);
                }
                products::<R>(d, tiles, weights, n0, count, acts, job.m, blocks, own, main);
                let affine = Affine::of(s, layer, n0, count);
                for row in 0..job.m {
                    let at = row * MAX_CHUNK;
                    finish(s, layer, &affine, row, n0, count, main.add(at), gate.add(at));
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

/// `to[row * MAX_CHUNK + i]` = row `row` of all panels times weights `n0 + i`, for whole groups.
///
/// # Safety
/// As [`outputs`]; `n0` begins a group.
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")]
#[allow(clippy::too_many_arguments)]
unsafe fn products<const R: usize>(
    d: Vnni512,
    tiles: &ByteTiles,
    w: Packed<'_>,
    n0: usize,
    count: usize,
    acts: *const u8,
    m: usize,
    blocks: usize,
    open: *mut f32,
    to: *mut f32,
) {
    let packing = w.packing();
    let (kind, form) = (Kind::of(w), Signed::of(packing.bits));
    let stretch_blocks = packing.stretch_cols() / BLOCK;
    let panels = m.div_ceil(R);
    let groups = count.div_ceil(GROUP);
    // Quantised rows of a chunk of columns stay in the first-level cache for all groups.
    let chunks = blocks.div_ceil(OPEN_BLOCKS);
    let place = |i: usize| (n0 / GROUP + i % groups, i / groups * OPEN_BLOCKS);
    let count_at = |block0: usize| OPEN_BLOCKS.min(blocks.saturating_sub(block0));
    let room = |i: usize| {
        let opened = open.cast::<u8>().wrapping_add(i % 2 * OPEN_BLOCKS * OPEN_BYTES);
        (opened, open.wrapping_add(tiled::SCALES_AT + i % 2 * GROUP_SCALES))
    };
    let open_at = |i: usize| {
        let ((group, block0), (opened, scales)) = (place(i), room(i));
        // SAFETY: the group has these blocks, an even number; `block0` begins a stretch; two opened groups of `OPEN_BLOCKS` fit.
        unsafe { tiled::open_group(d, form, w, group, block0, count_at(block0), opened, scales) }
    };
    open_at(0);
    for i in 0..groups * chunks {
        let ((group, block0), (opened, scales)) = (place(i), room(i));
        // The same group's next columns, or the first ones of the next task's.
        let next = if block0 + OPEN_BLOCKS < blocks { (group, block0 + OPEN_BLOCKS) } else { (group + groups, 0) };
        let lines = count_at(next.1).div_ceil(stretch_blocks) * packing.stretch_bytes() / 64;
        let ask = packing.group_header() + next.1 / stretch_blocks * packing.stretch_bytes();
        let ask = w.group(0).wrapping_add(next.0 * w.group_bytes() + ask);
        for panel in 0..panels {
            // What is multiplied next is opened while the first products are computed.
            let between = || {
                if panel == 0 && i + 1 < groups * chunks {
                    open_at(i + 1);
                }
            };
            // SAFETY: panel `panel` has these blocks; its products fit.
            unsafe {
                let tile = Tile {
                    opened,
                    scales,
                    acts: acts.add(len_bytes(panel * R, blocks)),
                    block0,
                    blocks: count_at(block0),
                    ask: ask.wrapping_add(64 * (lines * panel / panels)),
                    lines: lines * (panel + 1) / panels - lines * panel / panels,
                    to: to.add(panel * R * MAX_CHUNK + i % groups * GROUP),
                    sums: open.cast::<u8>().add(2 * OPEN_BLOCKS * OPEN_BYTES),
                };
                match kind {
                    Kind::Row => panel_products::<R, false, 1, false>(tiles, tile, between),
                    Kind::Block => panel_products::<R, true, 1, false>(tiles, tile, between),
                    Kind::BlockLess => panel_products::<R, true, 1, true>(tiles, tile, between),
                    Kind::Halves => panel_products::<R, true, 2, false>(tiles, tile, between),
                    Kind::HalvesLess => panel_products::<R, true, 2, true>(tiles, tile, between),
                }
            }
        }
    }
    if kind == Kind::Row {
        for (row, g) in (0..panels * R).flat_map(|row| (0..groups).map(move |g| (row, g))) {
            // SAFETY: a group with scales by row begins with them; the products are those of whole panels.
            unsafe {
                let to = to.add(row * MAX_CHUNK + g * GROUP);
                d.store_group(to, d.mul(d.load_group(to), d.load_group(w.group(n0 / GROUP + g).cast())));
            }
        }
    }
}

/// What shares scales and minima.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Row,
    Block,
    BlockLess,
    Halves,
    HalvesLess,
}

impl Kind {
    fn of(w: Packed<'_>) -> Self {
        match (w.packing().scales, w.packing().by_halves(), w.minima(0).is_some()) {
            (Scales::Row, ..) => Self::Row,
            (Scales::Block, false, false) => Self::Block,
            (Scales::Block, false, true) => Self::BlockLess,
            (Scales::Block, true, false) => Self::Halves,
            (Scales::Block, true, true) => Self::HalvesLess,
        }
    }
}

/// As signed bytes: what was added to weights, so that they are not negative, is taken off.
#[derive(Clone, Copy)]
struct Signed(__m512i);

impl Signed {
    #[target_feature(enable = "avx512f")]
    fn of(bits: Bits) -> Self {
        Self(_mm512_set1_epi8(match bits {
            Bits::UTwo | Bits::UFour | Bits::UFive => 0,
            Bits::Three => 4,
            Bits::Four => 8,
            Bits::Five => 16,
            Bits::Six => 32,
            Bits::Eight | Bits::Levels | Bits::Nonlinear | Bits::FloatFour => i8::MIN,
            Bits::Minima | Bits::HalfMinima => unreachable!("minima are no weights"),
        }))
    }
}

impl Form<Vnni512> for Signed {
    #[inline(always)]
    unsafe fn keep(self, d: Vnni512, to: *mut u8, first: __m512i, second: __m512i) {
        // SAFETY: the caller promised 128 bytes; `d` proves that the CPU has the instructions.
        unsafe {
            d.store(to, _mm512_sub_epi8(first, self.0));
            d.store(to.add(64), _mm512_sub_epi8(second, self.0));
        }
    }
}
