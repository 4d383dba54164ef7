//! Symmetric codes of 8 or 4 bits for linear weights: one scale for each row, that is for each output channel.
//!
//! *Shapes*: weights `[out, in]`; scales `[out]`, offsets 0. *Units*: `w = code * scale`, `scale = max |w| / 127` (7 for codes
//! of 4 bits), codes -127 to 127 (-7 to 7), a byte each, rounded to the nearest, so no weight moves by more than half a scale
//! (of a row's largest: by 1/16 more in float16).
//!
//! A row of zeros has scale 1 and codes 0; so has a row too small to have a scale. HTP libraries keep scales in float16:
//! for float16 graphs a scale is rounded to that first, and the codes make up for it. (Measured on libQnnHtp 2.51: a scale of
//! 1e-6 acts as 17 * 2^-24, off by 1.3 %.)
//! Two passes over the file: the largest of a row must be known before its first code is written.

use genie_types::Quant;
use half::f16;

/// Scales under construction, then codes, a run of elements at a time.
pub(super) struct RowScales {
    /// Elements in a row.
    width: usize,
    /// Elements seen in this pass.
    done: usize,
    /// Largest code; the smallest is its negative, so that codes are symmetric.
    top: f32,
    /// Largest magnitude of each row in the first pass, scales after it.
    rows: Vec<f32>,
}

impl RowScales {
    /// For `n_rows` rows of `width` elements.
    pub(super) fn new(n_rows: usize, width: usize, top: i8) -> Self {
        Self { width, done: 0, rows: vec![0.0; n_rows], top: top.into() }
    }

    /// First pass: the next elements.
    pub(super) fn measure(&mut self, values: &[f32]) {
        self.each_row(values, |largest, part| *largest = part.iter().fold(*largest, |m, v| m.max(v.abs())));
    }

    /// Between the passes. With `half`, scales are ones that float16 can say.
    pub(super) fn seal(&mut self, half: bool) {
        debug_assert_eq!(self.done, self.width * self.rows.len());
        self.done = 0;
        for row in &mut self.rows {
            *row = match (*row / self.top, half) {
                (scale, _) if scale < f32::MIN_POSITIVE => 1.0,
                (scale, false) => scale,
                (scale, true) => f16::from_f32(scale).max(f16::MIN_POSITIVE_SUBNORMAL).to_f32(),
            };
        }
    }

    /// Second pass: the codes of the next elements are put at the end of `codes`.
    pub(super) fn encode(&mut self, values: &[f32], codes: &mut Vec<u8>) {
        let top = self.top;
        self.each_row(values, |scale, part| {
            let code = |v: &f32| (v / *scale).round().clamp(-top, top) as i8;
            codes.extend(part.iter().map(|v| code(v).cast_unsigned()));
        });
    }

    /// What the codes mean, the output channels being on that axis.
    pub(super) fn quant(self, axis: u32) -> Quant {
        let bits = (self.top < 8.0).then_some(4);
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
        let mut codes = Vec::new();
        values.chunks(run).for_each(|run| rows.encode(run, &mut codes));
        let Quant::PerAxis { axis: 0, bits: None, scale_offsets } = rows.quant(0) else { panic!("one scale a row") };
        assert!(scale_offsets.iter().all(|&(scale, offset)| scale > 0.0 && offset == 0));
        (codes.into_iter().map(u8::cast_signed).collect(), scale_offsets.into_iter().map(|(scale, _)| scale).collect())
    }

    #[test]
    fn rows_have_their_own_scales() {
        let values = [
            1.0, -2.54, 0.0, 0.01, /**/ 0.0, 0.0, 0.0, 0.0, /**/ 1e-44, 0.0, 0.0, 0.0, /**/ 127.0, 0.5,
            1.5, -63.4,
        ];
        let (codes, scales) = quantized(&values, 4, 3, false);
        assert_eq!(codes[..4], [50, -127, 0, 1]); // 0.01 is half a scale: away from zero
        assert_eq!(codes[4..12], [0; 8]);
        assert_eq!(codes[12..], [127, 1, 2, -63]);
        assert_eq!(scales, [2.54 / 127.0, 1.0, 1.0, 1.0]);
    }

    #[test]
    fn scales_that_float16_cannot_say_are_rounded_before_the_codes() {
        let values = [1e-4, -5e-5, /**/ 1e-7, 0.0, /**/ 65504.0, 1.0];
        let (codes, scales) = quantized(&values, 2, 4, true);
        let step = 2f32.powi(-24);
        assert_eq!(scales, [13.0 * step, step, f16::from_f32(65504.0 / 127.0).to_f32()]);
        assert_eq!(codes, [127, -65, 2, 0, 127, 0]); // 1e-4 is 129 steps: cut
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
            let (codes, scales) = quantized(&values, width, run, half);
            for (i, (value, code)) in values.iter().zip(&codes).enumerate() {
                let scale = f64::from(scales[i / width]);
                let off = (f64::from(*value) - f64::from(*code) * scale).abs();
                // The largest of a row may be cut to 127 of a scale that was rounded down by 2^-11.
                let limit = if half { 0.57 } else { 0.500_1 };
                prop_assert!(off <= scale * limit, "[{i}] {value} as {code} * {scale}");
                prop_assert!(!half || f16::from_f32(scales[i / width]).to_f32() == scales[i / width]);
            }
            for row in codes.chunks(width) {
                prop_assert!(row.iter().any(|c| c.abs() >= 126));
            }
        }
    }
}
