//! Quantised values in blocks of 32 along the inputs with a float16 scale per block; those of `Q6_K` and `Q3_K` unchanged, in
//! blocks of 16, as those of `Q2_K`, and those of `Q4_K`, `Q5_K` and `IQ4_XS`, in blocks of 32 with scales of two levels. Scales of
//! `MXFP4` are powers of two, which float16 need not hold: graphs have all scales as f32.
//!
//! *Layout*: `[out, in]`; 8-bit values one per byte, 4-bit values two per byte, the earlier in the lower half. Blocks of a GGUF
//! file in the same format, or in one of fewer bits, are copied value by value; other weights are rounded. No factor is folded into
//! either ([`super::weights`]).
//! Where a format has minima, they are a tensor of their own: a whole number for each block, with a scale for each 256 values.
//! *Units*: `w = q * scale`, less `minimum * scale` where there are minima. 8 bits: `scale = max |w| / 127`. 4 bits: of the scales that make the largest magnitude a value from
//! -7 to -9 (whichever its sign; -9 is cut to -8), the one with the least squared error over the block.
//! Scales are rounded to float16 before values are quantised, so that the error of the scale is part of the choice.

use super::encode::Minima;
use super::rounding_loss::RoundingLoss;
use super::weight_format::{BLOCK, BlockBits, WeightSpec};
use crate::checkpoint::{BlockFormat, Checkpoint, FiniteCheck, SourceDtype, TensorEntry, for_each_chunk, for_each_raw};
use crate::fs::OnBytes;
use crate::{CompileError, Result};
use core::ops::RangeInclusive;
use genie_types::{Dtype, Quant, TensorInfo};
use half::f16;

/// A weight as blocks.
pub(super) struct Stored {
    pub(super) info: TensorInfo,
    pub(super) bytes: Vec<u8>,
    pub(super) minima: Option<Minima>,
    /// Error of rounding.
    pub(super) loss: RoundingLoss,
    /// What is to be said of scales that cannot be packed.
    pub(super) note: Option<String>,
}

/// One weight as blocks.
///
/// # Errors
/// Rows that are no whole number of blocks; weights that cannot be read, are not finite, or too large for their scales; those of
/// `on_read`.
pub(super) fn blocks(
    checkpoint: &Checkpoint,
    weight: &WeightSpec,
    entry: &TensorEntry,
    bits: BlockBits,
    on_read: &mut OnBytes<'_>,
) -> Result<Stored> {
    let cols = weight.dims.last().copied().unwrap_or(0);
    if weight.dims.len() != 2 || !cols.is_multiple_of(BLOCK) {
        return Err(CompileError::NoBlocks { name: weight.name.clone(), dims: weight.dims.clone(), block: BLOCK });
    }
    debug_assert_eq!(weight.scale, 1.0, "{}: no factor is folded into blocks", weight.name);
    let mut writer = BlockWriter::new(bits);
    writer.bytes.reserve_exact(weight.n_elems() / if writer.pairs() { 2 } else { 1 });
    writer.scales.reserve_exact(weight.n_elems() / bits.block());
    let mut finite = weight.finite_check();
    match (&entry.dtype, bits) {
        (SourceDtype::Blocks(format), BlockBits::Six) => {
            for_each_raw(checkpoint, &weight.name, entry, on_read, |raw| {
                writer.copy_two_levels(*format, raw, &mut finite)
            })?;
        }
        (SourceDtype::Blocks(format), BlockBits::KTwo) => {
            for_each_raw(checkpoint, &weight.name, entry, on_read, |raw| {
                writer.copy_half_steps(*format, raw, &mut finite)
            })?;
        }
        (SourceDtype::Blocks(format), BlockBits::KFour | BlockBits::KFive | BlockBits::Levels) => {
            for_each_raw(checkpoint, &weight.name, entry, on_read, |raw| writer.copy_steps(*format, raw, &mut finite))?;
        }
        (SourceDtype::Blocks(format), bits) if bits.hold(*format) && !checkpoint.is_changed(&weight.name) => {
            for_each_raw(checkpoint, &weight.name, entry, on_read, |raw| writer.copy(*format, raw, &mut finite))?;
        }
        _ => for_each_chunk(checkpoint, &weight.name, entry, on_read, |values| writer.round(values, weight))?,
    }
    let note = writer.unpacked.map(|scales| scales.note());
    let BlockWriter { bytes, scales, minima, loss, .. } = writer;
    let quant = Quant::Block { block_dims: vec![1, bits.block() as u32], scale_offsets: scales };
    let minima = (!minima.0.is_empty()).then(|| {
        let (bytes, scale_offsets) = minima;
        let (name, dims) = (format!("{}_minima", weight.stored_as), vec![weight.dims[0], cols / bits.block()]);
        let quant = Quant::Block { block_dims: vec![1, (MINIMA_OF / bits.block()) as u32], scale_offsets };
        Minima { info: TensorInfo::new(name, dims, Dtype::UFixed8).with_quant(quant), bytes }
    });
    Ok(Stored { info: weight.info(bits.dtype()).with_quant(quant), bytes, minima, loss, note })
}

