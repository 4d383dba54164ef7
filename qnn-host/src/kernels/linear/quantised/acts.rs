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
use super::super::super::simd::dot::{BLOCK, Dot};
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
    /// `[row][32]`, for tiles.
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "only AMX has products of bytes here"))]
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
    let real = job.m.saturating_sub(row0).min(rows);
    // A record's lines are written one after the other.
    for block in blocks {
        for row in 0..rows {
            let mut numbers = [0.0f32; BLOCK];
            let mut quantised = [0i8; BLOCK];
            let from = (block * BLOCK).min(job.k);
            let count = if row < real { BLOCK.min(job.k - from) } else { 0 };
            let at = if count > 0 { (row0 + row) * job.k + from } else { 0 };
            // SAFETY: `count` numbers of the row are left, and a whole block is read where it lies or from the copy; a record has
            // space for each of its fields.
            unsafe {
                let mut x = job.x.as_ptr().add(at);
                if count < BLOCK {
                    numbers[..count].copy_from_slice(&job.x[at..at + count]);
                    x = numbers.as_ptr();
                }
                let (scale, sum) = d.quantize(x, quantised.as_mut_ptr());
                let record = Record::at(to, rows, block);
                match order {
                    Order::Rows => record.row(row).cast_mut().cast::<[i8; BLOCK]>().write(quantised),
                    Order::Quads | Order::Based => {
                        for (quad, four) in quantised.as_chunks::<4>().0.iter().enumerate() {
                            record.quad(quad, row).cast_mut().cast::<[i8; 4]>().write(*four);
                        }
                    }
                }
                let base = if order == Order::Based { base_of(scale) } else { 0.0 };
                record.scale(row).cast_mut().write(if order == Order::Based { base } else { scale });
                let starts = if by_halves {
                    let first = quantised[..BLOCK / 2].iter().map(|&value| i32::from(value)).sum::<i32>();
                    [-half_blocks::OFFSET * first, -half_blocks::OFFSET * (sum - first)]
                } else {
                    [-8 * sum, -D::BYTE_OFFSET * sum]
                };
                let [first, second] = starts.map(|start| start.wrapping_add(base.to_bits().cast_signed()));
                record.start4(row).cast_mut().write(first);
                record.start8(row).cast_mut().write(second);
                record.less(row).cast_mut().write(-(scale * sum as f32));
            }
        }
    }
}
