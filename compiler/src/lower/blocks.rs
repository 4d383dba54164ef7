//! Codes in blocks of 32 along the inputs, a float16 scale for each block; and those of Q6_K as they are, in blocks of 16.
//!
//! *Layout*: `[out, in]`; 8-bit codes one a byte, 4-bit ones two a byte, the earlier in the lower half. Blocks of a GGUF file in
//! the same format, or in one of fewer bits, are taken over code for code, also times a power of two, which only moves their
//! scales; other weights are rounded.
//! *Units*: `w = code * scale`. 8 bits: `scale = max |w| / 127`. 4 bits: of scales that make the largest magnitude a code from -7 to -9
//! (whichever its sign; -9 is cut to -8), the one whose codes come nearest to the block in the least squares.
//! Scales are rounded to float16 before codes are chosen, so codes know the scale that they will be multiplied by.

use super::encode::Loss;
use super::weights::WeightSpec;
use crate::checkpoint::{BlockFormat, Checkpoint, Gatekeeper, SourceDtype, TensorEntry, for_each_chunk, for_each_raw};
use crate::gguf::q6_k_parts;
use crate::{CompileError, Result};
use genie_types::{Dtype, Quant, TensorInfo};
use half::f16;

/// Elements that share a scale.
pub(super) const BLOCK: usize = 32;

/// Bits of a code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bits {
    /// -8 to 7.
    Four,
    /// -127 to 127.
    Eight,
    /// -32 to 31, a byte each, blocks of 16: what `Q6_K` has, and only taken over from there.
    Six,
}

impl Bits {
    fn dtype(self) -> Dtype {
        if self == Self::Four { Dtype::SFixed4 } else { Dtype::SFixed8 }
    }

    /// Elements that share a scale.
    fn block(self) -> usize {
        if self == Self::Six { BLOCK / 2 } else { BLOCK }
    }

    /// True where blocks of that format need no rounding.
    fn hold(self, format: BlockFormat) -> bool {
        format.plain_bits().is_some_and(|bits| bits <= if self == Self::Four { 4 } else { 8 })
    }

    /// Bytes of `n_elems` weights, as a client hands them over: codes and pairs of scale and offset.
    pub(super) fn size_bytes(self, n_elems: u64) -> u64 {
        let codes = if self == Self::Four { n_elems.div_ceil(2) } else { n_elems };
        codes + n_elems / self.block() as u64 * 8
    }
}

/// Blocks under construction.
struct Codes {
    bits: Bits,
    bytes: Vec<u8>,
    scales: Vec<(f32, i32)>,
    loss: Loss,
}

/// One weight as blocks.
///
/// # Errors
/// Rows that are no whole number of blocks; weights that cannot be read, are not finite, or too large for their scales.
pub(super) fn blocks(
    checkpoint: &Checkpoint,
    weight: &WeightSpec,
    entry: &TensorEntry,
    bits: Bits,
) -> Result<(TensorInfo, Vec<u8>, Loss)> {
    let cols = weight.dims.last().copied().unwrap_or(0);
    if weight.dims.len() != 2 || !cols.is_multiple_of(BLOCK) {
        return Err(CompileError::NoBlocks { name: weight.name.clone(), dims: weight.dims.clone(), block: BLOCK });
    }
    let n_blocks = weight.n_elems() / bits.block();
    let mut codes = Codes { bits, bytes: Vec::new(), scales: Vec::with_capacity(n_blocks), loss: Loss::default() };
    match (&entry.dtype, bits) {
        (_, Bits::Six) => {
            let mut gate = weight.gate();
            for_each_raw(checkpoint, &weight.name, entry, |raw| codes.take_six(raw, weight, &mut gate))?;
        }
        (SourceDtype::Blocks(format), bits) if bits.hold(*format) && is_power_of_two(weight.scale) => {
            let mut gate = weight.gate();
            for_each_raw(checkpoint, &weight.name, entry, |raw| codes.take(*format, raw, weight, &mut gate))?;
        }
        _ => {
            let mut scaled = Vec::new();
            for_each_chunk(checkpoint, &weight.name, entry, |values| {
                scaled.clear();
                scaled.extend(values.iter().map(|v| (f64::from(*v) * weight.scale) as f32));
                codes.round(&scaled, weight)
            })?;
        }
    }
    let Codes { bytes, scales, loss, .. } = codes;
    let quant = Quant::Block { block_dims: vec![1, bits.block() as u32], scale_offsets: scales };
    Ok((weight.info(bits.dtype()).with_quant(quant), bytes, loss))
}