/// Powers of two that the embedded backend packs as exponents; source: docs/graph-contract.md, *Weights in blocks of few values*.
const EXPONENTS: RangeInclusive<i32> = -126..=119;

/// Scales of `MXFP4` outside of [`EXPONENTS`]: a matrix with any is packed in no form.
#[derive(Clone, Copy)]
struct Unpacked {
    blocks: usize,
    /// The exponent of the first.
    first: i32,
}

impl Unpacked {
    fn note(self) -> String {
        let Self { blocks, first } = self;
        let (least, most) = EXPONENTS.into_inner();
        format!(
            "{blocks} of its blocks in MXFP4 have scales outside of 2^{least} to 2^{most} (the first, 2^{first}): it is stored as \
             bytes with float32 scales, 9 bits per weight and not 4.25, and computed in float32"
        )
    }
}

/// Values whose minima share a scale.
const MINIMA_OF: usize = 256;

/// Blocks under construction.
struct BlockWriter {
    bits: BlockBits,
    bytes: Vec<u8>,
    scales: Vec<(f32, i32)>,
    /// Minima and their scales.
    minima: (Vec<u8>, Vec<(f32, i32)>),
    loss: RoundingLoss,
    unpacked: Option<Unpacked>,
}

impl BlockWriter {
    fn new(bits: BlockBits) -> Self {
        let (minima, loss) = (Default::default(), RoundingLoss::default());
        Self { bits, bytes: Vec::new(), scales: Vec::new(), minima, loss, unpacked: None }
    }

    /// Whether two values share a byte.
    fn pairs(&self) -> bool {
        matches!(self.bits, BlockBits::Four | BlockBits::KFour | BlockBits::KTwo)
    }

    /// Copies blocks without rounding.
    fn copy(&mut self, format: BlockFormat, raw: &[u8], finite: &mut FiniteCheck<'_>) -> Result<()> {
        for block in raw.chunks_exact(format.bytes()) {
            let mut q = [0; BLOCK];
            let scale = format.unpack(block, &mut q);
            // A float16 times a byte is always finite; the largest scales of `MXFP4` leave f32's range.
            let largest = q.iter().fold(0, |m, q| q.unsigned_abs().max(m));
            finite.pass_scaled(BLOCK, &[scale, scale * f32::from(largest)])?;
            if format == BlockFormat::MXFP4 {
                self.see_power(scale);
            }
            self.push(scale, &q);
        }
        Ok(())
    }

    /// Counts a power of two that cannot be packed.
    fn see_power(&mut self, scale: f32) {
        let exponent = scale.log2().round() as i32;
        if scale != 0.0 && !EXPONENTS.contains(&exponent) {
            self.unpacked.get_or_insert(Unpacked { blocks: 0, first: exponent }).blocks += 1;
        }
    }

    /// Copies blocks of `Q6_K` or `Q3_K`.
    fn copy_two_levels(&mut self, format: BlockFormat, raw: &[u8], finite: &mut FiniteCheck<'_>) -> Result<()> {
        for block in raw.chunks_exact(format.bytes()) {
            let (q, scales) = format.two_levels(block);
            for scale in scales {
                finite.pass_scaled(BLOCK / 2, &[scale])?;
                self.scales.push((scale, 0));
            }
            self.bytes.extend(q.map(i8::cast_unsigned));
        }
        Ok(())
    }

