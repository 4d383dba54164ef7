//! Where the quantised values of a block of 32 columns with one scale lie, in stretches of two blocks (see [`super::packed`]).
//!
//! ```text
//! 8 bits   8 quads x 16 rows x 4 values
//! 4 bits   4 pairs of quads x 16 rows x 4 bytes      value + 8, or a level's number: quad i below, quad i + 4 above
//! 5 bits   as 4 bits, the lower four of value + 16
//!          16 rows x 4 bytes                         the fifth: of quad i at bit i
//! ```

use super::k_blocks::LEVELS;
use super::packed::Bits;
use super::simd::dot::{BLOCK, GROUP};

/// Bytes of four bits of a block; where the fifth bits of a longer one begin.
pub(super) const NIBBLES: usize = GROUP * BLOCK / 2;

/// Bytes of a block.
pub(super) const fn block_bytes(bits: Bits) -> usize {
    match bits {
        Bits::Eight => GROUP * BLOCK,
        Bits::Five => NIBBLES + 4 * GROUP,
        _ => NIBBLES,
    }
}

/// Whether values of these bits include this one.
pub(crate) fn holds(bits: Bits, value: i8) -> bool {
    code_of(bits, value).is_some()
}

/// The bits that stand for a value.
fn code_of(bits: Bits, value: i8) -> Option<u8> {
    match bits {
        Bits::Eight => Some(value.cast_unsigned()),
        Bits::Five => (-16..16).contains(&value).then(|| (value + 16).cast_unsigned()),
        Bits::Nonlinear => LEVELS.iter().position(|&level| level == value).map(|at| at as u8),
        _ => (-8..8).contains(&value).then(|| (value + 8).cast_unsigned()),
    }
}

/// Byte and shift of the lower four bits of a column of a row.
fn nibble_at(quad: usize, lane: usize) -> (usize, u32) {
    (quad % 4 * 4 * GROUP + lane, if quad < 4 { 0 } else { 4 })
}

/// The value of column `col` of row `row` of a block.
pub(super) fn read(bits: Bits, block: &[u8], row: usize, col: usize) -> i8 {
    let (quad, lane) = (col / 4, 4 * row + col % 4);
    if bits == Bits::Eight {
        return block[quad * 4 * GROUP + lane].cast_signed();
    }
    let (byte, shift) = nibble_at(quad, lane);
    let code = block[byte] >> shift & 15;
    match bits {
        Bits::Five => (code | (block[NIBBLES + lane] >> quad & 1) << 4).cast_signed() - 16,
        Bits::Nonlinear => LEVELS[usize::from(code)],
        _ => code.cast_signed() - 8,
    }
}

/// Writes it; `false` if the bits do not hold the value.
pub(super) fn write(bits: Bits, block: &mut [u8], row: usize, col: usize, value: i8) -> bool {
    let Some(code) = code_of(bits, value) else { return false };
    let (quad, lane) = (col / 4, 4 * row + col % 4);
    if bits == Bits::Eight {
        block[quad * 4 * GROUP + lane] = code;
        return true;
    }
    let (byte, shift) = nibble_at(quad, lane);
    block[byte] = block[byte] & !(15 << shift) | (code & 15) << shift;
    if bits == Bits::Five {
        let byte = &mut block[NIBBLES + lane];
        *byte = *byte & !(1 << quad) | (code >> 4) << quad;
    }
    true
}