/// Factors that move exponents only.
pub(super) fn is_power_of_two(scale: f64) -> bool {
    scale.is_normal() && scale > 0.0 && scale.to_bits() << 12 == 0
}

impl Codes {
    /// Blocks as they are.
    fn take(&mut self, format: BlockFormat, raw: &[u8], weight: &WeightSpec, gate: &mut Gatekeeper<'_>) -> Result<()> {
        for block in raw.chunks_exact(format.bytes()) {
            let mut codes = [0; BLOCK];
            let stored = format.codes(block, &mut codes).to_f32();
            if stored.is_finite() {
                gate.done += BLOCK
            } else {
                gate.pass(&[stored; BLOCK])?
            }
            let scale = (f64::from(stored) * weight.scale) as f32;
            // A scale among the smallest float16 has no half of itself there: such blocks are rounded like any other.
            if f16::from_f32(scale).to_f32() == scale {
                self.push(scale, &codes);
            } else {
                let values = codes.map(|code| f32::from(code) * scale);
                self.round(&values, weight)?;
            }
        }
        Ok(())
    }

    /// Blocks of `Q6_K`.
    fn take_six(&mut self, raw: &[u8], weight: &WeightSpec, gate: &mut Gatekeeper<'_>) -> Result<()> {
        for block in raw.chunks_exact(BlockFormat::Q6K.bytes()) {
            let (codes, scales) = q6_k_parts(block);
            for scale in scales {
                if scale.is_finite() {
                    gate.done += BLOCK / 2;
                } else {
                    gate.pass(&[scale; BLOCK / 2])?;
                }
                self.scales.push(((f64::from(scale) * weight.scale) as f32, 0));
            }
            self.bytes.extend(codes.map(i8::cast_unsigned));
        }
        Ok(())
    }

    /// Whole blocks of finite numbers, rounded.
    fn round(&mut self, values: &[f32], weight: &WeightSpec) -> Result<()> {
        for block in values.as_chunks::<BLOCK>().0 {
            let largest = block.iter().copied().fold(0.0f32, |m, v| if v.abs() > m.abs() { v } else { m });
            let (scale, low, high) = match self.bits {
                Bits::Eight => (f16::from_f32(largest.abs() / 127.0).to_f32(), -127.0, 127.0),
                Bits::Four => (four_bit_scale(block, largest), FOUR.0, FOUR.1),
                Bits::Six => unreachable!("blocks of six bits are only taken over"),
            };
            if !scale.is_finite() {
                return Err(CompileError::ScaleOverflow { name: weight.name.clone(), value: largest });
            }
            let code = |v: f32| if scale == 0.0 { 0 } else { nearest((v / scale).clamp(low, high)) as i8 };
            let mut codes = [0; BLOCK];
            for (to, v) in codes.iter_mut().zip(block) {
                *to = code(*v);
                self.loss.add(*v, f32::from(*to) * scale);
            }
            self.push(scale, &codes);
        }
        Ok(())
    }

    fn push(&mut self, scale: f32, codes: &[i8; BLOCK]) {
        self.scales.push((scale, 0));
        match self.bits {
            Bits::Eight | Bits::Six => self.bytes.extend(codes.map(i8::cast_unsigned)),
            Bits::Four => {
                let pair = |pair: &[i8; 2]| (pair[0] & 15).cast_unsigned() | pair[1].cast_unsigned() << 4;
                self.bytes.extend(codes.as_chunks::<2>().0.iter().map(pair));
            }
        }
    }
}

/// Smallest and largest code of four bits.
const FOUR: (f32, f32) = (-8.0, 7.0);
/// What the largest magnitude of a block may become, before it is cut to -8: the plain choice first.
const ENDS: [f32; 9] = [-8.0, -7.0, -7.25, -7.5, -7.75, -8.25, -8.5, -8.75, -9.0];

