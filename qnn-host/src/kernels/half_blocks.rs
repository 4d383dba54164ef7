//! Quantised values of 6, 3 or 2 bits with a scale for each 16 columns, in two levels, as in Q6_K, Q3_K and Q2_K, which these layouts
//! keep bit for bit, and the minima that the last has besides.
//!
//! A weight is `value * step * scale`: values -32..=31 or -4..=3, a step -128..=127 for each 16 columns, an f32 scale for each 256. With
//! values 0..=3 steps are 0..=15, and `minimum * unit` may be taken off, a minimum of 0..=15 for each 16 columns, an f32 unit for each
//! 256; minima are a stream of their own, with 192 bytes for each stretch.
//!
//! *Layout*: sixteen rows form a group, 256 columns a stretch; missing columns have steps of 0, missing rows scales of 0.
//!
//! ```text
//! stretch scales: 16 rows x f32
//!         steps: 16 sub-blocks x 16 rows x i8       6 and 3 bits
//!                8 x 16 rows x a byte               2 bits, and minima: of sub-block i below, of i + 8 above
//!         block 0 .. block 7                        not in a stream of minima
//! block   6 bits, of value + 32:
//!         4 pairs of quads x 16 rows x 4 bytes      lower 4 bits: quad i below, quad i + 4 above
//!         2 halves x 16 rows x 4 bytes              upper 2 bits: quad 4 * half + i at bit 2 * i
//!         3 bits, of value + 4:
//!         2 halves x 16 rows x 4 bytes              lower 2 bits: quad 4 * half + i at bit 2 * i
//!         16 rows x 4 bytes                         the third: of quad i at bit i
//!         2 bits: as the lower ones of 3
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
/// Where the upper bits of a block of 6 begin.
pub(super) const UPPER_AT: usize = 4 * 4 * GROUP;
/// Where the third bits of a block of 3 begin.
pub(super) const THIRD_AT: usize = 2 * 4 * GROUP;

/// Whether the layouts of this file hold such values.
pub(crate) const fn are_of(bits: Bits) -> bool {
    matches!(bits, Bits::Six | Bits::Three | Bits::UTwo | Bits::HalfMinima)
}

/// Whether steps have 4 bits.
const fn has_nibbles(bits: Bits) -> bool {
    matches!(bits, Bits::UTwo | Bits::HalfMinima)
}

/// Where a stretch's blocks begin; bytes of a stretch of minima.
pub(super) const fn blocks_at(bits: Bits) -> usize {
    STEPS_AT + STRETCH / SUB * GROUP / if has_nibbles(bits) { 2 } else { 1 }
}

/// Byte and shift of a step of 4 bits.
#[inline(always)]
fn nibble_at(sub: usize, row: usize) -> (usize, u32) {
    (STEPS_AT + sub % 8 * GROUP + row, if sub < 8 { 0 } else { 4 })
}

/// Where the steps of 4 bits, or minima, of 16 rows are in a stretch, and whether they are the upper bits.
#[inline(always)]
pub(super) fn nibbles(sub: usize) -> (usize, bool) {
    let (at, shift) = nibble_at(sub, 0);
    (at, shift != 0)
}

/// Bytes of a block.
pub(super) const fn block_bytes(bits: Bits) -> usize {
    match bits {
        Bits::Three => THIRD_AT + 4 * GROUP,
        Bits::UTwo => THIRD_AT,
        Bits::HalfMinima => 0,
        _ => UPPER_AT + 2 * 4 * GROUP,
    }
}

/// Bytes of a stretch.
pub(super) const fn stretch_bytes(bits: Bits) -> usize {
    blocks_at(bits) + STRETCH / BLOCK * block_bytes(bits)
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
        Bits::UTwo => ([(pair.0, pair.1, 3), (pair.0, 0, 0)], 2),
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
        Bits::UTwo => 0,
        Bits::Three => OFFSET_OF_THREE as i8,
        _ => OFFSET as i8,
    }
}

/// Whether values of these bits include this one.
pub(crate) fn holds(bits: Bits, value: i8) -> bool {
    match bits {
        Bits::UTwo => (0..4).contains(&value),
        Bits::HalfMinima => (0..16).contains(&value),
        bits => (-offset(bits)..offset(bits)).contains(&value),
    }
}

/// Writes up to 256 columns of row `row` of a group: its values and the scale of each 16; of minima those, and the one scale.
pub(super) fn write(bits: Bits, stretch: &mut [u8], row: usize, values: &[i8], scales: &[f32]) -> Result<(), Unfit> {
    if let Some(at) = values.iter().position(|&value| !holds(bits, value)) {
        return Err(Unfit::Value(at));
    }
    let (scale, mut steps) = match bits {
        Bits::HalfMinima => (scales[0], [0; STRETCH / SUB]),
        bits => factors_of(bits, scales).ok_or(Unfit::Scales)?,
    };
    if bits == Bits::HalfMinima {
        steps[..values.len()].copy_from_slice(values);
    }
    stretch[4 * row..4 * row + 4].copy_from_slice(&scale.to_le_bytes());
    for (sub, step) in steps.iter().enumerate() {
        if has_nibbles(bits) {
            let (byte, shift) = nibble_at(sub, row);
            stretch[byte] = stretch[byte] & !(15 << shift) | step.cast_unsigned() << shift;
        } else {
            stretch[STEPS_AT + sub * GROUP + row] = step.cast_unsigned();
        }
    }
    if bits == Bits::HalfMinima {
        return Ok(());
    }
    for (i, &value) in values.iter().enumerate() {
        let code = (value + offset(bits)).cast_unsigned();
        let block = &mut stretch[blocks_at(bits) + i / BLOCK * block_bytes(bits)..];
        let ([lower, upper], width) = parts(bits, row, i % BLOCK);
        for ((byte, shift, mask), code) in [(lower, code), (upper, code >> width)] {
            block[byte] = block[byte] & !(mask << shift) | (code & mask) << shift;
        }
    }
    Ok(())
}

