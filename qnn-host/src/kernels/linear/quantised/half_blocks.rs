//! Weights of 6, 3 or 2 bits: products with few rows of `X`, which [`super::direct`] uses, and what [`super::tiled`] opens for many.

use std::ops::Range;

use super::super::super::half_blocks::{
    OFFSET, OFFSET_OF_THREE, STEPS_AT, STRETCH, SUB, THIRD_AT, UPPER_AT, block_bytes, blocks_at, nibbles, stretch_bytes,
};
use super::super::super::packed::Bits;
use super::super::super::simd::Simd;
use super::super::super::simd::dot::{Dot, DotPiece, GROUP, few_quads};
use super::super::super::stream::{Ahead, FAR, ask, evenly};
use super::super::finish::MAX_CHUNK;
use super::BLOCK;
use super::acts::{Record, less_of_half};
use super::tiled::{Form, LESS_AT, OPEN_BYTES};
use super::written_out::written_out;

/// How often the start of sums with weights of 3 bits is in that with weights of 6.
pub(super) const THREES_IN_SIX: i32 = OFFSET / OFFSET_OF_THREE;

pub(super) const SIX: u8 = 0;
pub(super) const THREE: u8 = 1;
pub(super) const TWO: u8 = 2;

/// The bits that a number stands for.
const fn bits_of(kind: u8) -> Bits {
    match kind {
        SIX => Bits::Six,
        THREE => Bits::Three,
        _ => Bits::UTwo,
    }
}

/// One group of weights of a kind, less minima if `LESS`, times all rows of a panel: `to[row * MAX_CHUNK ..]` are the products of a row.
///
/// Safe to run while the group at `weights` and the panel of `rows` at `acts` (quantised for scales of 16) have `blocks` blocks, whole
/// stretches, and so have minima if `LESS`, and `to` has space.
pub(super) struct Group<const KIND: u8, const LESS: bool> {
    pub(super) weights: *const u8,
    pub(super) minima: Option<*const u8>,
    pub(super) acts: *const u8,
    pub(super) rows: usize,
    pub(super) blocks: usize,
    pub(super) to: *mut f32,
}