    /// Copies blocks of `Q2_K`.
    fn copy_half_steps(&mut self, format: BlockFormat, raw: &[u8], finite: &mut FiniteCheck<'_>) -> Result<()> {
        for block in raw.chunks_exact(format.bytes()) {
            let parts = format.half_steps(block);
            for scale in parts.scales {
                finite.pass_scaled(BLOCK / 2, &[parts.unit, scale])?;
                self.scales.push((scale, 0));
            }
            self.push_values(&parts.q);
            self.minima.0.extend(parts.minima);
            self.minima.1.push((parts.unit, 0));
        }
        Ok(())
    }

    /// Copies blocks of `Q4_K`, `Q5_K` or `IQ4_XS`.
    fn copy_steps(&mut self, format: BlockFormat, raw: &[u8], finite: &mut FiniteCheck<'_>) -> Result<()> {
        for block in raw.chunks_exact(format.bytes()) {
            let steps = format.steps(block);
            let unit = steps.minima.map_or(0.0, |(_, unit)| unit);
            for (scale, q) in steps.scales.into_iter().zip(steps.q.as_chunks::<BLOCK>().0) {
                finite.pass_scaled(BLOCK, &[unit, scale])?;
                self.push(scale, q);
            }
            if let Some((minima, unit)) = steps.minima {
                self.minima.0.extend(minima);
                self.minima.1.push((unit, 0));
            }
        }
        Ok(())
    }

    /// Rounds whole blocks of finite numbers.
    fn round(&mut self, values: &[f32], weight: &WeightSpec) -> Result<()> {
        for block in values.as_chunks::<BLOCK>().0 {
            let largest = block.iter().copied().fold(0.0f32, |m, v| if v.abs() > m.abs() { v } else { m });
            let (scale, low, high) = match self.bits {
                BlockBits::Eight => (f16::from_f32(largest.abs() / 127.0).to_f32(), -127.0, 127.0),
                BlockBits::Four => (four_bit_scale(block, largest), FOUR.0, FOUR.1),
                bits => unreachable!("blocks of {bits:?} are only copied"),
            };
            if !scale.is_finite() {
                return Err(CompileError::ScaleOverflow { name: weight.name.clone(), value: largest });
            }
            let quantise = |v: f32| if scale == 0.0 { 0 } else { nearest((v / scale).clamp(low, high)) as i8 };
            let q = block.map(quantise);
            for (v, q) in block.iter().zip(q) {
                self.loss.add(*v, f32::from(q) * scale);
            }
            self.push(scale, &q);
        }
        Ok(())
    }

    fn push(&mut self, scale: f32, q: &[i8; BLOCK]) {
        self.scales.push((scale, 0));
        self.push_values(q);
    }

    /// Values of whole blocks.
    fn push_values(&mut self, q: &[i8]) {
        if self.pairs() {
            let pair = |pair: &[i8; 2]| (pair[0] & 15).cast_unsigned() | pair[1].cast_unsigned() << 4;
            self.bytes.extend(q.as_chunks::<2>().0.iter().map(pair));
        } else {
            self.bytes.extend(q.iter().map(|q| q.cast_unsigned()));
        }
    }
}

/// Smallest and largest value of four bits.
const FOUR: (f32, f32) = (-8.0, 7.0);
/// Candidates for the largest magnitude of a block, before it is cut to -8: the plain choice first.
const ENDS: [f32; 9] = [-8.0, -7.0, -7.25, -7.5, -7.75, -8.25, -8.5, -8.75, -9.0];

/// Independent sums, so that the compiler can vectorise them.
const LANES: usize = 8;

/// A scale replaces another only if it explains this share more of the block's squares: rounding to float16 may lose as much.
const LEAST_GAIN: f32 = 2e-6;

