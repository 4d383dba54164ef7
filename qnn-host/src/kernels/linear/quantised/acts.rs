//! Quantised rows of `X`.
//!
//! *Layout*: a panel of `R` rows is a record for each block of 32 columns:
//!
//! ```text
//! quads  8 x R x 4 signed bytes      [quad][row][4]; for tiles of bytes [row][32]
//! scales R x f32
//! starts R x i32, R x i32            -8 * sum of values, -BYTE_OFFSET * sum of values;
//!                                    with scales for each 16: -32 * sum of values of each half
//! sums   R x f32                     -scale * sum of values: what minima are multiplied with
//! ```
//!
//! In panels for register tiles whose sums have a base ([`Dot::BASED`]) that base is in the scale's place, and its bits are added to the
//! starts.
//!
//! Weights enter products as unsigned numbers, 4 (3 bits), 8 (4 bits), 16 (5 bits), 32 (6 bits) or, on some CPUs, 128 (8 bits) too large;
//! the starts of the sums make up for it. On tiles they are signed, and starts say no more than what minima of halves are multiplied with. Missing rows and columns are zeros.

use std::ops::Range;

use super::super::super::half_blocks;
use super::super::super::simd::act_scale::base_of;
use super::super::super::simd::dot::{BLOCK, Dot, FourBlocks, scatter_quads};
use super::super::Job;

/// Bytes of a record for each row.
const ROW_BYTES: usize = BLOCK + 4 + 4 + 4 + 4;

/// Bytes of `rows` rows (whole panels) of `blocks` blocks.
#[inline(always)]
pub(super) fn len_bytes(rows: usize, blocks: usize) -> usize {
    rows * blocks * ROW_BYTES
}

/// A record of a panel of `rows` rows.
#[derive(Clone, Copy)]
pub(super) struct Record {
    start: *const u8,
    rows: usize,
}

impl Record {
    /// Record `block` of the panel that begins at `panel`.
    #[inline(always)]
    pub(super) fn at(panel: *const u8, rows: usize, block: usize) -> Self {
        Self { start: panel.wrapping_add(block * rows * ROW_BYTES), rows }
    }

    /// The 32 quantised values of a row, in a panel for tiles.
    #[inline(always)]
    pub(super) fn row(&self, row: usize) -> *const i8 {
        self.start.wrapping_add(row * BLOCK).cast()
    }

    /// Four quantised values of a row.
    #[inline(always)]
    pub(super) fn quad(&self, quad: usize, row: usize) -> *const i8 {
        self.start.wrapping_add((quad * self.rows + row) * 4).cast()
    }

    /// A row's scale, or base.
    #[inline(always)]
    pub(super) fn scale(&self, row: usize) -> *const f32 {
        self.start.wrapping_add(self.rows * BLOCK + 4 * row).cast()
    }

    /// A row's start of sums with 4-bit weights.
    #[inline(always)]
    pub(super) fn start4(&self, row: usize) -> *const i32 {
        self.start.wrapping_add(self.rows * (BLOCK + 4) + 4 * row).cast()
    }

    /// A row's start of sums with 8-bit weights.
    #[inline(always)]
    pub(super) fn start8(&self, row: usize) -> *const i32 {
        self.start.wrapping_add(self.rows * (BLOCK + 8) + 4 * row).cast()
    }

    /// A row's sum, negative.
    #[inline(always)]
    pub(super) fn less(&self, row: usize) -> *const f32 {
        self.start.wrapping_add(self.rows * (BLOCK + 12) + 4 * row).cast()
    }

    /// A row's start of sums of one half of the block, where weights have a scale for each 16, in place of the others: as weights of 6 bits
    /// need it.
    #[inline(always)]
    pub(super) fn start_of_half(&self, half: usize, row: usize) -> *const i32 {
        if half == 0 { self.start4(row) } else { self.start8(row) }
    }
}

