//! Where the quantised values of a block of 32 columns with one scale lie, in stretches of two blocks (see [`super::packed`]), and what
//! the bytes of its scale mean.
//!
//! ```text
//! 8 bits   8 quads x 16 rows x 4 values
//! 4 bits   4 pairs of quads x 16 rows x 4 bytes      value + 8, or the number of a level or float: quad i below, quad i + 4 above
//! 5 bits   as 4 bits, the lower four of value + 16
//!          16 rows x 4 bytes                         the fifth: of quad i at bit i
//! ```
//!
//! A scale is a float16; beside floats of 4 bits it is a power of two, of which the exponent of the f32 is kept, or 0, which f32 writes so.

use half::f16;

use super::k_blocks::LEVELS;
use super::packed::Bits;
use super::simd::dot::{BLOCK, GROUP};

/// Bytes of four bits of a block; where the fifth bits of a longer one begin.
pub(super) const NIBBLES: usize = GROUP * BLOCK / 2;

/// Twice the floats of 4 bits of MXFP4 (a sign, two bits of exponent, one of fraction), by their bits: -0 is 0.
pub(crate) const FLOATS: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// The largest power of two that is kept as one, 2^119: tiles of bf16 multiply scales by 256.
const MOST_EXPONENT: u32 = 246;

/// Bytes of a block.
pub(super) const fn block_bytes(bits: Bits) -> usize {
    match bits {
        Bits::Eight => GROUP * BLOCK,
        Bits::Five => NIBBLES + 4 * GROUP,
        _ => NIBBLES,
    }
}

/// Bytes of a block's scale.
pub(super) const fn scale_bytes(bits: Bits) -> usize {
    if matches!(bits, Bits::FloatFour) { 1 } else { 2 }
}

/// What the numbers of values stand for, where they are numbers.
pub(super) const fn table_of(bits: Bits) -> &'static [i8; 16] {
    if matches!(bits, Bits::FloatFour) { &FLOATS } else { &LEVELS }
}

/// Whether values of these bits include this one.
pub(crate) fn holds(bits: Bits, value: i8) -> bool {
    code_of(bits, value).is_some()
}

/// Whether such a scale can be kept without loss.
pub(crate) fn holds_scale(bits: Bits, scale: f32) -> bool {
    write_scale(bits, &mut [0; 2], scale)
}

/// The scale that begins these bytes.
pub(super) fn read_scale(bits: Bits, bytes: &[u8]) -> f32 {
    match bits {
        Bits::FloatFour => f32::from_bits(u32::from(bytes[0]) << 23),
        _ => f16::from_le_bytes([bytes[0], bytes[1]]).to_f32(),
    }
}

/// Writes it; `false` if that would lose a bit.
pub(super) fn write_scale(bits: Bits, bytes: &mut [u8], scale: f32) -> bool {
    if bits == Bits::FloatFour {
        let exponent = scale.to_bits() >> 23;
        bytes[0] = exponent.min(MOST_EXPONENT) as u8;
    } else {
        bytes[..2].copy_from_slice(&f16::from_f32(scale).to_le_bytes());
    }
    read_scale(bits, bytes) == scale
}

/// The bits that stand for a value.
fn code_of(bits: Bits, value: i8) -> Option<u8> {
    match bits {
        Bits::Eight => Some(value.cast_unsigned()),
        Bits::Five => (-16..16).contains(&value).then(|| (value + 16).cast_unsigned()),
        Bits::Nonlinear | Bits::FloatFour => table_of(bits).iter().position(|&level| level == value).map(|at| at as u8),
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
        Bits::Nonlinear | Bits::FloatFour => table_of(bits)[usize::from(code)],
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_beside_floats_are_powers_of_two() {
        let stored = |scale: f32| {
            let mut bytes = [0xAA; 2];
            let fits = write_scale(Bits::FloatFour, &mut bytes, scale);
            assert_eq!(holds_scale(Bits::FloatFour, scale), fits);
            assert_eq!(bytes[1], 0xAA, "one byte");
            fits.then(|| (bytes[0], read_scale(Bits::FloatFour, &bytes)))
        };
        for (scale, byte) in [(0.0, 0), (f32::MIN_POSITIVE, 1), (2f32.powi(-30), 97), (1.0, 127), (2f32.powi(119), 246)]
        {
            assert_eq!(stored(scale), Some((byte, scale)));
        }
        // float16 has no 2^-30, and one of these has no f32 that is normal.
        assert!(!holds_scale(Bits::Nonlinear, 2f32.powi(-30)) && holds_scale(Bits::Nonlinear, 2f32.powi(-24)));
        for scale in [3.0, 1.000_1, -1.0, f32::MIN_POSITIVE / 2.0, 2f32.powi(120), f32::INFINITY, f32::NAN] {
            assert_eq!(stored(scale), None, "{scale}");
        }
    }

    #[test]
    fn floats_of_four_bits_are_numbered_as_their_bits_say() {
        for (number, &twice) in FLOATS.iter().enumerate() {
            let (sign, exponent, fraction) = (number >> 3, number >> 1 & 3, (number & 1) as f32 / 2.0);
            let magnitude = if exponent == 0 { fraction } else { (1 << (exponent - 1)) as f32 * (1.0 + fraction) };
            assert_eq!(f32::from(twice) / 2.0, if sign == 1 { -magnitude } else { magnitude }, "{number}");
        }
    }
}
