//! Weights of 4 or 5 bits with two levels of scales and, where they have them, minima: products with few rows of `X`, which
//! [`super::direct`] uses, and what [`super::tiled`] opens for many. `X` times the minima is a sum of `X` over each block, known
//! beforehand, times one number.

use std::ops::Range;

use super::super::super::k_blocks::{BLOCKS, BLOCKS_AT, LEVELS, NIBBLES, STEPS_AT, block_bytes, stretch_bytes};
use super::super::super::packed::Bits;
use super::super::super::simd::Simd;
use super::super::super::simd::dot::{Dot, DotPiece, GROUP, few_quads};
use super::super::super::stream::{Ahead, FAR, ask, evenly};
use super::super::finish::MAX_CHUNK;
use super::acts::Record;
use super::nibbles;
use super::tiled::{Form, LESS_AT, OPEN_BYTES};
use super::written_out::written_out;

/// One group of weights and all rows of a panel.
#[derive(Clone, Copy)]
pub(super) struct Operands {
    pub(super) weights: *const u8,
    pub(super) minima: Option<*const u8>,
    pub(super) acts: *const u8,
    pub(super) rows: usize,
    /// Blocks of the panel; those of the weights are whole stretches.
    pub(super) blocks: usize,
    pub(super) to: *mut f32,
}

/// `to[row * MAX_CHUNK ..]` = the products of a row.
///
/// # Safety
/// The panel (quantised for other weights than those of 6 bits) has `blocks` blocks and the group at least as many, of these
/// bits; `to` has space.
#[inline(always)]
pub(super) unsafe fn run<D: Dot>(d: D, bits: Bits, operands: Operands) {
    // SAFETY: the caller's promise.
    unsafe {
        match (bits, operands.minima.is_some()) {
            (Bits::UFour, true) => d.outline(Group::<UFOUR, true>(operands)),
            (Bits::UFour, false) => d.outline(Group::<UFOUR, false>(operands)),
            (Bits::UFive, true) => d.outline(Group::<UFIVE, true>(operands)),
            (Bits::UFive, false) => d.outline(Group::<UFIVE, false>(operands)),
            (Bits::Levels, _) => d.outline(Group::<LEVEL, false>(operands)),
            (bits, _) => unreachable!("{bits:?} are no weights of this kind"),
        }
    }
}

const UFOUR: u8 = 0;
const UFIVE: u8 = 1;
const LEVEL: u8 = 2;

/// The bits that a number stands for.
const fn bits_of(kind: u8) -> Bits {
    match kind {
        UFOUR => Bits::UFour,
        UFIVE => Bits::UFive,
        _ => Bits::Levels,
    }
}

/// Weights of a kind, less minima if `LESS`. Safe to run as [`run`] is, with weights of that kind, and minima if `LESS`.
struct Group<const KIND: u8, const LESS: bool>(Operands);

impl<const KIND: u8, const LESS: bool> DotPiece for Group<KIND, LESS> {
    #[inline(always)]
    unsafe fn run<D: Dot>(self, d: D) {
        // SAFETY: the caller's promise.
        unsafe {
            match self.0.rows {
                1 => self.times::<D, 1>(d, 1, 0),
                2 => self.times::<D, 2>(d, 2, 0),
                4 if D::TILE.1 >= 3 => self.times::<D, 4>(d, 4, 0),
                8 if D::TILE.1 >= 3 => self.times::<D, 8>(d, 8, 0),
                rows => (0..rows).step_by(2).for_each(|row| self.times::<D, 2>(d, rows, row)),
            }
        }
    }
}