/// What minima of half a block are multiplied with, by a row's scale and its start of the half's sums: as [`Record::less`] for a block.
#[inline(always)]
pub(super) fn less_of_half(scale: f32, start_of_half: i32) -> f32 {
    const ONE: f32 = 1.0 / half_blocks::OFFSET as f32;
    // A division by a power of two is exact.
    scale * (start_of_half as f32 * ONE)
}

/// The order of a panel's quantised values.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// `[quad][row][4]`, for vectors.
    Quads,
    /// The same with bases, for register tiles that have them.
    Based,
    /// `[row][32]`, for tiles: AMX alone has products of bytes here.
    Rows,
}

/// Quantises blocks `blocks` of rows `row0 .. row0 + rows` into the panel at `to`, for weights with scales for each 16 (`by_halves`) or for others.
///
/// # Safety
/// `to` begins at a multiple of 4; the records of `blocks` are writable there, and no other thread uses them.
#[inline(always)]
pub(super) unsafe fn quantize<D: Dot>(
    d: D,
    job: &Job<'_>,
    row0: usize,
    rows: usize,
    blocks: Range<usize>,
    (order, by_halves): (Order, bool),
    to: *mut u8,
) {
    let mut copies = [[0.0f32; BLOCK]; 4];
    // A record's lines are written one after the other.
    for block in blocks {
        let record = Record::at(to, rows, block);
        if order == Order::Rows || !rows.is_multiple_of(4) {
            for row in 0..rows {
                // SAFETY: the caller's promise.
                unsafe {
                    let x = numbers_of(job, row0 + row, block, &mut copies[0]);
                    quantize_one(d, x, (order, by_halves), record, row);
                }
            }
            continue;
        }
        for row in (0..rows).step_by(4) {
            let mut x = [std::ptr::null(); 4];
            for (i, (x, copy)) in x.iter_mut().zip(&mut copies).enumerate() {
                *x = numbers_of(job, row0 + row + i, block, copy);
            }
            // SAFETY: a block of numbers for each row; the record has space for its quads and fields.
            unsafe {
                let quads = record.quad(0, row).cast_mut();
                let FourBlocks { scales, sums } = d.quantize_four(x, quads, 4 * rows);
                for i in 0..4 {
                    let sums = [sums[0][i], sums[1][i]];
                    write_fields::<D>(order, by_halves, record, row + i, scales[i], sums);
                }
            }
        }
    }
}

/// Quantises the block of numbers at `x` into row `row` of the record.
///
/// # Safety
/// They are readable; the record has the row.
#[inline(always)]
unsafe fn quantize_one<D: Dot>(d: D, x: *const f32, (order, by_halves): (Order, bool), record: Record, row: usize) {
    let mut values = [0i8; BLOCK];
    // SAFETY: the caller's promise; the record has space for each of its fields.
    unsafe {
        let (scale, sum) = d.quantize(x, values.as_mut_ptr());
        if order == Order::Rows {
            record.row(row).cast_mut().cast::<[i8; BLOCK]>().write(values);
        } else {
            scatter_quads(&values, record.quad(0, row).cast_mut(), 4 * record.rows);
        }
        let first = if by_halves { values[..BLOCK / 2].iter().map(|&value| i32::from(value)).sum() } else { 0 };
        write_fields::<D>(order, by_halves, record, row, scale, [first, sum - first]);
    }
}

/// The numbers of a block of a row of `X`, where they lie or, with zeros behind them where the block is not whole, in `copy`.
#[inline(always)]
fn numbers_of(job: &Job<'_>, row: usize, block: usize, copy: &mut [f32; BLOCK]) -> *const f32 {
    let from = (block * BLOCK).min(job.k);
    let count = if row < job.m { BLOCK.min(job.k - from) } else { 0 };
    let at = if count > 0 { row * job.k + from } else { 0 };
    if count == BLOCK {
        return job.x[at..at + BLOCK].as_ptr();
    }
    *copy = [0.0; BLOCK];
    copy[..count].copy_from_slice(&job.x[at..at + count]);
    copy.as_ptr()
}

