//! Many rows of `X`: weights are opened into bytes in the first-level cache, a few groups and 256 columns at a time, and
//! multiplied with all panels of quantised rows in register tiles.
//!
//! *Scratch of a thread*: opened weights `[group][block][8 quads][64]` (two quads at a time in the unit's own order), their
//! scales `[group][block][16]` (6 bits: one for each half of a block; with minima: the scales, then the minima) f32, and the products of a layer and of its gate,
//! `[panel][row][groups * 16]` f32.

use super::super::super::packed::{Bits, Packed, SCALES_BYTES, Scales};
use super::super::super::simd::Simd;
use super::super::super::simd::dot::{BLOCK, Dot, DotPiece, GROUP, few_quads};
use super::super::super::{half_blocks, k_blocks};
use super::super::finish::{Affine, ask_for_outputs, finish};
use super::super::{Job, Linear};
use super::acts::{Record, len_bytes, less_of_half};
use super::{few_bits, half_blocks as halves, packed};
use crate::pool::Worker;

/// Most groups of a task.
const MAX_GROUPS: usize = 3;
/// Blocks that are opened at a time.
const OPEN_BLOCKS: usize = 8;
/// Rows of `X` whose products are kept: with their quantised rows, a part of the second-level cache.
const BLOCK_ROWS: usize = 256;
/// Bytes of an opened block.
pub(super) const OPEN_BYTES: usize = 512;
/// Opened scales of a group, and minima: one or two for each block of each row.
const GROUP_SCALES: usize = 4 * OPEN_BLOCKS * GROUP;
/// Where opened minima of a group begin, behind its scales, where a block has one of each; where it has two, twice as far.
const LESS_AT: usize = OPEN_BLOCKS * GROUP;
/// Starts of sums with weights that are 0 or more.
const ZEROS: [i32; 4] = [0; 4];
/// Floats of opened weights.
const OPEN_LEN: usize = MAX_GROUPS * OPEN_BLOCKS * OPEN_BYTES / 4;
/// Floats of opened scales.
const SCALES_LEN: usize = MAX_GROUPS * GROUP_SCALES;
/// Floats of products.
const PRODUCTS_LEN: usize = BLOCK_ROWS * MAX_GROUPS * GROUP;
/// Floats of scratch of a thread.
pub(super) const THREAD_LEN: usize = OPEN_LEN + SCALES_LEN + 2 * PRODUCTS_LEN;

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
    let chunk = D::TILE.1 * GROUP;
    let mut task = worker.take();
    let mut first = 0;
    for layer in job.layers {
        let Some(weights) = packed(layer, by_halves) else { continue };
        let n = weights.rows();
        let tasks = n.div_ceil(chunk);
        while task < first + tasks {
            let n0 = (task - first) * chunk;
            // SAFETY: the chunk lies inside the layer, and this thread alone took it.
            unsafe { outputs(d, job, acts, blocks, own, layer, weights, n0, chunk.min(n - n0)) };
            task = worker.take();
        }
        first += tasks;
    }
}

