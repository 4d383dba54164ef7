//! Weights of 5 bits, and levels and floats of 4, in blocks with one scale, as in Q5_0, IQ4_NL and MXFP4: products with few rows of `X`,
//! which [`super::direct`] uses, and what [`super::tiled`] opens for many.

use std::ops::Range;

use super::super::super::block_values::{NIBBLES, block_bytes, scale_bytes, table_of};
use super::super::super::packed::Bits;
use super::super::super::simd::dot::{Dot, DotPiece, GROUP, few_quads};
use super::super::super::stream::{Ahead, FAR, ask, evenly};
use super::super::finish::MAX_CHUNK;
use super::acts::Record;
use super::nibbles;
use super::tiled::{Form, OPEN_BYTES};
use super::written_out::written_out;

pub(super) const FIVE: u8 = 0;
pub(super) const NONLINEAR: u8 = 1;
pub(super) const FLOAT_FOUR: u8 = 2;

/// The bits that a number stands for.
const fn bits_of(kind: u8) -> Bits {
    match kind {
        FIVE => Bits::Five,
        NONLINEAR => Bits::Nonlinear,
        _ => Bits::FloatFour,
    }
}

/// Bytes of the scales of a stretch, two blocks.
const fn header(bits: Bits) -> usize {
    2 * GROUP * scale_bytes(bits)
}

/// The scales of block `block` of a stretch.
///
/// # Safety
/// The stretch is readable.
#[inline(always)]
unsafe fn load_scales<D: Dot>(d: D, bits: Bits, stretch: *const u8, block: usize) -> D::Group {
    // SAFETY: the stretch begins with the scales of its blocks.
    unsafe {
        let from = stretch.add(block * GROUP * scale_bytes(bits));
        match bits {
            Bits::FloatFour => d.load_group_exponents(from),
            _ => d.load_group_f16(from.cast()),
        }
    }
}

/// One group of weights of a kind times all rows of a panel: `to[row * MAX_CHUNK ..]` are the products of a row.
///
/// Safe to run while the group at `weights` and the panel of `rows` at `acts` have `blocks` blocks (an even number), and `to`
/// has space.
pub(super) struct Group<const KIND: u8> {
    pub(super) weights: *const u8,
    pub(super) acts: *const u8,
    pub(super) rows: usize,
    pub(super) blocks: usize,
    pub(super) to: *mut f32,
}

impl<const KIND: u8> DotPiece for Group<KIND> {
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

impl<const KIND: u8> Group<KIND> {
    /// Rows `row .. row + R` of the panel's `rows`.
    ///
    /// # Safety
    /// As [`Group`]; the rows exist.
    #[inline(always)]
    unsafe fn times<D: Dot, const R: usize>(&self, d: D, rows: usize, row: usize) {
        let bits = const { bits_of(KIND) };
        let (header, bytes) = const { (header(bits_of(KIND)), block_bytes(bits_of(KIND))) };
        let is_five = const { KIND == FIVE };
        let ahead = Ahead::of_streams(FAR);
        let mut results = [d.zero(); R];
        for stretch in 0..self.blocks / 2 {
            let start = self.weights.wrapping_add(stretch * (header + 2 * bytes));
            let ask_at = |at: usize| ask(d.float(), start.wrapping_add(at), ahead);
            (0..header).step_by(64).for_each(ask_at);
            for block in 0..2 {
                let record = Record::at(self.acts, rows, 2 * stretch + block);
                let at = header + block * bytes;
                let evenly = evenly(R);
                let first_line = if evenly { 4 } else { 0 };
                (at + 64 * first_line..at + bytes).step_by(64).for_each(ask_at);
                // SAFETY: the stretch begins with its scales; the block exists in both operands.
                unsafe {
                    let from = start.add(at);
                    let mut sums: [D::Sums; R] = std::array::from_fn(|r| {
                        d.sums(if is_five { 2 * *record.start4(row + r) } else { *record.start8(row + r) })
                    });
                    let upper = d.load(if is_five { from.add(NIBBLES) } else { from });
                    // A run of unsigned weights has two quads for each of these.
                    let run = const { few_quads(5) / 2 };
                    let mut begun = sums;
                    written_out!(I in [0 1 2 3] {
                        if is_five && I.is_multiple_of(run) {
                            begun = sums;
                            sums = begun.map(|sum| d.begin_few(sum));
                        }
                        if evenly {
                            ask_at(at + 64 * I);
                        }
                        let loaded = d.load(from.add(64 * I));
                        let (low, high) = (d.low(loaded), d.high(loaded));
                        if is_five {
                            d.dot_few_rows(&mut sums, d.five(low, upper, I as u32), record.quad(I, row));
                            d.dot_few_rows(&mut sums, d.five(high, upper, I as u32 + 4), record.quad(I + 4, row));
                        } else {
                            d.dot_rows(&mut sums, d.levels(low, table_of(bits)), record.quad(I, row));
                            d.dot_rows(&mut sums, d.levels(high, table_of(bits)), record.quad(I + 4, row));
                        }
                        if is_five && I % run == run - 1 {
                            sums = std::array::from_fn(|r| d.end_few(begun[r], sums[r]));
                        }
                    });
                    // In the order of the tiles for many rows: a row's bits do not depend on how many there are.
                    let scales = load_scales(d, bits, start, block);
                    for (r, (result, sum)) in results.iter_mut().zip(sums).enumerate() {
                        *result = d.fma(d.to_float(sum), d.mul_splat(scales, *record.scale(row + r)), *result);
                    }
                }
            }
        }
        for (r, result) in results.into_iter().enumerate() {
            // SAFETY: the products have space.
            unsafe { d.store_group(self.to.add((row + r) * MAX_CHUNK), result) };
        }
    }
}

/// Opens `count` blocks (whole stretches) at `from`, and their scales.
///
/// # Safety
/// They are readable, and what is opened writable, as [`super::tiled`] lays it out.
#[inline(always)]
pub(super) unsafe fn open<D: Dot>(
    d: D,
    form: impl Form<D>,
    bits: Bits,
    from: *const u8,
    part: Range<usize>,
    opened: *mut u8,
    scales: *mut f32,
) {
    let (header, bytes) = (header(bits), block_bytes(bits));
    for block in part {
        // SAFETY: the caller's promise.
        unsafe {
            let start = from.add(block / 2 * (header + 2 * bytes));
            d.store_group(scales.add(block * GROUP), load_scales(d, bits, start, block % 2));
            let (from, to) = (start.add(header + block % 2 * bytes), opened.add(block * OPEN_BYTES));
            nibbles::open_block(d, form, bits, from, to);
        }
    }
}
