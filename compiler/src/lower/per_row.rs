//! Symmetric quantisation of linear weights to 8 or 4 bits, with one scale per row, that is per output channel.
//!
//! *Shapes*: weights `[out, in]`; scales `[out]`, offsets 0. *Units*: `w = q * scale`, `scale = max |w| / 127` (7 for 4 bits), q
//! from -127 to 127 (-7 to 7), a byte each, rounded to the nearest, so no weight moves by more than half a scale (the largest
//! of a row by 1/16 more in float16).
//!
//! A row of zeros, or one too small for a scale, has scale 1 and q = 0. HTP libraries store scales in float16: for float16
//! graphs a scale is rounded to that first, and q is chosen for the rounded scale. (Measured on libQnnHtp 2.51: a scale of
//! 1e-6 acts as 17 * 2^-24, off by 1.3 %.)
//! Two passes over the file: the largest weight of a row must be known before its first value is written.

use genie_types::Quant;
use half::f16;

/// Scales under construction, then quantised values, a run of elements at a time.
pub(super) struct RowScales {
    /// Elements in a row.
    width: usize,
    /// Elements seen in this pass.
    done: usize,
    /// Largest quantised value; the smallest is its negative.
    largest: f32,
    /// Largest magnitude of each row in the first pass, scales after it.
    rows: Vec<f32>,
}

impl RowScales {
    /// For `n_rows` rows of `width` elements.
    pub(super) fn new(n_rows: usize, width: usize, largest: i8) -> Self {
        Self { width, done: 0, rows: vec![0.0; n_rows], largest: largest.into() }
    }

    /// First pass: the next elements.
    pub(super) fn measure(&mut self, values: &[f32]) {
        self.each_row(values, |largest, part| *largest = part.iter().fold(*largest, |m, v| m.max(v.abs())));
    }

    /// Between the passes. With `half`, scales are rounded to float16.
    pub(super) fn seal(&mut self, half: bool) {
        debug_assert_eq!(self.done, self.width * self.rows.len());
        self.done = 0;
        for row in &mut self.rows {
            *row = match (*row / self.largest, half) {
                (scale, _) if scale < f32::MIN_POSITIVE => 1.0,
                (scale, false) => scale,
                (scale, true) => f16::from_f32(scale).max(f16::MIN_POSITIVE_SUBNORMAL).to_f32(),
            };
        }
    }

    /// Second pass: appends the quantised values of the next elements to `to`.
    pub(super) fn encode(&mut self, values: &[f32], to: &mut Vec<u8>) {
        let largest = self.largest;
        self.each_row(values, |scale, part| {
            let quantise = |v: &f32| (v / *scale).round().clamp(-largest, largest) as i8;
            to.extend(part.iter().map(|v| quantise(v).cast_unsigned()));
        });
    }

    /// The quantisation parameters, with output channels on that axis.
    pub(super) fn quant(self, axis: u32) -> Quant {
        let bits = (self.largest < 8.0).then_some(4);
        Quant::PerAxis { axis, bits, scale_offsets: self.rows.into_iter().map(|scale| (scale, 0)).collect() }
    }

    fn each_row(&mut self, mut values: &[f32], mut each: impl FnMut(&mut f32, &[f32])) {
        while !values.is_empty() {
            let (row, column) = (self.done / self.width, self.done % self.width);
            let (part, rest) = values.split_at(values.len().min(self.width - column));
            each(&mut self.rows[row], part);
            self.done += part.len();
            values = rest;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn quantized(values: &[f32], width: usize, run: usize, half: bool) -> (Vec<i8>, Vec<f32>) {
        let mut rows = RowScales::new(values.len() / width, width, 127);
        values.chunks(run).for_each(|run| rows.measure(run));
        rows.seal(half);
        let mut q_values = Vec::new();
        values.chunks(run).for_each(|run| rows.encode(run, &mut q_values));
        let Quant::PerAxis { axis: 0, bits: None, scale_offsets } = rows.quant(0) else { panic!("one scale per row") };
        assert!(scale_offsets.iter().all(|&(scale, offset)| scale > 0.0 && offset == 0));
        (
            q_values.into_iter().map(u8::cast_signed).collect(),
            scale_offsets.into_iter().map(|(scale, _)| scale).collect(),
        )
    }

    #[test]
    fn rows_have_their_own_scales() {
        let values = [
            1.0, -2.54, 0.0, 0.01, /**/ 0.0, 0.0, 0.0, 0.0, /**/ 1e-44, 0.0, 0.0, 0.0, /**/ 127.0, 0.5,
            1.5, -63.4,
        ];
        let (q_values, scales) = quantized(&values, 4, 3, false);
        assert_eq!(q_values[..4], [50, -127, 0, 1]); // 0.01 is half a scale: away from zero
        assert_eq!(q_values[4..12], [0; 8]);
        assert_eq!(q_values[12..], [127, 1, 2, -63]);
        assert_eq!(scales, [2.54 / 127.0, 1.0, 1.0, 1.0]);
    }

    #[test]
    fn scales_are_rounded_to_float16_before_the_values() {
        let values = [1e-4, -5e-5, /**/ 1e-7, 0.0, /**/ 65504.0, 1.0];
        let (q_values, scales) = quantized(&values, 2, 4, true);
        let step = 2f32.powi(-24);
        assert_eq!(scales, [13.0 * step, step, f16::from_f32(65504.0 / 127.0).to_f32()]);
        assert_eq!(q_values, [127, -65, 2, 0, 127, 0]); // 1e-4 is 129 steps: cut
    }

    proptest! {
        #[test]
        fn no_weight_moves_by_more_than_half_a_scale(
            values in prop::collection::vec(-1e4f32..1e4, 1..12).prop_flat_map(|row| {
                let n = row.len();
                (Just(n), prop::collection::vec(-1e4f32..1e4, n * 3))
            }),
            run in 1usize..40,
            half in any::<bool>(),
        ) {
            let (width, values) = values;
            let (q_values, scales) = quantized(&values, width, run, half);
            for (i, (value, q)) in values.iter().zip(&q_values).enumerate() {
                let scale = f64::from(scales[i / width]);
                let off = (f64::from(*value) - f64::from(*q) * scale).abs();
                // The largest of a row may be cut to 127 of a scale that was rounded down by 2^-11.
                let limit = if half { 0.57 } else { 0.500_1 };
                prop_assert!(off <= scale * limit, "[{i}] {value} as {q} * {scale}");
                prop_assert!(!half || f16::from_f32(scales[i / width]).to_f32() == scales[i / width]);
            }
            for row in q_values.chunks(width) {
                prop_assert!(row.iter().any(|q| q.abs() >= 126));
            }
        }
    }
}