/// The float16 scale for a block in four bits.
fn four_bit_scale(block: &[f32; BLOCK], largest: f32) -> f32 {
    let half = |scale: f32| f16::from_f32(scale).to_f32();
    let plain = half(largest / ENDS[0]);
    if plain.abs() < 2.0 * f16::MIN_POSITIVE.to_f32() || !plain.is_finite() {
        return plain;
    }
    // With its best scale, a choice of q leaves the error `sum w^2 - (sum w q)^2 / sum q^2`.
    let mut best = (0.0, plain);
    for end in ENDS {
        let per_step = end / largest;
        let q = block.map(|v| nearest((v * per_step).clamp(FOUR.0, FOUR.1)));
        let (mut products, mut squares) = ([0.0f32; LANES], [0.0f32; LANES]);
        for (w, q) in block.as_chunks::<LANES>().0.iter().zip(q.as_chunks::<LANES>().0) {
            for lane in 0..LANES {
                products[lane] += w[lane] * q[lane];
                squares[lane] += q[lane] * q[lane];
            }
        }
        let (product, square) = (products.iter().sum::<f32>(), squares.iter().sum::<f32>());
        let explained = product * product / square;
        if explained > best.0 * (1.0 + LEAST_GAIN) {
            best = (explained, half(product / square));
        }
    }
    if best.1.is_finite() { best.1 } else { plain }
}

/// The nearest whole number of one below 2^22, ties to even. An addition and a subtraction, where `round` is a call.
fn nearest(x: f32) -> f32 {
    const SHIFT: f32 = 1.5 * (1 << 23) as f32;
    (x + SHIFT) - SHIFT
}

#[cfg(test)]
mod tests {
    use super::super::weight_format::Role;
    use super::*;
    use proptest::prelude::*;

    fn spec() -> WeightSpec {
        WeightSpec {
            name: "w".into(),
            stored_as: "w".into(),
            dims: vec![1, 32],
            role: Role::Linear,
            offset: 0.0,
            scale: 1.0,
        }
    }

    fn rounded(bits: BlockBits, values: &[f32]) -> (Vec<f32>, f32) {
        let mut writer = BlockWriter::new(bits);
        writer.round(values, &spec()).unwrap();
        let scale = writer.scales[0].0;
        let q = |i: usize| match bits {
            BlockBits::Four => (writer.bytes[i / 2] >> (i % 2 * 4) << 4).cast_signed() >> 4,
            _ => writer.bytes[i].cast_signed(),
        };
        ((0..32).map(|i| f32::from(q(i)) * scale).collect(), scale.abs())
    }