/// Writes what follows a row's values, of which both halves have these sums.
///
/// # Safety
/// The record has space for each of its fields.
#[inline(always)]
unsafe fn write_fields<D: Dot>(
    order: Order,
    by_halves: bool,
    record: Record,
    row: usize,
    scale: f32,
    [first, second]: [i32; 2],
) {
    let sum = first + second;
    let base = if order == Order::Based { base_of(scale) } else { 0.0 };
    let starts = if by_halves {
        [-half_blocks::OFFSET * first, -half_blocks::OFFSET * second]
    } else {
        [-8 * sum, -D::BYTE_OFFSET * sum]
    };
    let [first, second] = starts.map(|start| start.wrapping_add(base.to_bits().cast_signed()));
    // SAFETY: the caller's promise.
    unsafe {
        record.scale(row).cast_mut().write(if order == Order::Based { base } else { scale });
        record.start4(row).cast_mut().write(first);
        record.start8(row).cast_mut().write(second);
        record.less(row).cast_mut().write(-(scale * sum as f32));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::kernels::isa::dot_fn;
    use crate::kernels::testing::{isas, numbers};
    use crate::testing::cases;

    /// Values, scales and sums of four blocks: together, and one after the other.
    type Quantised = [([[[i8; 4]; 4]; 8], [f32; 4], [i32; 4]); 2];

    dot_fn! {
        /// # Safety
        /// None.
        unsafe fn both_ways(x: &[f32], to: &mut Quantised) = both_ways_body
    }

    /// # Safety
    /// None.
    #[inline(always)]
    unsafe fn both_ways_body<D: Dot>(d: D, x: &[f32], to: &mut Quantised) {
        let [together, alone] = to;
        let blocks = x.as_chunks::<BLOCK>().0;
        // SAFETY: four blocks of numbers; eight quads of four rows.
        let four = unsafe {
            d.quantize_four(std::array::from_fn(|row| blocks[row].as_ptr()), together.0.as_mut_ptr().cast(), 16)
        };
        together.1 = four.scales;
        together.2 = std::array::from_fn(|row| four.sums[0][row] + four.sums[1][row]);
        for (row, block) in blocks.iter().enumerate() {
            let mut values = [0; BLOCK];
            // SAFETY: a block of numbers and of values.
            (alone.1[row], alone.2[row]) = unsafe { d.quantize(block.as_ptr(), values.as_mut_ptr()) };
            let first = values[..BLOCK / 2].iter().map(|&value| i32::from(value)).sum::<i32>();
            assert_eq!([four.sums[0][row], four.sums[1][row]], [first, alone.2[row] - first]);
            for (quad, values) in values.as_chunks::<4>().0.iter().enumerate() {
                alone.0[quad][row] = *values;
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(cases(64)))]
        #[test]
        fn four_blocks_at_once_have_the_bits_of_each(
            seed: u64,
            exponents in proptest::array::uniform4(-130i32..120),
            zeros in proptest::array::uniform4(proptest::bool::weighted(0.1)),
        ) {
            let mut x = numbers(4 * BLOCK, seed);
            for ((block, exponent), zero) in x.chunks_mut(BLOCK).zip(exponents).zip(zeros) {
                block.iter_mut().for_each(|x| *x = if zero { 0.0 } else { (f64::from(*x) * 2f64.powi(exponent)) as f32 });
            }
            for isa in isas() {
                let mut both = Quantised::default();
                // SAFETY: nothing is asked for.
                unsafe { both_ways(isa, &x, &mut both) };
                let [together, alone] = &both;
                prop_assert_eq!(together.0, alone.0, "{}", isa.name());
                prop_assert_eq!(together.1.map(f32::to_bits), alone.1.map(f32::to_bits), "{}", isa.name());
                prop_assert_eq!(together.2, alone.2, "{}", isa.name());
            }
        }
    }
}
