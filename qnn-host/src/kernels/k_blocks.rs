//! Quantised values of 4 or 5 bits with two levels of scales, as in Q4_K, Q5_K and IQ4_XS, which these layouts keep bit for bit,
//! and the minima that the first two have besides.
//!
//! A weight is `value * step * scale`, less `minimum * unit`: a step -128..=127 and a minimum 0..=127 for each 32 columns, an f32
//! scale and an f32 unit for each 256. Values are 0..=15, 0..=31, or one of sixteen [`LEVELS`].
//!
//! *Layout*: sixteen rows form a group, 256 columns a stretch; missing columns have steps of 0, missing rows scales of 0. Minima are
//! a stream of their own, with 192 bytes for each stretch:
//!
//! ```text
//! stretch scales: 16 rows x f32
//!         steps: 8 blocks x 16 rows x i8
//!         block 0 .. block 7                        not in a stream of minima
//! block   4 pairs of quads x 16 rows x 4 bytes      lower 4 bits, or the level's number: quad i below, quad i + 4 above
//!         16 rows x 4 bytes                         5 bits only, the fifth: of quad i at bit i
//! ```

use super::half_blocks::{Unfit, factors};
use super::packed::Bits;
use super::simd::dot::{BLOCK, GROUP};

/// Columns of a stretch.
pub(crate) const STRETCH: usize = 256;
/// Blocks of a stretch; minima of a stretch.
pub(crate) const BLOCKS: usize = STRETCH / BLOCK;
/// Where a stretch's steps begin.
pub(super) const STEPS_AT: usize = 4 * GROUP;
/// Where its blocks begin; bytes of a stretch of minima.
pub(super) const BLOCKS_AT: usize = STEPS_AT + BLOCKS * GROUP;
/// Bytes of a block of 4 bits; where the fifth bits of a longer one begin.
pub(super) const NIBBLES: usize = 4 * 4 * GROUP;
/// What 4 bits stand for in IQ4_NL and IQ4_XS.
pub(crate) const LEVELS: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// Bytes of a block.
pub(super) const fn block_bytes(bits: Bits) -> usize {
    match bits {
        Bits::UFive => NIBBLES + 4 * GROUP,
        Bits::Minima => 0,
        _ => NIBBLES,
    }
}

/// Bytes of a stretch.
pub(super) const fn stretch_bytes(bits: Bits) -> usize {
    BLOCKS_AT + BLOCKS * block_bytes(bits)
}

/// Whether the layouts of this file hold such values.
pub(super) const fn are_of(bits: Bits) -> bool {
    matches!(bits, Bits::UFour | Bits::UFive | Bits::Levels | Bits::Minima)
}

/// Byte and shift of the lower bits of a column of a row inside a block, and those of its fifth bit.
fn value_at(row: usize, col: usize) -> ((usize, u32), (usize, u32)) {
    let (quad, lane) = (col / 4, 4 * row + col % 4);
    ((quad % 4 * 4 * GROUP + lane, if quad < 4 { 0 } else { 4 }), (NIBBLES + lane, quad as u32))
}

/// The bits that stand for a value.
fn code_of(bits: Bits, value: i8) -> Option<u8> {
    match bits {
        Bits::Levels => LEVELS.iter().position(|&level| level == value).map(|at| at as u8),
        Bits::UFive => u8::try_from(value).ok().filter(|&code| code < 32),
        _ => u8::try_from(value).ok().filter(|&code| code < 16),
    }
}

/// Whether values of these bits include this one.
pub(crate) fn holds(bits: Bits, value: i8) -> bool {
    if bits == Bits::Minima { value >= 0 } else { code_of(bits, value).is_some() }
}

/// Writes up to a stretch of row `row` of a group: its values, and the scale of each block; of minima those, and the one scale.
pub(super) fn write(bits: Bits, stretch: &mut [u8], row: usize, values: &[i8], scales: &[f32]) -> Result<(), Unfit> {
    if bits == Bits::Minima {
        stretch[4 * row..4 * row + 4].copy_from_slice(&scales[0].to_le_bytes());
        for (block, &minimum) in values.iter().enumerate() {
            if minimum < 0 {
                return Err(Unfit::Value(block));
            }
            stretch[STEPS_AT + block * GROUP + row] = minimum.cast_unsigned();
        }
        return Ok(());
    }
    let (scale, steps) = factors(scales).ok_or(Unfit::Scales)?;
    stretch[4 * row..4 * row + 4].copy_from_slice(&scale.to_le_bytes());
    for (block, step) in steps.iter().take(BLOCKS).enumerate() {
        stretch[STEPS_AT + block * GROUP + row] = step.cast_unsigned();
    }
    for (i, &value) in values.iter().enumerate() {
        let code = code_of(bits, value).ok_or(Unfit::Value(i))?;
        let block = &mut stretch[BLOCKS_AT + i / BLOCK * block_bytes(bits)..];
        let ((low, low_shift), (high, high_shift)) = value_at(row, i % BLOCK);
        block[low] = block[low] & !(15 << low_shift) | (code & 15) << low_shift;
        if bits == Bits::UFive {
            block[high] = block[high] & !(1 << high_shift) | (code >> 4) << high_shift;
        }
    }
    Ok(())
}

/// The values of up to a stretch of row `row` of a group, or its minima.
pub(super) fn values_of(bits: Bits, stretch: &[u8], row: usize, to: &mut [i8]) {
    for (i, to) in to.iter_mut().enumerate() {
        if bits == Bits::Minima {
            *to = stretch[STEPS_AT + i * GROUP + row].cast_signed();
            continue;
        }
        let block = &stretch[BLOCKS_AT + i / BLOCK * block_bytes(bits)..];
        let ((low, low_shift), (high, high_shift)) = value_at(row, i % BLOCK);
        let code = block[low] >> low_shift & 15;
        *to = match bits {
            Bits::Levels => LEVELS[usize::from(code)],
            Bits::UFive => (code | (block[high] >> high_shift & 1) << 4).cast_signed(),
            _ => code.cast_signed(),
        };
    }
}

/// The scale of each block of row `row` of a group; of minima the one scale.
pub(super) fn scales_of(bits: Bits, stretch: &[u8], row: usize, to: &mut [f32]) {
    let at = 4 * row;
    let scale = f32::from_le_bytes([stretch[at], stretch[at + 1], stretch[at + 2], stretch[at + 3]]);
    for (block, to) in to.iter_mut().enumerate() {
        let step = stretch[STEPS_AT + block * GROUP + row].cast_signed();
        *to = if bits == Bits::Minima { scale } else { f32::from(step) * scale };
    }
}

/// Reads up to a stretch of row `row` of a group, minima not taken off.
pub(super) fn read(bits: Bits, stretch: &[u8], row: usize, to: &mut [f32]) {
    let (mut values, mut scales) = ([0; STRETCH], [0.0; BLOCKS]);
    let values = &mut values[..to.len()];
    values_of(bits, stretch, row, values);
    scales_of(bits, stretch, row, &mut scales);
    let shared = if bits == Bits::Minima { BLOCKS } else { BLOCK };
    for (i, (to, value)) in to.iter_mut().zip(values).enumerate() {
        *to = f32::from(*value) * scales[i / shared];
    }
}
