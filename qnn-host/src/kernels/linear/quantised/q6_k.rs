//! Few rows of `X` times weights of 6 bits, which [`super::direct`] uses for them.

use super::super::super::q6_k::{BLOCK_BYTES, BLOCKS_AT, STEPS_AT, STRETCH, STRETCH_BYTES, UPPER_AT};
use super::super::super::simd::Simd;
use super::super::super::simd::dot::{Dot, DotPiece, GROUP, few_quads};
use super::super::finish::MAX_CHUNK;
use super::acts::Record;
use super::{AHEAD, BLOCK};

/// One group of weights times all rows of a panel: `to[row * MAX_CHUNK ..]` are the products of a row.
///
/// Safe to run while the group at `weights` and the panel of `rows` at `acts` (quantised for 6 bits) have `blocks` blocks, whole
/// stretches, and `to` has space.
pub(super) struct Group {
    pub(super) weights: *const u8,
    pub(super) acts: *const u8,
    pub(super) rows: usize,
    pub(super) blocks: usize,
    pub(super) to: *mut f32,
}

impl DotPiece for Group {
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

impl Group {
    /// Rows `row .. row + R` of the panel's `rows`.
    ///
    /// # Safety
    /// As [`Group`]; the rows exist.
    #[inline(always)]
    unsafe fn times<D: Dot, const R: usize>(&self, d: D, rows: usize, row: usize) {
        const BLOCKS: usize = STRETCH / BLOCK;
        let mut results = [d.zero(); R];
        for stretch in 0..self.blocks / BLOCKS {
            let start = self.weights.wrapping_add(stretch * STRETCH_BYTES);
            let ask = |at: usize| d.float().prefetch_l2(start.wrapping_add(at + AHEAD));
            (0..BLOCKS_AT).step_by(64).for_each(ask);
            // SAFETY: a stretch begins with its scales.
            let row_scales = unsafe { d.load_group(start.cast()) };
            for block in 0..BLOCKS {
                let record = Record::at(self.acts, rows, stretch * BLOCKS + block);
                let at = BLOCKS_AT + block * BLOCK_BYTES;
                (at..at + BLOCK_BYTES).step_by(64).for_each(ask);
                // SAFETY: the stretch and its block exist in both operands.
                unsafe {
                    let lower: [D::Weights; 4] = std::array::from_fn(|i| d.load(start.add(at + 64 * i)));
                    for half in 0..2 {
                        let upper = d.load(start.add(at + UPPER_AT + 64 * half));
                        let mut sums: [D::Sums; R] = std::array::from_fn(|r| d.sums(*record.start6(half, row + r)));
                        for pair in [0, 2] {
                            let begun = sums;
                            sums = sums.map(|sum| d.begin_few(sum));
                            for (i, lower) in lower.into_iter().enumerate().skip(pair).take(const { few_quads(6) }) {
                                let lower = if half == 0 { d.low(lower) } else { d.high(lower) };
                                let w = d.six(lower, upper, i as u32);
                                for (r, sum) in sums.iter_mut().enumerate() {
                                    *sum = d.dot_few(*sum, w, d.quad(record.quad(4 * half + i, row + r)));
                                }
                            }
                            sums = std::array::from_fn(|r| d.end_few(begun[r], sums[r]));
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
