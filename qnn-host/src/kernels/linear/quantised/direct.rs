//! Few rows of `X`: packed weights stream from memory through registers once.

use std::mem::MaybeUninit;

use super::super::super::packed::{Bits, Packed, SCALES_BYTES, Scales};
use super::super::super::simd::dot::{Dot, DotPiece, GROUP};
use super::super::super::stream::{Ahead, FAR, FAR_OF_WIDE, ask};
use super::super::Job;
use super::super::finish::{Affine, MAX_CHUNK, finish_rows};
use super::acts::{Record, len_bytes};
use super::tasks::{Task, TaskSizes, tasks};
use super::{DIRECT_PANELS, DIRECT_ROWS, LINE, few_bits, half_blocks, k_blocks};
use crate::pool::Worker;

/// Bytes of weights that a thread takes at the end, about.
const TASK_BYTES: usize = 64 << 10;

/// Outputs that a thread takes at the end, when the last ones are shared; before, as many such pieces as fit are one task.
fn sizes_of(weights: Packed<'_>) -> TaskSizes {
    let least = (TASK_BYTES / weights.group_bytes()).clamp(1, MAX_CHUNK / GROUP) * GROUP;
    TaskSizes { least, most: MAX_CHUNK / least * least }
}

/// # Safety
/// As [`super::run`]; `acts` are up to [`DIRECT_PANELS`] panels of `rows` (a power of two) quantised rows, complete.
#[inline(always)]
pub(super) unsafe fn run<D: Dot>(
    d: D,
    worker: Worker<'_>,
    job: &Job<'_>,
    by_halves: bool,
    acts: *const u8,
    rows: usize,
    blocks: usize,
) {
    for Task { layer, weights, n0, count } in tasks(worker, job, by_halves, sizes_of) {
        let mut main = [const { MaybeUninit::<f32>::uninit() }; DIRECT_PANELS * DIRECT_ROWS * MAX_CHUNK];
        let mut gate = [const { MaybeUninit::<f32>::uninit() }; DIRECT_PANELS * DIRECT_ROWS * MAX_CHUNK];
        let (main, gate) = (main.as_mut_ptr().cast::<f32>(), gate.as_mut_ptr().cast::<f32>());
        let panels = job.m.div_ceil(rows);
        // SAFETY: the chunk lies inside the layer, and this thread alone took it; products of whole panels with whole
        // groups fit, and are written before they are read (those of a gate only if there is one).
        unsafe {
            if let Some(g) = layer.gate.and_then(|g| g.weights.packed()) {
                products(d, g, n0, count, acts, [panels, rows], blocks, gate);
            }
            products(d, weights, n0, count, acts, [panels, rows], blocks, main);
            let affine = Affine::of(layer, n0, count);
            finish_rows(d.float(), layer, &affine, 0..job.m, n0, count, main, gate);
        }
    }
}

/// `to[row * MAX_CHUNK + i]` = row `row` of all panels times weights `n0 + i`, for whole groups.
///
/// # Safety
/// As [`run`]; `n0` begins a group.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
unsafe fn products<D: Dot>(
    d: D,
    w: Packed<'_>,
    n0: usize,
    count: usize,
    acts: *const u8,
    [panels, rows]: [usize; 2],
    blocks: usize,
    to: *mut f32,
) {
    let packing = w.packing();
    // A group is cached while all panels are multiplied with it.
    for (i, panel) in (0..count).step_by(GROUP).flat_map(|i| (0..panels).map(move |panel| (i, panel))) {
        let weights = w.group((n0 + i) / GROUP);
        let minima = w.minima((n0 + i) / GROUP);
        // SAFETY: the group has `blocks` blocks, as the acts; the products fit.
        unsafe {
            let acts = acts.add(len_bytes(panel * rows, blocks));
            let to = to.add(panel * rows * MAX_CHUNK + i);
            macro_rules! by_halves {
                ($kind:ident, $less:literal) => {
                    d.outline(half_blocks::Group::<{ half_blocks::$kind }, $less> {
                        weights,
                        minima,
                        acts,
                        rows,
                        blocks,
                        to,
                    })
                };
            }
            macro_rules! few {
                ($kind:ident) => {
                    d.outline(few_bits::Group::<{ few_bits::$kind }> { weights, acts, rows, blocks, to })
                };
            }
            match (packing.bits, packing.scales) {
                (Bits::Six, _) => by_halves!(SIX, false),
                (Bits::Three, _) => by_halves!(THREE, false),
                (Bits::UTwo, _) if minima.is_some() => by_halves!(TWO, true),
                (Bits::UTwo, _) => by_halves!(TWO, false),
                (Bits::HalfMinima, _) => unreachable!("minima are no weights"),
                (Bits::UFour | Bits::UFive | Bits::Levels | Bits::Minima, _) => {
                    k_blocks::run(d, packing.bits, k_blocks::Operands { weights, minima, acts, rows, blocks, to });
                }
                (Bits::Five, _) => few!(FIVE),
                (Bits::Nonlinear, _) => few!(NONLINEAR),
                (Bits::FloatFour, _) => few!(FLOAT_FOUR),
                (Bits::Four, Scales::Block) => d.outline(Group::<true, true> { weights, acts, rows, blocks, to }),
                (Bits::Eight, Scales::Block) => d.outline(Group::<false, true> { weights, acts, rows, blocks, to }),
                (Bits::Four, Scales::Row) => d.outline(Group::<true, false> { weights, acts, rows, blocks, to }),
                (Bits::Eight, Scales::Row) => d.outline(Group::<false, false> { weights, acts, rows, blocks, to }),
            }
        }
    }
}