/// The step of sub-block `sub` of a row of a stretch, or its minimum.
fn step(bits: Bits, stretch: &[u8], row: usize, sub: usize) -> i8 {
    let (byte, shift) = nibble_at(sub, row);
    match has_nibbles(bits) {
        true => (stretch[byte] >> shift & 15).cast_signed(),
        false => stretch[STEPS_AT + sub * GROUP + row].cast_signed(),
    }
}

/// The value of column `i` of a row of a stretch, or its minimum `i`.
fn value(bits: Bits, stretch: &[u8], row: usize, i: usize) -> i8 {
    if bits == Bits::HalfMinima {
        return step(bits, stretch, row, i);
    }
    let block = &stretch[blocks_at(bits) + i / BLOCK * block_bytes(bits)..];
    let (parts, width) = parts(bits, row, i % BLOCK);
    let [lower, upper] = parts.map(|(byte, shift, mask)| block[byte] >> shift & mask);
    (lower | upper << width).cast_signed() - offset(bits)
}

/// Reads up to 256 columns of row `row` of a group.
pub(super) fn read(bits: Bits, stretch: &[u8], row: usize, to: &mut [f32]) {
    let mut scales = [0.0; STRETCH / SUB];
    scales_of(bits, stretch, row, &mut scales);
    for (i, to) in to.iter_mut().enumerate() {
        *to = f32::from(value(bits, stretch, row, i)) * scales[if bits == Bits::HalfMinima { 0 } else { i / SUB }];
    }
}

/// The quantised values of up to 256 columns of row `row` of a group.
pub(super) fn values_of(bits: Bits, stretch: &[u8], row: usize, to: &mut [i8]) {
    to.iter_mut().enumerate().for_each(|(i, to)| *to = value(bits, stretch, row, i));
}

/// The scale of each 16 columns of row `row` of a group; of minima the one scale.
pub(super) fn scales_of(bits: Bits, stretch: &[u8], row: usize, to: &mut [f32]) {
    let at = 4 * row;
    let scale = f32::from_le_bytes([stretch[at], stretch[at + 1], stretch[at + 2], stretch[at + 3]]);
    for (sub, to) in to.iter_mut().enumerate() {
        *to = if bits == Bits::HalfMinima { scale } else { f32::from(step(bits, stretch, row, sub)) * scale };
    }
}

/// A number and up to sixteen whole ones, as steps of these bits are, whose products, as f32, are exactly `scales`, if they exist.
pub(crate) fn factors_of(bits: Bits, scales: &[f32]) -> Option<(f32, [i8; STRETCH / SUB])> {
    if bits != Bits::UTwo {
        return factors(scales);
    }
    let largest = scales.iter().copied().fold(0.0f32, |m, s| if s.abs() > m.abs() { s } else { m });
    if largest == 0.0 {
        return scales.iter().all(|&s| s == 0.0).then_some((0.0, [0; STRETCH / SUB]));
    }
    (1..16u8).rev().find_map(|n| {
        let scale = largest / f32::from(n);
        let mut steps = [0; STRETCH / SUB];
        let exact = |(to, &s): (&mut i8, &f32)| {
            let step = s / scale;
            *to = step as i8;
            (0.0..16.0).contains(&step) && f32::from(*to) * scale == s
        };
        (scale.is_normal() && steps.iter_mut().zip(scales).all(exact)).then_some((scale, steps))
    })
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
    fn steps_of_four_bits_are_taken_apart_and_put_together() {
        for d in [1.0f32, -0.37, 6.0e-8] {
            let d = f16::from_f32(d).to_f32();
            for steps in [[15i8; 16], [1; 16], [8; 16], std::array::from_fn(|i| i as i8), [0; 16]] {
                let scales = steps.map(|s| f32::from(s) * d);
                let (found, parts) = factors_of(Bits::UTwo, &scales).expect("they are such products");
                assert!(parts.iter().all(|part| (0..16).contains(part)));
                assert_eq!(parts.map(|p| f32::from(p) * found), scales, "{d} {steps:?}");
            }
        }
        assert_eq!(factors_of(Bits::UTwo, &[1.0, -1.0]), None);
        assert_eq!(factors_of(Bits::UTwo, &[16.0, 1.0]), None);
        assert_eq!(factors_of(Bits::UTwo, &[f32::NAN, 1.0]), None);
    }

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