impl<const KIND: u8, const LESS: bool> DotPiece for Group<KIND, LESS> {
    #[inline(always)]
    unsafe fn run<D: Dot>(self, d: D) {
        // SAFETY: the caller's promise.
        unsafe {
            match self.rows {
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
        const BLOCKS: usize = STRETCH / BLOCK;
        /// Minima: as far ahead in columns, about.
        const MINIMA_AHEAD: usize = 2 * stretch_bytes(Bits::HalfMinima);
        let (bits, begin) = const { (bits_of(KIND), blocks_at(bits_of(KIND))) };
        let minima = self.minima.unwrap_or(self.weights);
        let ahead = Ahead::of_streams(FAR);
        let mut results = [d.zero(); R];
        for stretch in 0..self.blocks / BLOCKS {
            let start = self.weights.wrapping_add(stretch * stretch_bytes(bits));
            (0..begin).step_by(64).for_each(|at| ask(d.float(), start.wrapping_add(at), ahead));
            let less = minima.wrapping_add(stretch * stretch_bytes(Bits::HalfMinima));
            if LESS {
                let ask = |at: usize| d.float().prefetch_l2(less.wrapping_add(at + MINIMA_AHEAD));
                (0..stretch_bytes(Bits::HalfMinima)).step_by(64).for_each(ask);
            }
            // SAFETY: a stretch begins with its scales, also of minima if there are any.
            let (scales, units) =
                unsafe { (d.load_group(start.cast()), if LESS { d.load_group(less.cast()) } else { d.zero() }) };
            let first = stretch * BLOCKS;
            let stretch = Stretch { start, less, scales, units, ahead };
            for block in (0..BLOCKS).step_by(2) {
                let record = |block| Record::at(self.acts, rows, first + block);
                // SAFETY: the stretch and its blocks, an even number, exist in both operands, and in the minima.
                unsafe {
                    stretch.add_block::<R, KIND, LESS>(d, block, record(block), row, &mut results);
                    stretch.add_block::<R, KIND, LESS>(d, block + 1, record(block + 1), row, &mut results);
                }
            }
        }
        for (r, result) in results.into_iter().enumerate() {
            // SAFETY: the products have space.
            unsafe { d.store_group(self.to.add((row + r) * MAX_CHUNK), result) };
        }
    }
}

/// A stretch of a group: where it is, and its minima, with their scales.
struct Stretch<D: Dot> {
    start: *const u8,
    less: *const u8,
    scales: D::Group,
    units: D::Group,
    ahead: Ahead,
}

impl<D: Dot> Stretch<D> {
    /// Adds a block's products with rows `row .. row + R` to the results.
    ///
    /// # Safety
    /// The stretch has the block, and the record the rows.
    #[inline(always)]
    unsafe fn add_block<const R: usize, const KIND: u8, const LESS: bool>(
        &self,
        d: D,
        block: usize,
        record: Record,
        row: usize,
        results: &mut [D::Group; R],
    ) {
        let (begin, bytes) = const { (blocks_at(bits_of(KIND)), block_bytes(bits_of(KIND))) };
        // Quads of a half whose products are added up in few bits.
        let run = if KIND == SIX { const { few_quads(6) } } else { 4 };
        let at = begin + block * bytes;
        let evenly = evenly(R);
        let ask_line = |line: usize| ask(d.float(), self.start.wrapping_add(at + 64 * line), self.ahead);
        if !evenly {
            (0..bytes / 64).for_each(ask_line);
        }
        // SAFETY: the caller's promise.
        unsafe {
            // Three bits: lower two of each half, and the third bits; two bits: the former.
            let lower: [D::Weights; 4] =
                std::array::from_fn(|i| d.load(self.start.add(at + 64 * if KIND == SIX { i } else { i % 2 })));
            let third = d.load(self.start.add(at + if KIND == THREE { THIRD_AT } else { 0 }));
            written_out!(HALF in [0 1] {
                let upper = d.load(self.start.add(at + if KIND == SIX { UPPER_AT + 64 * HALF } else { 0 }));
                let mut sums: [D::Sums; R] = std::array::from_fn(|r| {
                    let start = *record.start_of_half(HALF, row + r);
                    d.sums(match KIND {
                        SIX => start,
                        THREE => start / THREES_IN_SIX,
                        _ => 0,
                    })
                });
                let mut begun = sums;
                written_out!(I in [0 1 2 3] {
                    const QUAD: usize = 4 * HALF + I;
                    if I.is_multiple_of(run) {
                        begun = sums;
                        sums = begun.map(|sum| d.begin_few(sum));
                    }
                    if evenly && QUAD < bytes / 64 {
                        ask_line(QUAD);
                    }
                    let w = match KIND {
                        SIX => {
                            let lower = if HALF == 0 { d.low(lower[I]) } else { d.high(lower[I]) };
                            d.six(lower, upper, I as u32)
                        }
                        THREE => d.three(lower[HALF], third, QUAD as u32),
                        _ => d.two(lower[HALF], I as u32),
                    };
                    d.dot_few_rows(&mut sums, w, record.quad(QUAD, row));
                    if I % run == run - 1 {
                        sums = std::array::from_fn(|r| d.end_few(begun[r], sums[r]));
                    }
                });
                // In the order of the tiles for many rows: a row's bits do not depend on how many there are.
                let sub = 2 * block + HALF;
                let steps = match KIND {
                    TWO => d.load_group_u4(self.start.add(nibbles(sub).0), nibbles(sub).1),
                    _ => d.load_group_i8(self.start.add(STEPS_AT + sub * GROUP).cast()),
                };
                let scales = d.mul(steps, self.scales);
                let taken = match LESS {
                    true => d.mul(d.load_group_u4(self.less.add(nibbles(sub).0), nibbles(sub).1), self.units),
                    false => d.zero(),
                };
                for (r, (result, sum)) in results.iter_mut().zip(sums).enumerate() {
                    *result = d.fma(d.to_float(sum), d.mul_splat(scales, *record.scale(row + r)), *result);
                    if LESS {
                        let less = less_of_half(*record.scale(row + r), *record.start_of_half(HALF, row + r));
                        *result = d.fma_splat(taken, less, *result);
                    }
                }
            });
        }
    }
}

/// Opens blocks `part` of a stretch of weights with steps for each 16 at `from`; with the first one, the stretch's scales and minima.
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
            for sub in 0..STRETCH / SUB {
                let steps = match bits {
                    Bits::UTwo => d.load_group_u4(from.add(nibbles(sub).0), nibbles(sub).1),
                    _ => d.load_group_i8(from.add(STEPS_AT + sub * GROUP).cast()),
                };
                d.store_group(scales.add(2 * which * LESS_AT + sub * GROUP), d.mul(steps, row_scales));
            }
        }
        for block in part {
            let (from, to) = (from.add(blocks_at(bits) + block * block_bytes(bits)), opened.add(block * OPEN_BYTES));
            if bits == Bits::UTwo {
                let lower = [d.load(from), d.load(from.add(64))];
                for quad in (0..8).step_by(2) {
                    let (lower, at) = (lower[quad / 4], quad as u32 % 4);
                    form.keep(d, to.add(64 * quad), d.two(lower, at), d.two(lower, at + 1));
                }
                continue;
            }
            if bits == Bits::Three {
                let (lower, third) = ([d.load(from), d.load(from.add(64))], d.load(from.add(THIRD_AT)));
                for quad in (0..8).step_by(2) {
                    let (lower, at) = (lower[quad / 4], quad as u32);
                    form.keep(d, to.add(64 * quad), d.three(lower, third, at), d.three(lower, third, at + 1));
                }
                continue;
            }
            let upper = [d.load(from.add(UPPER_AT)), d.load(from.add(UPPER_AT + 64))];
            for i in [0, 2] {
                let (a, b) = (d.load(from.add(64 * i)), d.load(from.add(64 * (i + 1))));
                let (at, next) = (i as u32, i as u32 + 1);
                let low = (d.six(d.low(a), upper[0], at), d.six(d.low(b), upper[0], next));
                let high = (d.six(d.high(a), upper[1], at), d.six(d.high(b), upper[1], next));
                form.keep(d, to.add(64 * i), low.0, low.1);
                form.keep(d, to.add(64 * (i + 4)), high.0, high.1);
            }
        }
    }
}
