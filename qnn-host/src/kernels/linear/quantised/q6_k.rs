//! Few rows of `X` times weights of 6 or 3 bits, which [`super::direct`] uses for them.

use super::super::super::packed::Bits;
use super::super::super::q6_k::{
    BLOCKS_AT, OFFSET, OFFSET_OF_THREE, STEPS_AT, STRETCH, THIRD_AT, UPPER_AT, block_bytes, stretch_bytes,
};
use super::super::super::simd::Simd;
use super::super::super::simd::dot::{Dot, DotPiece, GROUP};
use super::super::finish::MAX_CHUNK;
use super::acts::Record;
use super::{AHEAD, BLOCK};

/// How often the start of sums with weights of 3 bits is in that with weights of 6.
pub(super) const THREES_IN_SIX: i32 = OFFSET / OFFSET_OF_THREE;

/// One group of weights, of 3 bits if `THREE`, times all rows of a panel: `to[row * MAX_CHUNK ..]` are the products of a row.
///
/// Safe to run while the group at `weights` and the panel of `rows` at `acts` (quantised for 6 bits) have `blocks` blocks, whole
/// stretches, and `to` has space.
pub(super) struct Group<const THREE: bool> {
    pub(super) weights: *const u8,
    pub(super) acts: *const u8,
    pub(super) rows: usize,
    pub(super) blocks: usize,
    pub(super) to: *mut f32,
}

impl<const THREE: bool> DotPiece for Group<THREE> {
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

impl<const THREE: bool> Group<THREE> {
    /// Rows `row .. row + R` of the panel's `rows`.
    ///
    /// # Safety
    /// As [`Group`]; the rows exist.
    #[inline(always)]
    unsafe fn times<D: Dot, const R: usize>(&self, d: D, rows: usize, row: usize) {
        const BLOCKS: usize = STRETCH / BLOCK;
        let bits = const { if THREE { Bits::Three } else { Bits::Six } };
        let bytes = const { block_bytes(if THREE { Bits::Three } else { Bits::Six }) };
        let mut results = [d.zero(); R];
        for stretch in 0..self.blocks / BLOCKS {
            let start = self.weights.wrapping_add(stretch * stretch_bytes(bits));
            let ask = |at: usize| d.float().prefetch_l2(start.wrapping_add(at + AHEAD));
            (0..BLOCKS_AT).step_by(64).for_each(ask);
            // SAFETY: a stretch begins with its scales.
            let row_scales = unsafe { d.load_group(start.cast()) };
            for block in 0..BLOCKS {
                let record = Record::at(self.acts, rows, stretch * BLOCKS + block);
                let at = BLOCKS_AT + block * bytes;
                (at..at + bytes).step_by(64).for_each(ask);
                // SAFETY: the stretch and its block exist in both operands.
                unsafe {
                    // Three bits: lower two of each half, and the third bits.
                    let lower: [D::Weights; 4] =
                        std::array::from_fn(|i| d.load(start.add(at + 64 * if THREE { i % 2 } else { i })));
                    let third = d.load(start.add(at + if THREE { THIRD_AT } else { 0 }));
                    for half in 0..2 {
                        let upper = d.load(start.add(at + if THREE { 0 } else { UPPER_AT + 64 * half }));
                        let mut sums: [D::Sums; R] = std::array::from_fn(|r| {
                            let start = *record.start6(half, row + r);
                            d.sums(if THREE { start / THREES_IN_SIX } else { start })
                        });
                        for i in 0..4 {
                            let w = if THREE {
                                d.three(lower[half], third, (4 * half + i) as u32)
                            } else {
                                let lower = if half == 0 { d.low(lower[i]) } else { d.high(lower[i]) };
                                d.six(lower, upper, i as u32)
                            };
                            for (r, sum) in sums.iter_mut().enumerate() {
                                *sum = d.dot(*sum, w, d.quad(record.quad(4 * half + i, row + r)));
                            }
                        }
                        // In the order of the tiles for many rows: a row's bits do not depend on how many there are.
                        let steps = d.load_group_i8(start.add(STEPS_AT + (2 * block + half) * GROUP).cast());
                        let scales = d.mul(steps, row_scales);
                        for (r, (result, sum)) in results.iter_mut().zip(sums).enumerate() {
                            *result = d.fma(d.to_float(sum), d.mul_splat(scales, *record.scale(row + r)), *result);
                        }
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
