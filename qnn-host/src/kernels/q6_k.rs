//! Quantised values of 6 bits with two levels of scales, as in Q6_K, which this layout keeps bit for bit.
//!
//! A weight is `value * step * scale`: values -32..=31, a step -128..=127 for each 16 columns, an f32 scale for each 256.
//!
//! *Layout*: sixteen rows form a group, 256 columns a stretch; missing columns have steps of 0, missing rows scales of 0.
//!
//! ```text
//! stretch scales: 16 rows x f32
//!         steps: 16 sub-blocks x 16 rows x i8
//!         block 0 .. block 7
//! block   4 pairs of quads x 16 rows x 4 bytes      lower 4 bits of value + 32: quad i below, quad i + 4 above
//!         2 halves x 16 rows x 4 bytes              upper 2 bits: quad 4 * half + i at bit 2 * i
//! ```

use super::simd::dot::{BLOCK, GROUP};

/// Columns of a stretch.
pub(crate) const STRETCH: usize = 256;
/// Columns that share a step.
pub(crate) const SUB: usize = 16;
/// What is added to a value to make it unsigned.
pub(super) const OFFSET: i32 = 32;
/// Where a stretch's steps begin.
pub(super) const STEPS_AT: usize = 4 * GROUP;
/// Where its blocks begin.
pub(super) const BLOCKS_AT: usize = STEPS_AT + STRETCH / SUB * GROUP;
/// Where a block's upper bits begin.
pub(super) const UPPER_AT: usize = 4 * 4 * GROUP;
/// Bytes of a block.
pub(super) const BLOCK_BYTES: usize = UPPER_AT + 2 * 4 * GROUP;
/// Bytes of a stretch.
pub(super) const STRETCH_BYTES: usize = BLOCKS_AT + STRETCH / BLOCK * BLOCK_BYTES;

/// Why columns cannot be written.
pub(super) enum Unfit {
    /// Their scales are not whole numbers -128..=127 times one number.
    Scales,
    /// The value at this index needs more bits.
    Value(usize),
}

/// Byte of the lower bits and its shift, byte of the upper ones and theirs, of a column of a row inside a block.
fn value_at(row: usize, col: usize) -> ((usize, u32), (usize, u32)) {
    let (quad, lane) = (col / 4, 4 * row + col % 4);
    let lower = (quad % 4 * 4 * GROUP + lane, if quad < 4 { 0 } else { 4 });
    (lower, (UPPER_AT + quad / 4 * 4 * GROUP + lane, quad as u32 % 4 * 2))
}

/// Writes up to 256 columns of row `row` of a group: its values and the scale of each 16.
pub(super) fn write(stretch: &mut [u8], row: usize, values: &[i8], scales: &[f32]) -> Result<(), Unfit> {
    let (scale, steps) = factors(scales).ok_or(Unfit::Scales)?;
    stretch[4 * row..4 * row + 4].copy_from_slice(&scale.to_le_bytes());
    for (sub, step) in steps.iter().enumerate() {
        stretch[STEPS_AT + sub * GROUP + row] = step.cast_unsigned();
    }
    for (i, &value) in values.iter().enumerate() {
        if !(-32..32).contains(&value) {
            return Err(Unfit::Value(i));
        }
        let (unsigned, block) = ((value + 32).cast_unsigned(), BLOCKS_AT + i / BLOCK * BLOCK_BYTES);
        let ((low, low_shift), (high, high_shift)) = value_at(row, i % BLOCK);
        let mut put = |at: usize, shift: u32, mask: u8, bits: u8| {
            let byte = &mut stretch[block + at];
            *byte = *byte & !(mask << shift) | bits << shift;
        };
        put(low, low_shift, 15, unsigned & 15);
        put(high, high_shift, 3, unsigned >> 4);
    }
    Ok(())
}

/// Reads up to 256 columns of row `row` of a group.
pub(super) fn read(stretch: &[u8], row: usize, to: &mut [f32]) {
    let at = 4 * row;
    let scale = f32::from_le_bytes([stretch[at], stretch[at + 1], stretch[at + 2], stretch[at + 3]]);
    for (i, to) in to.iter_mut().enumerate() {
        let step = stretch[STEPS_AT + i / SUB * GROUP + row].cast_signed();
        let block = &stretch[BLOCKS_AT + i / BLOCK * BLOCK_BYTES..];
        let ((low, low_shift), (high, high_shift)) = value_at(row, i % BLOCK);
        let unsigned = block[low] >> low_shift & 15 | (block[high] >> high_shift & 3) << 4;
        *to = f32::from(unsigned.cast_signed() - 32) * (f32::from(step) * scale);
    }
}

/// The quantised values of up to 256 columns of row `row` of a group.
pub(super) fn values_of(stretch: &[u8], row: usize, to: &mut [i8]) {
    for (i, to) in to.iter_mut().enumerate() {
        let block = &stretch[BLOCKS_AT + i / BLOCK * BLOCK_BYTES..];
        let ((low, low_shift), (high, high_shift)) = value_at(row, i % BLOCK);
        let unsigned = block[low] >> low_shift & 15 | (block[high] >> high_shift & 3) << 4;
        *to = unsigned.cast_signed() - 32;
    }
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
