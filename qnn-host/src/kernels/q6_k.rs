//! Quantised values of 6 or 3 bits with a scale for each 16 columns, in two levels, as in Q6_K and Q3_K, which these layouts keep
//! bit for bit.
//!
//! A weight is `value * step * scale`: values -32..=31 or -4..=3, a step -128..=127 for each 16 columns, an f32 scale for each 256.
//!
//! *Layout*: sixteen rows form a group, 256 columns a stretch; missing columns have steps of 0, missing rows scales of 0.
//!
//! ```text
//! stretch scales: 16 rows x f32
//!         steps: 16 sub-blocks x 16 rows x i8
//!         block 0 .. block 7
//! block   6 bits, of value + 32:
//!         4 pairs of quads x 16 rows x 4 bytes      lower 4 bits: quad i below, quad i + 4 above
//!         2 halves x 16 rows x 4 bytes              upper 2 bits: quad 4 * half + i at bit 2 * i
//!         3 bits, of value + 4:
//!         2 halves x 16 rows x 4 bytes              lower 2 bits: quad 4 * half + i at bit 2 * i
//!         16 rows x 4 bytes                         the third: of quad i at bit i
//! ```

use super::packed::Bits;
use super::simd::dot::{BLOCK, GROUP};

/// Columns of a stretch.
pub(crate) const STRETCH: usize = 256;
/// Columns that share a step.
pub(crate) const SUB: usize = 16;
/// What is added to a value of 6 bits to make it unsigned.
pub(super) const OFFSET: i32 = 32;
/// The same for 3 bits.
pub(super) const OFFSET_OF_THREE: i32 = 4;
/// Where a stretch's steps begin.
pub(super) const STEPS_AT: usize = 4 * GROUP;
/// Where its blocks begin.
pub(super) const BLOCKS_AT: usize = STEPS_AT + STRETCH / SUB * GROUP;
/// Where the upper bits of a block of 6 begin.
pub(super) const UPPER_AT: usize = 4 * 4 * GROUP;
/// Where the third bits of a block of 3 begin.
pub(super) const THIRD_AT: usize = 2 * 4 * GROUP;

/// Whether the layouts of this file hold such values.
pub(crate) const fn are_of(bits: Bits) -> bool {
    matches!(bits, Bits::Six | Bits::Three)
}

/// Bytes of a block.
pub(super) const fn block_bytes(bits: Bits) -> usize {
    match bits {
        Bits::Three => THIRD_AT + 4 * GROUP,
        _ => UPPER_AT + 2 * 4 * GROUP,
    }
}

/// Bytes of a stretch.
pub(super) const fn stretch_bytes(bits: Bits) -> usize {
    BLOCKS_AT + STRETCH / BLOCK * block_bytes(bits)
}

/// Why columns cannot be written.
pub(super) enum Unfit {
    /// Their scales are not whole numbers -128..=127 times one number.
    Scales,
    /// The value at this index needs more bits.
    Value(usize),
}

/// Where two parts of a value lie: byte, shift and mask of the lower one and of the upper one, and the width of the lower one.
type Parts = ([(usize, u32, u8); 2], u32);

/// Those of a column of a row inside a block.
fn parts(bits: Bits, row: usize, col: usize) -> Parts {
    let (quad, lane) = (col / 4, 4 * row + col % 4);
    let pair = (quad / 4 * 4 * GROUP + lane, quad as u32 % 4 * 2);
    match bits {
        Bits::Three => ([(pair.0, pair.1, 3), (THIRD_AT + lane, quad as u32, 1)], 2),
        _ => {
            let lower = (quad % 4 * 4 * GROUP + lane, if quad < 4 { 0 } else { 4 }, 15);
            ([lower, (UPPER_AT + pair.0, pair.1, 3)], 4)
        }
    }
}

/// What is added to make values unsigned.
const fn offset(bits: Bits) -> i8 {
    match bits {
        Bits::Three => OFFSET_OF_THREE as i8,
        _ => OFFSET as i8,
    }
}

/// Whether values of these bits include this one.
pub(crate) fn holds(bits: Bits, value: i8) -> bool {
    (-offset(bits)..offset(bits)).contains(&value)
}