/// One group of weights times all rows of a panel: `to[row * MAX_CHUNK ..]` are the products of a row.
///
/// Safe to run while the group at `weights` and the panel of `rows` at `acts` have `blocks` blocks (an even number), and `to`
/// has space.
struct Group<const FOUR: bool, const BLOCK_SCALES: bool> {
    weights: *const u8,
    acts: *const u8,
    rows: usize,
    blocks: usize,
    to: *mut f32,
}

impl<const FOUR: bool, const BLOCK_SCALES: bool> DotPiece for Group<FOUR, BLOCK_SCALES> {
    #[inline(always)]
    unsafe fn run<D: Dot>(self, d: D) {
        let Self { weights, acts, rows, blocks, to } = self;
        // Registers hold sums and results of this number of rows; more rows take further passes over a group that is then cached.
        // SAFETY: the caller's promise.
        unsafe {
            match rows {
                1 => group::<D, 1, FOUR, BLOCK_SCALES>(d, weights, acts, 1, 0, blocks, to),
                2 => group::<D, 2, FOUR, BLOCK_SCALES>(d, weights, acts, 2, 0, blocks, to),
                4 if D::TILE.1 >= 3 => group::<D, 4, FOUR, BLOCK_SCALES>(d, weights, acts, 4, 0, blocks, to),
                8 if D::TILE.1 >= 3 => group::<D, 8, FOUR, BLOCK_SCALES>(d, weights, acts, 8, 0, blocks, to),
                _ => {
                    for row in (0..rows).step_by(2) {
                        group::<D, 2, FOUR, BLOCK_SCALES>(d, weights, acts, rows, row, blocks, to);
                    }
                }
            }
        }
    }
}

/// One group of weights times rows `row .. row + R` of a panel of `rows`.
///
/// # Safety
/// The group at `weights` and the panel at `acts` have `blocks` blocks (an even number); `to[row * MAX_CHUNK ..]` has space for
/// a group.
#[inline(always)]
unsafe fn group<D: Dot, const R: usize, const FOUR: bool, const BLOCK_SCALES: bool>(
    d: D,
    weights: *const u8,
    acts: *const u8,
    rows: usize,
    row: usize,
    blocks: usize,
    to: *mut f32,
) {
    let block_bytes = if FOUR { 256 } else { 512 };
    // Bytes are asked for alike on every CPU: on Zen 4 they come no faster unasked, and slower when asked for far alone.
    let ahead = match (FOUR, R) {
        (true, 1) => Ahead::of_one_stream(FAR),
        (true, _) => Ahead::of_streams(FAR),
        (false, _) => Ahead::twice(FAR_OF_WIDE),
    };
    let mut results = [d.zero(); R];
    let mut at = if BLOCK_SCALES { weights } else { weights.wrapping_add(SCALES_BYTES) };
    // Written out for both blocks of a stretch: with a branch between them weights come a tenth slower.
    for block in (0..blocks).step_by(2) {
        let scales = at;
        // SAFETY: a stretch of two blocks, their scales before them, exists in both.
        unsafe {
            if BLOCK_SCALES {
                ask(d.float(), at, ahead);
                at = at.add(SCALES_BYTES);
            }
            let record = Record::at(acts, rows, block);
            add_block::<D, R, FOUR, BLOCK_SCALES>(d, at, scales, record, row, ahead, &mut results);
            let (at, scales) = (at.add(block_bytes), scales.add(2 * GROUP));
            let record = Record::at(acts, rows, block + 1);
            add_block::<D, R, FOUR, BLOCK_SCALES>(d, at, scales, record, row, ahead, &mut results);
        }
        at = at.wrapping_add(2 * block_bytes);
    }
    for (r, mut result) in results.into_iter().enumerate() {
        // SAFETY: a group with scales by row begins with them; the products have space.
        unsafe {
            if !BLOCK_SCALES {
                result = d.mul(result, d.load_group(weights.cast()));
            }
            d.store_group(to.add((row + r) * MAX_CHUNK), result);
        }
    }
}

/// Adds a block's products with rows `row .. row + R` to the results.
///
/// # Safety
/// The block is at `weights`, its scales, if it has such, at `scales`; the record has the rows.
#[inline(always)]
unsafe fn add_block<D: Dot, const R: usize, const FOUR: bool, const BLOCK_SCALES: bool>(
    d: D,
    weights: *const u8,
    scales: *const u8,
    record: Record,
    row: usize,
    ahead: Ahead,
    results: &mut [D::Group; R],
) {
    // SAFETY: the caller's promise.
    unsafe {
        let starts: [D::Sums; R] = std::array::from_fn(|r| {
            let start = if FOUR { record.start4(row + r) } else { record.start8(row + r) };
            d.sums(*start)
        });
        let mut sums = if FOUR { std::array::from_fn(|r| d.begin_few(starts[r])) } else { starts };
        for i in 0..if FOUR { 4 } else { 8 } {
            let at = weights.add(4 * LINE * i);
            ask(d.float(), at, ahead);
            let loaded = d.load(at);
            if FOUR {
                let (low, high) = (d.low(loaded), d.high(loaded));
                d.dot_few_rows(&mut sums, low, record.quad(i, row));
                d.dot_few_rows(&mut sums, high, record.quad(i + 4, row));
            } else {
                d.dot_rows(&mut sums, d.bytes(loaded), record.quad(i, row));
            }
        }
        for (r, (result, sum)) in results.iter_mut().zip(sums).enumerate() {
            let sum = if FOUR { d.end_few(starts[r], sum) } else { sum };
            let (sum, scale) = (d.to_float(sum), *record.scale(row + r));
            *result = if BLOCK_SCALES {
                d.fma(sum, d.mul_splat(d.load_group_f16(scales.cast()), scale), *result)
            } else {
                d.fma_splat(sum, scale, *result)
            };
        }
    }
}