/// Outputs `n0 .. n0 + count` of a layer, for all rows.
///
/// # Safety
/// As [`run`]; `n0` begins a group, `count` is at most a tile's groups.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
unsafe fn outputs<D: Dot>(
    d: D,
    job: &Job<'_>,
    acts: *const u8,
    blocks: usize,
    own: *mut f32,
    layer: &Linear<'_>,
    weights: Packed<'_>,
    n0: usize,
    count: usize,
) {
    let s = d.float();
    let affine = Affine::of(s, layer, n0, count);
    let width = count.div_ceil(GROUP) * GROUP;
    let main = own.wrapping_add(OPEN_LEN + SCALES_LEN);
    let gate = main.wrapping_add(PRODUCTS_LEN);
    for row0 in (0..job.m).step_by(BLOCK_ROWS) {
        let rows = BLOCK_ROWS.min(job.m - row0);
        // SAFETY: panels begin at multiples of their rows, of which `BLOCK_ROWS` is one; each part of the scratch is used for one
        // thing; products of `rows` rows with `width` outputs fit.
        unsafe {
            let acts = acts.add(len_bytes(row0, blocks));
            if let Some(g) = layer.gate.and_then(|g| g.weights.packed()) {
                products(d, g, n0 / GROUP, width / GROUP, acts, rows, blocks, own, gate);
            }
            products(d, weights, n0 / GROUP, width / GROUP, acts, rows, blocks, own, main);
            for row in 0..rows {
                ask_for_outputs(s, layer, row0 + row, n0, count);
                let at = row * width;
                finish(s, layer, &affine, row0 + row, n0, count, main.add(at), gate.add(at));
            }
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
    let scales = open.wrapping_add(OPEN_LEN);
    let panels = rows.div_ceil(D::TILE.0);
    let packing = w.packing();
    let by_block = packing.scales == Scales::Block;
    let stretch_blocks = packing.stretch_cols() / BLOCK;
    // SAFETY: whole panels of products fit, as `BLOCK_ROWS` is a multiple of a panel's rows.
    unsafe { to.write_bytes(0, panels * D::TILE.0 * groups * GROUP) };
    for block0 in (0..blocks).step_by(OPEN_BLOCKS) {
        let count = OPEN_BLOCKS.min(blocks - block0);
        for group in 0..groups {
            let stretch = packing.group_header() + block0 / stretch_blocks * packing.stretch_bytes();
            // SAFETY: the group has `count` (an even number) blocks from `block0` (as well) on; the opened ones fit.
            unsafe {
                let from = w.group(group0 + group).add(stretch);
                let opened = open.cast::<u8>().add(group * OPEN_BLOCKS * OPEN_BYTES);
                let scales = scales.add(group * GROUP_SCALES);
                match packing.bits {
                    Bits::Four => open_blocks::<D, true>(d, from, count, by_block, opened, scales),
                    Bits::Eight => open_blocks::<D, false>(d, from, count, by_block, opened, scales),
                    bits @ (Bits::Five | Bits::Nonlinear) => few_bits::open(d, bits, from, count, opened, scales),
                    bits => {
                        let minima = w.minima(group0 + group);
                        let minima = minima.map(|at| at.add(block0 / stretch_blocks * k_blocks::BLOCKS_AT));
                        if packing.by_halves() {
                            open_halves(d, bits, from, minima, opened, scales);
                        } else {
                            open_k_blocks(d, bits, from, minima, opened, scales);
                        }
                    }
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
            // SAFETY: panel `panel` has these blocks; its products fit.
            unsafe {
                let tile = Tile {
                    opened: open.cast(),
                    scales,
                    acts: acts.add(len_bytes(panel * D::TILE.0, blocks)),
                    block0,
                    blocks: count,
                    bits: packing.bits,
                    to: to.add(panel * D::TILE.0 * groups * GROUP),
                };
                match (packing.bits, by_block, w.minima(group0).is_some()) {
                    (Bits::Six, ..) => by_shape::<D, true, 2, false, 6>(d, groups, tile),
                    (Bits::Three, ..) => by_shape::<D, true, 2, false, 3>(d, groups, tile),
                    (Bits::UTwo, _, true) => by_shape::<D, true, 2, true, 2>(d, groups, tile),
                    (Bits::UTwo, _, false) => by_shape::<D, true, 2, false, 2>(d, groups, tile),
                    (Bits::Four, true, _) => by_shape::<D, true, 1, false, 4>(d, groups, tile),
                    (Bits::Four, false, _) => by_shape::<D, false, 1, false, 4>(d, groups, tile),
                    (Bits::UFour, _, true) => by_shape::<D, true, 1, true, 4>(d, groups, tile),
                    (Bits::UFour, _, false) => by_shape::<D, true, 1, false, 4>(d, groups, tile),
                    (Bits::UFive, _, true) => by_shape::<D, true, 1, true, 5>(d, groups, tile),
                    (Bits::Five, ..) | (Bits::UFive, _, false) => by_shape::<D, true, 1, false, 5>(d, groups, tile),
                    (_, true, _) => by_shape::<D, true, 1, false, 8>(d, groups, tile),
                    (_, false, _) => by_shape::<D, false, 1, false, 8>(d, groups, tile),
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

/// Opens `count` blocks (whole stretches) at `from`.
///
/// # Safety
/// They are readable, and the opened ones writable.
#[inline(always)]
unsafe fn open_blocks<D: Dot, const FOUR: bool>(
    d: D,
    from: *const u8,
    count: usize,
    by_block: bool,
    opened: *mut u8,
    scales: *mut f32,
) {
    let mut from = from;
    for block in 0..count {
        // SAFETY: the caller's promise.
        unsafe {
            if by_block && block % 2 == 0 {
                for next in 0..2 {
                    let group = d.load_group_f16(from.add(next * 2 * GROUP).cast());
                    d.store_group(scales.add((block + next) * GROUP), group);
                }
                from = from.add(SCALES_BYTES);
            }
            let to = opened.add(block * OPEN_BYTES);
            for i in (0..if FOUR { 4 } else { 8 }).step_by(2) {
                let (a, b) = (d.load(from), d.load(from.add(64)));
                from = from.add(128);
                if FOUR {
                    d.store_opened(to.add(64 * i), d.low(a), d.low(b));
                    d.store_opened(to.add(64 * (i + 4)), d.high(a), d.high(b));
                } else {
                    d.store_opened(to.add(64 * i), d.bytes(a), d.bytes(b));
                }
            }
        }
    }
}

/// Opens a stretch of weights with steps for each 16 at `from`.
///
/// # Safety
/// It is readable, and what is opened writable.
#[inline(always)]
unsafe fn open_halves<D: Dot>(
    d: D,
    bits: Bits,
    from: *const u8,
    minima: Option<*const u8>,
    opened: *mut u8,
    scales: *mut f32,
) {
    // SAFETY: the caller's promise.
    unsafe {
        for (part, from) in std::iter::once(from).chain(minima).enumerate() {
            let row_scales = d.load_group(from.cast());
            for sub in 0..half_blocks::STRETCH / half_blocks::SUB {
                let steps = match bits {
                    Bits::UTwo => d.load_group_u4(from.add(half_blocks::nibbles(sub).0), half_blocks::nibbles(sub).1),
                    _ => d.load_group_i8(from.add(half_blocks::STEPS_AT + sub * GROUP).cast()),
                };
                d.store_group(scales.add(2 * part * LESS_AT + sub * GROUP), d.mul(steps, row_scales));
            }
        }
        for block in 0..half_blocks::STRETCH / BLOCK {
            let (from, to) = (
                from.add(half_blocks::blocks_at(bits) + block * half_blocks::block_bytes(bits)),
                opened.add(block * OPEN_BYTES),
            );
            if bits == Bits::UTwo {
                let lower = [d.load(from), d.load(from.add(64))];
                for quad in (0..8).step_by(2) {
                    let open = |quad: usize| d.two(lower[quad / 4], quad as u32 % 4);
                    d.store_opened(to.add(64 * quad), open(quad), open(quad + 1));
                }
                continue;
            }
            if bits == Bits::Three {
                let (lower, third) = ([d.load(from), d.load(from.add(64))], d.load(from.add(half_blocks::THIRD_AT)));
                for quad in (0..8).step_by(2) {
                    let open = |quad: usize| d.three(lower[quad / 4], third, quad as u32);
                    d.store_opened(to.add(64 * quad), open(quad), open(quad + 1));
                }
                continue;
            }
            let upper = [d.load(from.add(half_blocks::UPPER_AT)), d.load(from.add(half_blocks::UPPER_AT + 64))];
            for i in [0, 2] {
                let (a, b) = (d.load(from.add(64 * i)), d.load(from.add(64 * (i + 1))));
                let (at, next) = (i as u32, i as u32 + 1);
                let low = (d.six(d.low(a), upper[0], at), d.six(d.low(b), upper[0], next));
                let high = (d.six(d.high(a), upper[1], at), d.six(d.high(b), upper[1], next));
                d.store_opened(to.add(64 * i), low.0, low.1);
                d.store_opened(to.add(64 * (i + 4)), high.0, high.1);
            }
        }
    }
}

/// Opens a stretch of weights with steps for each block at `from`, and their minima if there are any.
///
/// # Safety
/// It is readable, and what is opened writable.
#[inline(always)]
unsafe fn open_k_blocks<D: Dot>(
    d: D,
    bits: Bits,
    from: *const u8,
    minima: Option<*const u8>,
    opened: *mut u8,
    scales: *mut f32,
) {
    // SAFETY: the caller's promise.
    unsafe {
        for (part, from) in std::iter::once(from).chain(minima).enumerate() {
            let row_scales = d.load_group(from.cast());
            for block in 0..k_blocks::BLOCKS {
                let steps = d.load_group_i8(from.add(k_blocks::STEPS_AT + block * GROUP).cast());
                d.store_group(scales.add(part * LESS_AT + block * GROUP), d.mul(steps, row_scales));
            }
        }
        let bytes = k_blocks::block_bytes(bits);
        for block in 0..k_blocks::BLOCKS {
            let (from, to) = (from.add(k_blocks::BLOCKS_AT + block * bytes), opened.add(block * OPEN_BYTES));
            let upper = d.load(if bits == Bits::UFive { from.add(k_blocks::NIBBLES) } else { from });
            let open = |weights, quad: usize| match bits {
                Bits::UFive => d.five(weights, upper, quad as u32),
                Bits::Levels => d.levels(weights, &k_blocks::LEVELS),
                _ => weights,
            };
            for i in [0, 2] {
                let (a, b) = (d.load(from.add(64 * i)), d.load(from.add(64 * (i + 1))));
                d.store_opened(to.add(64 * i), open(d.low(a), i), open(d.low(b), i + 1));
                d.store_opened(to.add(64 * (i + 4)), open(d.high(a), i + 4), open(d.high(b), i + 5));
            }
        }
    }
}

/// The operands of a register tile.
#[derive(Clone, Copy)]
struct Tile {
    /// Opened weights, groups `OPEN_BLOCKS * OPEN_BYTES` apart.
    opened: *const u8,
    /// Opened scales, groups [`GROUP_SCALES`] apart.
    scales: *const f32,
    /// A panel, from its first block on.
    acts: *const u8,
    /// The first block.
    block0: usize,
    blocks: usize,
    bits: Bits,
    /// The panel's products, rows as wide as the groups, to add to.
    to: *mut f32,
}

/// # Safety
/// The operands have the shapes of [`Tile`], panels of the unit's rows; `groups` are at most those of `D::TILE`.
#[inline(always)]
unsafe fn by_shape<D: Dot, const BLOCK_SCALES: bool, const PARTS: usize, const LESS: bool, const BITS: u32>(
    d: D,
    groups: usize,
    t: Tile,
) {
    // SAFETY: the caller's promise; each arm is the unit's own shape.
    unsafe {
        match (D::TILE, groups) {
            ((4, 3), 3) => d.outline(TilePiece::<4, 3, BLOCK_SCALES, PARTS, LESS, BITS>(t)),
            ((4, 3), 2) => d.outline(TilePiece::<4, 2, BLOCK_SCALES, PARTS, LESS, BITS>(t)),
            ((4, _), _) => d.outline(TilePiece::<4, 1, BLOCK_SCALES, PARTS, LESS, BITS>(t)),
            _ => d.outline(TilePiece::<2, 1, BLOCK_SCALES, PARTS, LESS, BITS>(t)),
        }
    }
}

/// [`tile`] as a function of its own.
struct TilePiece<
    const R: usize,
    const G: usize,
    const BLOCK_SCALES: bool,
    const PARTS: usize,
    const LESS: bool,
    const BITS: u32,
>(Tile);

impl<const R: usize, const G: usize, const BLOCK_SCALES: bool, const PARTS: usize, const LESS: bool, const BITS: u32>
    DotPiece for TilePiece<R, G, BLOCK_SCALES, PARTS, LESS, BITS>
{
    #[inline(always)]
    unsafe fn run<D: Dot>(self, d: D) {
        // SAFETY: the caller's promise.
        unsafe { tile::<D, R, G, BLOCK_SCALES, PARTS, LESS, BITS>(d, self.0) }
    }
}

/// `R` rows of a panel times `G` groups, added to the products; blocks have `PARTS` scales per row, 1 or 2, and minima if `LESS`.
/// Weights are signed if they have 8 `BITS`, and unsigned otherwise.
///
/// # Safety
/// The operands have the shapes of [`Tile`], panels of `R` rows.
#[inline(always)]
unsafe fn tile<
    D: Dot,
    const R: usize,
    const G: usize,
    const BLOCK_SCALES: bool,
    const PARTS: usize,
    const LESS: bool,
    const BITS: u32,
>(
    d: D,
    t: Tile,
) {
    let place = |r: usize, g: usize| t.to.wrapping_add((r * G + g) * GROUP);
    // Sums of all blocks stay in registers where there are enough: to store them for each takes as long as a fifth of the products.
    let stay = const { D::TILE.1 >= 3 };
    let mut all = [[d.zero(); G]; R];
    if stay {
        for (r, all) in all.iter_mut().enumerate() {
            for (g, all) in all.iter_mut().enumerate() {
                // SAFETY: the panel's products are there.
                *all = unsafe { d.load_group(place(r, g)) };
            }
        }
    }
    for at in 0..t.blocks * PARTS {
        let (block, part) = (at / PARTS, at % PARTS);
        let record = Record::at(t.acts, R, t.block0 + block);
        let opened = t.opened.wrapping_add(block * OPEN_BYTES);
        // SAFETY: the block exists in all operands.
        unsafe {
            let mut own = ZEROS;
            let starts = match PARTS {
                2 if t.bits == Bits::Three => {
                    let start = |r| *record.start_of_half(part, r) / halves::THREES_IN_SIX;
                    own[..R].iter_mut().enumerate().for_each(|(r, to)| *to = start(r));
                    own.as_ptr()
                }
                2 if t.bits == Bits::UTwo => ZEROS.as_ptr(),
                2 => record.start_of_half(part, 0),
                _ => match t.bits {
                    Bits::Four => record.start4(0),
                    Bits::Five => {
                        own[..R].iter_mut().enumerate().for_each(|(r, to)| *to = 2 * *record.start4(r));
                        own.as_ptr()
                    }
                    Bits::UFour | Bits::UFive => ZEROS.as_ptr(),
                    _ => record.start8(0),
                },
            };
            let (first, quads) = (part * 4, BLOCK / 4 / PARTS);
            let opened = opened.add(64 * first);
            let acts = record.quad(first, 0);
            let sums = match const { few_quads(BITS) } {
                8 => d.products::<R, G, 8>(opened, OPEN_BLOCKS * OPEN_BYTES, acts, quads, starts),
                4 => d.products::<R, G, 4>(opened, OPEN_BLOCKS * OPEN_BYTES, acts, quads, starts),
                2 => d.products::<R, G, 2>(opened, OPEN_BLOCKS * OPEN_BYTES, acts, quads, starts),
                _ => d.products::<R, G, 0>(opened, OPEN_BLOCKS * OPEN_BYTES, acts, quads, starts),
            };
            let scales: [D::Group; G] = std::array::from_fn(|g| {
                if BLOCK_SCALES { d.load_group(t.scales.add(g * GROUP_SCALES + at * GROUP)) } else { d.zero() }
            });
            let taken: [D::Group; G] = std::array::from_fn(|g| {
                if LESS {
                    d.load_group(t.scales.add(g * GROUP_SCALES + PARTS * LESS_AT + at * GROUP))
                } else {
                    d.zero()
                }
            });
            for (r, (sums, all)) in sums.into_iter().zip(&mut all).enumerate() {
                let x = *record.scale(r);
                let less = match PARTS {
                    2 => less_of_half(x, *record.start_of_half(part, r)),
                    _ => *record.less(r),
                };
                for (g, ((sum, w), all)) in sums.into_iter().zip(scales).zip(all).enumerate() {
                    let (sum, before) = (d.to_float(sum), if stay { *all } else { d.load_group(place(r, g)) });
                    *all =
                        if BLOCK_SCALES { d.fma(sum, d.mul_splat(w, x), before) } else { d.fma_splat(sum, x, before) };
                    if LESS {
                        *all = d.fma_splat(taken[g], less, *all);
                    }
                    if !stay {
                        d.store_group(place(r, g), *all);
                    }
                }
            }
        }
    }
    if stay {
        for (r, all) in all.into_iter().enumerate() {
            for (g, all) in all.into_iter().enumerate() {
                // SAFETY: as above.
                unsafe { d.store_group(place(r, g), all) };
            }
        }
    }
}