/// Writes up to 256 columns of row `row` of a group: its values and the scale of each 16.
pub(super) fn write(bits: Bits, stretch: &mut [u8], row: usize, values: &[i8], scales: &[f32]) -> Result<(), Unfit> {
    let (scale, steps) = factors(scales).ok_or(Unfit::Scales)?;
    stretch[4 * row..4 * row + 4].copy_from_slice(&scale.to_le_bytes());
    for (sub, step) in steps.iter().enumerate() {
        stretch[STEPS_AT + sub * GROUP + row] = step.cast_unsigned();
    }
    for (i, &value) in values.iter().enumerate() {
        if !holds(bits, value) {
            return Err(Unfit::Value(i));
        }
        let code = (value + offset(bits)).cast_unsigned();
        let block = &mut stretch[BLOCKS_AT + i / BLOCK * block_bytes(bits)..];
        let ([lower, upper], width) = parts(bits, row, i % BLOCK);
        for ((byte, shift, mask), code) in [(lower, code), (upper, code >> width)] {
            block[byte] = block[byte] & !(mask << shift) | (code & mask) << shift;
        }
    }
    Ok(())
}

/// The value of column `i` of a row of a stretch.
fn value(bits: Bits, stretch: &[u8], row: usize, i: usize) -> i8 {
    let block = &stretch[BLOCKS_AT + i / BLOCK * block_bytes(bits)..];
    let (parts, width) = parts(bits, row, i % BLOCK);
    let [lower, upper] = parts.map(|(byte, shift, mask)| block[byte] >> shift & mask);
    (lower | upper << width).cast_signed() - offset(bits)
}

/// Reads up to 256 columns of row `row` of a group.
pub(super) fn read(bits: Bits, stretch: &[u8], row: usize, to: &mut [f32]) {
    let mut scales = [0.0; STRETCH / SUB];
    scales_of(stretch, row, &mut scales);
    for (i, to) in to.iter_mut().enumerate() {
        *to = f32::from(value(bits, stretch, row, i)) * scales[i / SUB];
    }
}

/// The quantised values of up to 256 columns of row `row` of a group.
pub(super) fn values_of(bits: Bits, stretch: &[u8], row: usize, to: &mut [i8]) {
    to.iter_mut().enumerate().for_each(|(i, to)| *to = value(bits, stretch, row, i));
}

/// The scale of each 16 columns of row `row` of a group.
pub(super) fn scales_of(stretch: &[u8], row: usize, to: &mut [f32]) {
    let at = 4 * row;
    let scale = f32::from_le_bytes([stretch[at], stretch[at + 1], stretch[at + 2], stretch[at + 3]]);
    for (sub, to) in to.iter_mut().enumerate() {
        *to = f32::from(stretch[STEPS_AT + sub * GROUP + row].cast_signed()) * scale;
    }
}

/// A number and up to sixteen whole ones whose products, as f32, are exactly `scales`, if they exist.
pub(crate) fn factors(scales: &[f32]) -> Option<(f32, [i8; STRETCH / SUB])> {
    let mut steps = [0; STRETCH / SUB];
    let largest = scales.iter().copied().fold(0.0f32, |m, s| if s.abs() > m.abs() { s } else { m });
    if largest == 0.0 {
        return scales.iter().all(|&s| s == 0.0).then_some((0.0, steps));
    }
    // An encoder makes its largest step -128 or nearly so: begin there.
    for n in (1..=128).rev() {
        let scale = -largest / n as f32;
        if !scale.is_normal() || scale * -(n as f32) != largest {
            continue;
        }
        let step = |s: f32| {
            let step = s / scale;
            (step == step.trunc() && step.abs() <= 128.0 && step * scale == s).then_some(step)
        };
        // The other sign, for a largest of 1..=127 steps.
        let all =
            |sign: f32| scales.iter().all(|&s| step(s).is_some_and(|step| (-128.0..128.0).contains(&(step * sign))));
        for sign in [1.0, -1.0] {
            if all(sign) {
                for (to, &s) in steps.iter_mut().zip(scales) {
                    *to = step(s).map_or(0, |step| (step * sign) as i8);
                }
                return Some((scale * sign, steps));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use half::f16;

    use super::*;

    #[test]
    fn scales_are_taken_apart_and_put_together() {
        for d in [1.0f32, 0.001, -0.37, 3.0e-6, 6.0e-8] {
            let d = f16::from_f32(d).to_f32();
            for steps in [
                [127i8; 16],
                [-128; 16],
                std::array::from_fn(|i| (i as i32 * 17 - 128) as i8),
                std::array::from_fn(|i| 3 - i as i8),
            ] {
                let scales = steps.map(|s| f32::from(s) * d);
                let (found, parts) = factors(&scales).expect("they are such products");
                assert_eq!(parts.map(|p| f32::from(p) * found), scales, "{d} {steps:?}");
            }
        }
        assert_eq!(factors(&[0.0; 16]), Some((0.0, [0; 16])));
        assert_eq!(factors(&[1.0, 1.000_1]), None);
        assert_eq!(factors(&[f32::NAN]), None);
    }
}