/// Sums side by side, which a compiler may put into vectors.
const LANES: usize = 8;

/// A scale is taken for another only if it wins so much of a block's squares: more than rounding it to float16 may lose.
const LEAST_GAIN: f32 = 2e-6;

/// The float16 scale for a block in four bits.
fn four_bit_scale(block: &[f32; BLOCK], largest: f32) -> f32 {
    let half = |scale: f32| f16::from_f32(scale).to_f32();
    let plain = half(largest / ENDS[0]);
    if plain.abs() < 2.0 * f16::MIN_POSITIVE.to_f32() || !plain.is_finite() {
        return plain;
    }
    // Codes with the scale that suits them best leave `sum w^2 - (sum w code)^2 / sum code^2`.
    let mut best = (0.0, plain);
    for end in ENDS {
        let per_step = end / largest;
        let codes = block.map(|v| nearest((v * per_step).clamp(FOUR.0, FOUR.1)));
        let (mut products, mut squares) = ([0.0f32; LANES], [0.0f32; LANES]);
        for (part, codes) in block.as_chunks::<LANES>().0.iter().zip(codes.as_chunks::<LANES>().0) {
            for lane in 0..LANES {
                products[lane] += part[lane] * codes[lane];
                squares[lane] += codes[lane] * codes[lane];
            }
        }
        let (product, square) = (products.iter().sum::<f32>(), squares.iter().sum::<f32>());
        let won = product * product / square;
        if won > best.0 * (1.0 + LEAST_GAIN) {
            best = (won, half(product / square));
        }
    }
    if best.1.is_finite() { best.1 } else { plain }
}

/// The nearest whole number of one below 2^22; of two, the even one. A sum and a difference, where `round` would be a call.
fn nearest(x: f32) -> f32 {
    const SHIFT: f32 = 1.5 * (1 << 23) as f32;
    (x + SHIFT) - SHIFT
}

#[cfg(test)]
mod tests {
    use super::super::weights::Role;
    use super::*;
    use proptest::prelude::*;

    fn spec(scale: f64) -> WeightSpec {
        WeightSpec { name: "w".into(), stored_as: "w".into(), dims: vec![1, 32], role: Role::Linear, scale }
    }

    fn rounded(bits: Bits, values: &[f32]) -> (Vec<f32>, f32) {
        let mut codes = Codes { bits, bytes: Vec::new(), scales: Vec::new(), loss: Loss::default() };
        codes.round(values, &spec(1.0)).unwrap();
        let scale = codes.scales[0].0;
        let code = |i: usize| match bits {
            Bits::Eight | Bits::Six => codes.bytes[i].cast_signed(),
            Bits::Four => (codes.bytes[i / 2] >> (i % 2 * 4) << 4).cast_signed() >> 4,
        };
        ((0..32).map(|i| f32::from(code(i)) * scale).collect(), scale.abs())
    }

    proptest! {
        #[test]
        fn no_weight_moves_by_more_than_a_step_allows(values in prop::collection::vec(-100f32..100.0, 32)) {
            let (eight, step) = rounded(Bits::Eight, &values);
            for (v, e) in values.iter().zip(&eight) {
                prop_assert!((v - e).abs() <= step * 0.57, "{} as {} in steps of {}", v, e, step);
            }
            // Of four bits the far end may be cut; but all in all it is no worse than the scale that makes the largest -8.
            let (four, _) = rounded(Bits::Four, &values);
            let plain = f16::from_f32(values.iter().fold(0.0f32, |m, v| if v.abs() > m.abs() { *v } else { m }) / -8.0).to_f32();
            let error = |e: &[f32]| values.iter().zip(e).map(|(v, e)| f64::from(v - e).powi(2)).sum::<f64>();
            let plainly: Vec<f32> = values.iter().map(|v| (v / plain).round().clamp(-8.0, 7.0) * plain).collect();
            // But for codes that rounding the plain scale to float16 has moved across a half.
            prop_assert!(error(&four) <= error(&plainly) * 1.002, "{} above {}", error(&four), error(&plainly));
        }

        #[test]
        fn whole_numbers_are_found(x in -130f32..130.0) {
            prop_assert!((nearest(x) - x).abs() <= 0.5 && nearest(x).fract() == 0.0);
        }
    }