    proptest! {
        #[test]
        fn no_weight_moves_by_more_than_a_step_allows(values in prop::collection::vec(-100f32..100.0, 32)) {
            let (eight, step) = rounded(BlockBits::Eight, &values);
            for (v, e) in values.iter().zip(&eight) {
                prop_assert!((v - e).abs() <= step * 0.57, "{} as {} in steps of {}", v, e, step);
            }
            // In four bits the far end may be cut, but the whole block is no worse than with the scale that makes the largest -8.
            let (four, _) = rounded(BlockBits::Four, &values);
            let plain = f16::from_f32(values.iter().fold(0.0f32, |m, v| if v.abs() > m.abs() { *v } else { m }) / -8.0).to_f32();
            let error = |e: &[f32]| values.iter().zip(e).map(|(v, e)| f64::from(v - e).powi(2)).sum::<f64>();
            let plainly: Vec<f32> = values.iter().map(|v| (v / plain).round().clamp(-8.0, 7.0) * plain).collect();
            // The margin is for values that rounding the plain scale to float16 moved across a half.
            prop_assert!(error(&four) <= error(&plainly) * 1.002, "{} above {}", error(&four), error(&plainly));
        }

        /// Every format that is said to be copied gives the very numbers that its definition does.
        #[test]
        fn copied_blocks_keep_every_number(bytes in prop::collection::vec(any::<u8>(), 256), scale in -4000i16..4000, unit in -1f32..1.0) {
            use BlockFormat::{IQ4_NL, IQ4_XS, MXFP4, Q2K, Q3K, Q4_0, Q4K, Q5_0, Q5K, Q6K, Q8_0};
            let scale = f16::from_f32(f32::from(scale) / 1024.0);
            for (format, bits, half_at) in [
                (Q4_0, BlockBits::Four, 0),
                (Q4_0, BlockBits::Eight, 0),
                (Q5_0, BlockBits::Eight, 0),
                (Q8_0, BlockBits::Eight, 0),
                (IQ4_NL, BlockBits::Eight, 0),
                (MXFP4, BlockBits::Eight, 0),
                (Q6K, BlockBits::Six, 208),
                (Q3K, BlockBits::Six, 108),
                (Q2K, BlockBits::KTwo, 80),
                (Q4K, BlockBits::KFour, 0),
                (Q5K, BlockBits::KFive, 0),
                (IQ4_XS, BlockBits::Levels, 0),
            ] {
                let mut raw = bytes[..format.bytes()].to_vec();
                if format == MXFP4 {
                    // Larger ones may leave f32's range.
                    raw[0] %= 253;
                } else {
                    raw[half_at..half_at + 2].copy_from_slice(&scale.to_le_bytes());
                }
                if matches!(format, Q2K | Q4K | Q5K) {
                    let at = if format == Q2K { 82 } else { 2 };
                    raw[at..at + 2].copy_from_slice(&f16::from_f32(unit).to_le_bytes());
                }
                let mut defined = vec![f32::NAN; format.elems()];
                format.decode(&raw, &mut defined);
                let spec = WeightSpec { dims: vec![1, format.elems()], ..spec() };
                let (mut writer, mut finite) = (BlockWriter::new(bits), spec.finite_check());
                match bits {
                    BlockBits::Six => writer.copy_two_levels(format, &raw, &mut finite).unwrap(),
                    BlockBits::KTwo => writer.copy_half_steps(format, &raw, &mut finite).unwrap(),
                    BlockBits::KFour | BlockBits::KFive | BlockBits::Levels => {
                        writer.copy_steps(format, &raw, &mut finite).unwrap();
                    }
                    _ => writer.copy(format, &raw, &mut finite).unwrap(),
                }
                prop_assert_eq!(&writer.loss, &RoundingLoss::default(), "{:?} is not rounded", format);
                for (i, defined) in defined.iter().enumerate() {
                    let q = match bits {
                        BlockBits::Four => (writer.bytes[i / 2] >> (i % 2 * 4) << 4).cast_signed() >> 4,
                        BlockBits::KFour | BlockBits::KTwo => (writer.bytes[i / 2] >> (i % 2 * 4) & 15).cast_signed(),
                        _ => writer.bytes[i].cast_signed(),
                    };
                    let product = f32::from(q) * writer.scales[i / bits.block()].0;
                    let (minima, units) = &writer.minima;
                    let minimum = minima.get(i / bits.block()).map_or(0.0, |&m| f32::from(m) * units[i / 256].0);
                    prop_assert_eq!(product - minimum, *defined, "{:?} at {}", format, i);
                }
            }
        }

        #[test]
        fn whole_numbers_are_found(x in -130f32..130.0) {
            prop_assert!((nearest(x) - x).abs() <= 0.5 && nearest(x).fract() == 0.0);
        }
    }

    #[test]
    fn blocks_of_the_same_format_are_copied() {
        let mut raw = f16::from_f32(0.75).to_le_bytes().to_vec();
        raw.extend((0..16).map(|i| i | (15 - i) << 4));
        let mut writer = BlockWriter::new(BlockBits::Four);
        writer.copy(BlockFormat::Q4_0, &raw, &mut spec().finite_check()).unwrap();
        assert_eq!(writer.scales, [(0.75, 0)]);
        // -8, -7 first; 7, 6 from the middle on.
        assert_eq!((writer.bytes[0], writer.bytes[8]), (0x98, 0x67));
        assert_eq!(writer.loss, RoundingLoss::default(), "nothing was rounded");
    }

