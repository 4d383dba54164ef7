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
//! *Scratch of a thread*: as `tiled`'s. Where that has opened weights: those of one group, and two tiles of sums; its scales;
//! products of a layer and of its gate, `[row][MAX_CHUNK]` f32.

use std::arch::x86_64::*;

use super::super::super::isa::{DotLevel, Isa, Matrix};
use super::super::super::packed::{Bits, Packed, Scales};
use super::super::super::simd::amx::{Amx, ByteTiles};
use super::super::super::simd::avx512_dot::Vnni512;
use super::super::super::simd::dot::{BLOCK, Dot, GROUP};
use super::super::Job;
use super::super::MATRIX_ROWS;
use super::super::finish::{MAX_CHUNK, finish_rows};
use super::acts::{self, Order, len_bytes};
use super::byte_panel::{SUMS_BYTES, Tile, panel_products};
use super::tasks::{Task, tasks};
use super::tiled::{self, Form, OPEN_BLOCKS, OPEN_BYTES};
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
const _: () = assert!(OPEN_BLOCKS * OPEN_BYTES + 2 * SUMS_BYTES <= 4 * tiled::SCALES_AT);
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
    let chunk_of = |weights: Packed<'_>| {
        let fair = weights.rows().div_ceil(GROUP).div_ceil(TASKS * worker.count());
        fair.clamp(1, MAX_CHUNK / GROUP) * GROUP
    };
    for Task { layer, weights, n0, count } in tasks(worker, job, by_halves, chunk_of) {
        // SAFETY: the chunk lies inside the layer, and this thread alone took it; products of whole panels with whole groups fit, and are
        // written before they are read (those of a gate only if there is one).
        unsafe {
            if let Some(g) = layer.gate.and_then(|g| g.weights.packed()) {
                products::<R>(d, tiles, g, n0, count, acts, job.m, blocks, own, gate);
            }
            products::<R>(d, tiles, weights, n0, count, acts, job.m, blocks, own, main);
            finish_rows(d.float(), layer, job.m, n0, count, main, gate);
        }
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
    let opened = open.cast::<u8>();
    let scales = open.wrapping_add(tiled::SCALES_AT);
    let count_at = |block0: usize| OPEN_BLOCKS.min(blocks.saturating_sub(block0));
    for (chunk, g) in (0..chunks).flat_map(|chunk| (0..groups).map(move |g| (chunk, g))) {
        let (group, block0) = (n0 / GROUP + g, chunk * OPEN_BLOCKS);
        // SAFETY: the group has these blocks, an even number; `block0` begins a stretch; `OPEN_BLOCKS` opened ones fit.
        unsafe { tiled::open_group(d, form, w, group, block0, count_at(block0), opened, scales) };
        // The same group's next columns, or the first ones of the next task's.
        let next = if block0 + OPEN_BLOCKS < blocks { (group, block0 + OPEN_BLOCKS) } else { (group + groups, 0) };
        let lines = count_at(next.1).div_ceil(stretch_blocks) * packing.stretch_bytes() / 64;
        let ask = packing.group_header() + next.1 / stretch_blocks * packing.stretch_bytes();
        let ask = w.group(0).wrapping_add(next.0 * w.group_bytes() + ask);
        for panel in 0..panels {
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
                    to: to.add(panel * R * MAX_CHUNK + g * GROUP),
                    sums: open.cast::<u8>().add(OPEN_BLOCKS * OPEN_BYTES),
                };
                match kind {
                    Kind::Row => panel_products::<R, false, 1, false>(tiles, tile),
                    Kind::Block => panel_products::<R, true, 1, false>(tiles, tile),
                    Kind::BlockLess => panel_products::<R, true, 1, true>(tiles, tile),
                    Kind::Halves => panel_products::<R, true, 2, false>(tiles, tile),
                    Kind::HalvesLess => panel_products::<R, true, 2, true>(tiles, tile),
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