    #[test]
    fn blocks_of_the_same_format_are_taken_over() {
        let mut raw = f16::from_f32(0.75).to_le_bytes().to_vec();
        raw.extend((0..16).map(|i| i | (15 - i) << 4));
        for (factor, scale) in [(1.0, 0.75), (0.125, 0.09375)] {
            let mut codes = Codes { bits: Bits::Four, bytes: Vec::new(), scales: Vec::new(), loss: Loss::default() };
            let spec = spec(factor);
            codes.take(BlockFormat::Q4_0, &raw, &spec, &mut spec.gate()).unwrap();
            assert_eq!(codes.scales, [(scale, 0)]);
            // -8, -7 first; 7, 6 from the middle on.
            assert_eq!((codes.bytes[0], codes.bytes[8]), (0x98, 0x67));
            assert_eq!(codes.loss, Loss::default(), "nothing was rounded");
        }
    }

    #[test]
    fn a_scale_that_is_no_number_is_refused() {
        for scale in [f16::INFINITY, f16::NAN] {
            let mut raw = vec![0; 36];
            raw[18..20].copy_from_slice(&scale.to_le_bytes());
            let mut codes = Codes { bits: Bits::Four, bytes: Vec::new(), scales: Vec::new(), loss: Loss::default() };
            let spec = WeightSpec { dims: vec![2, 32], ..spec(1.0) };
            let error = codes.take(BlockFormat::Q4_0, &raw, &spec, &mut spec.gate()).unwrap_err();
            assert!(error.to_string().contains("at index [1, 0]: weights must be finite"), "{error}");
        }
    }

    #[test]
    fn six_bits_are_taken_over_with_their_two_levels_of_scales() {
        let mut raw = vec![0u8; 210];
        raw[0] = 0x3f; // element 0: 15 below; element 64: 3 below
        raw[128] = 0b10_01_00_11; // upper bits: element 0: 3, element 32: 0, element 64: 1, element 96: 2
        (0..16).for_each(|i| raw[192 + i] = (3 * i) as u8);
        raw[208..].copy_from_slice(&f16::from_f32(-0.37).to_le_bytes());
        let mut codes = Codes { bits: Bits::Six, bytes: Vec::new(), scales: Vec::new(), loss: Loss::default() };
        let spec = WeightSpec { dims: vec![1, 256], ..spec(0.125) };
        codes.take_six(&raw, &spec, &mut spec.gate()).unwrap();
        let code = |i: usize| codes.bytes[i].cast_signed();
        assert_eq!([0, 1, 32, 64, 96].map(code), [63 - 32, -32, -32, 19 - 32, 32 - 32]);
        let d = f16::from_f32(-0.37).to_f32();
        assert!((0..16).all(|i| codes.scales[i] == (d * (3 * i) as f32 / 8.0, 0)));
        assert_eq!(codes.loss, Loss::default(), "nothing was rounded");

        raw[208..].copy_from_slice(&f16::INFINITY.to_le_bytes());
        let error = codes.take_six(&raw, &spec, &mut spec.gate()).unwrap_err();
        assert!(error.to_string().contains("weights must be finite"), "{error}");
    }

    #[test]
    fn powers_of_two_are_known() {
        assert!([1.0, 0.125, 0.25, 2.0].into_iter().all(is_power_of_two));
        assert!(![0.0, 1.0 / 128f64.sqrt(), 3.0, -1.0, f64::NAN].into_iter().any(is_power_of_two));
    }

    #[test]
    fn a_scale_beyond_float16_is_refused() {
        let mut codes = Codes { bits: Bits::Four, bytes: Vec::new(), scales: Vec::new(), loss: Loss::default() };
        let error = codes.round(&[1e6; 32], &spec(1.0)).unwrap_err();
        assert!(error.to_string().contains("tensor `w` has 1000000"), "{error}");
    }
}