    #[test]
    fn a_scale_that_is_not_finite_is_refused() {
        for scale in [f16::INFINITY, f16::NAN] {
            let mut raw = vec![0; 36];
            raw[18..20].copy_from_slice(&scale.to_le_bytes());
            let mut writer = BlockWriter::new(BlockBits::Four);
            let spec = WeightSpec { dims: vec![2, 32], ..spec() };
            let error = writer.copy(BlockFormat::Q4_0, &raw, &mut spec.finite_check()).unwrap_err();
            assert!(error.to_string().contains("at index [1, 0]: weights must be finite"), "{error}");
        }
    }

    #[test]
    fn powers_of_two_are_kept_where_float16_has_none_and_refused_where_weights_are_not_finite() {
        let copied = |e: u8, q: u8| {
            let mut writer = BlockWriter::new(BlockBits::Eight);
            let raw: Vec<u8> = std::iter::once(e).chain([q; 16]).collect();
            let copied = writer.copy(BlockFormat::MXFP4, &raw, &mut spec().finite_check());
            copied.map(|()| (writer.scales[0].0, writer.bytes[0].cast_signed())).map_err(|e| e.to_string())
        };
        // Of 4 bits 7 is 6, 1 is 0.5, and 15 is -6: twice that are bytes.
        assert_eq!(copied(127, 0x77), Ok((0.5, 12)));
        assert_eq!(copied(60, 0xff), Ok((2f32.powi(-68), -12)));
        assert_eq!(copied(2, 0x11), Ok((f32::MIN_POSITIVE, 1)));
        assert_eq!(copied(0, 0x11), Ok((f32::MIN_POSITIVE / 4.0, 1)));
        // ggml's zeros.
        assert_eq!(copied(0, 0x00), Ok((0.0, 0)));
        assert_eq!(copied(1, 0x88), Ok((0.0, 0)));
        assert_eq!(copied(120, 0x88), Ok((2f32.powi(-8), 0)));
        assert_eq!(copied(252, 0x77), Ok((2f32.powi(124), 12)));
        let refused = |value: &str| Err(format!("tensor `w` has {value} at index [0, 0]: weights must be finite"));
        assert_eq!(copied(253, 0x77), refused("inf"));
        assert_eq!(copied(253, 0x66), refused("inf"));
        assert_eq!(copied(253, 0x55), Ok((2f32.powi(125), 6)));
        assert_eq!(copied(255, 0x00), refused("NaN"));
    }

    #[test]
    fn six_bits_are_copied_with_both_levels_of_scales() {
        let mut raw = vec![0u8; 210];
        raw[0] = 0x3f; // element 0: 15 below; element 64: 3 below
        raw[128] = 0b10_01_00_11; // upper bits: element 0: 3, element 32: 0, element 64: 1, element 96: 2
        (0..16).for_each(|i| raw[192 + i] = (3 * i) as u8);
        raw[208..].copy_from_slice(&f16::from_f32(-0.37).to_le_bytes());
        let mut writer = BlockWriter::new(BlockBits::Six);
        let spec = WeightSpec { dims: vec![1, 256], ..spec() };
        writer.copy_two_levels(BlockFormat::Q6K, &raw, &mut spec.finite_check()).unwrap();
        let q = |i: usize| writer.bytes[i].cast_signed();
        assert_eq!([0, 1, 32, 64, 96].map(q), [63 - 32, -32, -32, 19 - 32, 32 - 32]);
        let d = f16::from_f32(-0.37).to_f32();
        assert!((0..16).all(|i| writer.scales[i] == (d * (3 * i) as f32, 0)));
        assert_eq!(writer.loss, RoundingLoss::default(), "nothing was rounded");

        raw[208..].copy_from_slice(&f16::INFINITY.to_le_bytes());
        let error = writer.copy_two_levels(BlockFormat::Q6K, &raw, &mut spec.finite_check()).unwrap_err();
        assert!(error.to_string().contains("weights must be finite"), "{error}");
    }

    #[test]
    fn a_scale_beyond_float16_is_refused() {
        let mut writer = BlockWriter::new(BlockBits::Four);
        let error = writer.round(&[1e6; 32], &spec()).unwrap_err();
        assert!(error.to_string().contains("tensor `w` has 1000000"), "{error}");
    }
}