impl<const KIND: u8, const LESS: bool> Group<KIND, LESS> {
    /// Rows `row .. row + R` of the panel's `rows`.
    ///
    /// # Safety
    /// As [`Group`]; the rows exist.
    #[inline(always)]
    unsafe fn times<D: Dot, const R: usize>(&self, d: D, rows: usize, row: usize) {
        /// Minima: as far ahead in columns, about.
        const MINIMA_AHEAD: usize = 2 * BLOCKS_AT;
        let bits = const { bits_of(KIND) };
        let Operands { weights, minima, acts, blocks, to, .. } = self.0;
        let minima = minima.unwrap_or(weights);
        // With one row there is little to compute, except with fifth bits.
        let ahead = if R == 1 && KIND != UFIVE { Ahead::of_one_stream(FAR) } else { Ahead::of_streams(FAR) };
        let mut results = [d.zero(); R];
        for stretch in 0..blocks.div_ceil(BLOCKS) {
            let start = weights.wrapping_add(stretch * stretch_bytes(bits));
            let less = minima.wrapping_add(stretch * BLOCKS_AT);
            let ask_at = |at: usize| ask(d.float(), start.wrapping_add(at), ahead);
            (0..BLOCKS_AT).step_by(64).for_each(ask_at);
            if LESS && !ahead.is_nothing() {
                (0..BLOCKS_AT).step_by(64).for_each(|at| d.float().prefetch_l2(less.wrapping_add(at + MINIMA_AHEAD)));
            }
            // SAFETY: a stretch begins with its scales, also of minima if there are any.
            let (row_scales, row_units) =
                unsafe { (d.load_group(start.cast()), if LESS { d.load_group(less.cast()) } else { d.zero() }) };
            for block in 0..BLOCKS.min(blocks - stretch * BLOCKS) {
                let record = Record::at(acts, rows, stretch * BLOCKS + block);
                let at = BLOCKS_AT + block * block_bytes(bits);
                let evenly = evenly(R);
                let first_line = if evenly { 4 } else { 0 };
                (at + 64 * first_line..at + block_bytes(bits)).step_by(64).for_each(ask_at);
                // SAFETY: the stretch and its block exist in both operands, and in the minima.
                unsafe {
                    let from = start.add(at);
                    let mut sums: [D::Sums; R] =
                        std::array::from_fn(|r| d.sums(if KIND == LEVEL { *record.start8(row + r) } else { 0 }));
                    let upper = d.load(if KIND == UFIVE { from.add(NIBBLES) } else { from });
                    // A run of unsigned weights has two quads for each of these.
                    let run = if KIND == UFIVE { const { few_quads(5) / 2 } } else { const { few_quads(4) / 2 } };
                    let mut begun = sums;
                    written_out!(I in [0 1 2 3] {
                        if KIND != LEVEL && I.is_multiple_of(run) {
                            begun = sums;
                            sums = begun.map(|sum| d.begin_few(sum));
                        }
                        if evenly {
                            ask_at(at + 64 * I);
                        }
                        let loaded = d.load(from.add(64 * I));
                        for (quad, w) in [(I, d.low(loaded)), (I + 4, d.high(loaded))] {
                            match KIND {
                                UFIVE => {
                                    d.dot_few_rows(&mut sums, d.five(w, upper, quad as u32), record.quad(quad, row));
                                }
                                // In the compiler's own order, in which 4 rows take less.
                                LEVEL => {
                                    let w = d.levels(w, &LEVELS);
                                    for (r, sum) in sums.iter_mut().enumerate() {
                                        *sum = d.dot(*sum, w, d.quad(record.quad(quad, row + r)));
                                    }
                                }
                                _ => d.dot_few_rows(&mut sums, w, record.quad(quad, row)),
                            }
                        }
                        if KIND != LEVEL && I % run == run - 1 {
                            sums = std::array::from_fn(|r| d.end_few(begun[r], sums[r]));
                        }
                    });
                    // In the order of the tiles for many rows: a row's bits do not depend on how many there are.
                    let steps = d.load_group_i8(start.add(STEPS_AT + block * GROUP).cast());
                    let scales = d.mul(steps, row_scales);
                    let taken = if LESS {
                        d.mul(d.load_group_i8(less.add(STEPS_AT + block * GROUP).cast()), row_units)
                    } else {
                        d.zero()
                    };
                    for (r, (result, sum)) in results.iter_mut().zip(sums).enumerate() {
                        *result = d.fma(d.to_float(sum), d.mul_splat(scales, *record.scale(row + r)), *result);
                        if LESS {
                            *result = d.fma_splat(taken, *record.less(row + r), *result);
                        }
                    }
                }
            }
        }
        for (r, result) in results.into_iter().enumerate() {
            // SAFETY: the products have space.
            unsafe { d.store_group(to.add((row + r) * MAX_CHUNK), result) };
        }
    }
}

/// Opens blocks `part` of a stretch of weights with steps for each block at `from`; with the first one, the stretch's scales, and its minima if
/// there are any.
///
/// # Safety
/// It is readable, and what is opened writable.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
pub(super) unsafe fn open<D: Dot>(
    d: D,
    form: impl Form<D>,
    bits: Bits,
    from: *const u8,
    minima: Option<*const u8>,
    part: Range<usize>,
    opened: *mut u8,
    scales: *mut f32,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let scaled = std::iter::once(from).chain(minima).filter(|_| part.start == 0);
        for (which, from) in scaled.enumerate() {
            let row_scales = d.load_group(from.cast());
            for block in 0..BLOCKS {
                let steps = d.load_group_i8(from.add(STEPS_AT + block * GROUP).cast());
                d.store_group(scales.add(which * LESS_AT + block * GROUP), d.mul(steps, row_scales));
            }
        }
        let bytes = block_bytes(bits);
        for block in part {
            let (from, to) = (from.add(BLOCKS_AT + block * bytes), opened.add(block * OPEN_BYTES));
            nibbles::open_block(d, form, bits, from, to);
        }
    }
}
