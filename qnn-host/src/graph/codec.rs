//! Between declared element types and the two that steps work on. Bytes need no alignment.

use crate::bytes::Bytes;
use crate::graph::typed::Constant;
use crate::ir::{Dtype, Quant};
use crate::kernels::{Floats, FloatsMut, Isa, convert};
use crate::step::{Lane32, float_of};
use crate::storage::{QuantGrid, Storage};

/// Words as bytes.
fn as_bytes(words: &[u32]) -> &[u8] {
    // SAFETY: words have no padding and bytes need no alignment; the borrow moves along.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), size_of_val(words)) }
}

/// Elements of `dtype` as `f32` or `i32` lanes; quantised values by `grid`, without one as they are.
///
/// # Panics
/// When `bytes` does not hold exactly as many elements as `out`.
pub(crate) fn decode(isa: Isa, bytes: &[u8], dtype: Dtype, grid: Option<QuantGrid>, out: &mut [u32]) {
    assert_eq!(bytes.len(), out.len() * dtype.size_bytes(), "as many elements as words");
    macro_rules! each {
        ($n:literal, $f:expr) => {
            for (out, bytes) in out.iter_mut().zip(bytes.as_chunks::<$n>().0) {
                *out = $f(*bytes);
            }
        };
    }
    let word = |x: i64| (x.clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as i32).cast_unsigned();
    let real = |q: i64| grid.map_or(q as f32, |grid| grid.dequantise(q)).to_bits();
    match dtype {
        Dtype::F32 => each!(4, u32::from_ne_bytes),
        Dtype::F16 | Dtype::Bf16 => convert::widen(isa, Floats::new(bytes, float_of(dtype)), u32::as_real(out)),
        Dtype::I8 => each!(1, |b| i32::from(i8::from_ne_bytes(b)).cast_unsigned()),
        Dtype::I16 => each!(2, |b| i32::from(i16::from_ne_bytes(b)).cast_unsigned()),
        Dtype::I32 | Dtype::U32 => each!(4, u32::from_ne_bytes),
        Dtype::I64 => each!(8, |b| word(i64::from_ne_bytes(b))),
        Dtype::U8 => each!(1, |b: [u8; 1]| u32::from(b[0])),
        Dtype::U16 => each!(2, |b| u32::from(u16::from_ne_bytes(b))),
        Dtype::U64 => each!(8, |b| word(i64::try_from(u64::from_ne_bytes(b)).unwrap_or(i64::MAX))),
        Dtype::Bool8 => each!(1, |b: [u8; 1]| u32::from(b[0] != 0)),
        Dtype::SFixed4 => each!(1, |b: [u8; 1]| real(i64::from((b[0] << 4).cast_signed() >> 4))),
        Dtype::UFixed4 => each!(1, |b: [u8; 1]| real(i64::from(b[0] & 15))),
        Dtype::SFixed8 => each!(1, |b| real(i64::from(i8::from_ne_bytes(b)))),
        Dtype::UFixed8 => each!(1, |b: [u8; 1]| real(i64::from(b[0]))),
        Dtype::SFixed16 => each!(2, |b| real(i64::from(i16::from_ne_bytes(b)))),
        Dtype::UFixed16 => each!(2, |b| real(i64::from(u16::from_ne_bytes(b)))),
        Dtype::SFixed32 => each!(4, |b| real(i64::from(i32::from_ne_bytes(b)))),
        Dtype::UFixed32 => each!(4, |b| real(i64::from(u32::from_ne_bytes(b)))),
    }
}

/// Words as elements of `dtype`: numbers rounded, integers saturated (32-bit ones by their bits).
///
/// # Panics
/// When `out` does not hold exactly as many elements as `words`.
pub(crate) fn encode(isa: Isa, words: &[u32], dtype: Dtype, grid: Option<QuantGrid>, out: &mut [u8]) {
    assert_eq!(out.len(), words.len() * dtype.size_bytes(), "as many elements as words");
    macro_rules! each {
        ($n:literal, $f:expr) => {
            for (&word, out) in words.iter().zip(out.as_chunks_mut::<$n>().0) {
                *out = $f(word).to_ne_bytes();
            }
        };
    }
    let int = |word: u32, low: i64, high: i64| i64::from(word.cast_signed()).clamp(low, high);
    let quantised = |word: u32| {
        let x = f32::from_bits(word);
        grid.map_or(x.round() as i64, |grid| grid.quantise(x))
    };
    match dtype {
        Dtype::F32 | Dtype::I32 | Dtype::U32 => out.copy_from_slice(as_bytes(words)),
        Dtype::F16 | Dtype::Bf16 => {
            // SAFETY: words and numbers have the same size and alignment, every pattern is valid for both.
            let x = unsafe { std::slice::from_raw_parts(words.as_ptr().cast::<f32>(), words.len()) };
            convert::narrow(isa, x, FloatsMut::new(out, float_of(dtype)));
        }
        Dtype::I8 => each!(1, |w| int(w, -128, 127) as i8),
        Dtype::I16 => each!(2, |w| int(w, -32_768, 32_767) as i16),
        Dtype::I64 => each!(8, |w| int(w, i64::MIN, i64::MAX)),
        Dtype::U8 => each!(1, |w| int(w, 0, 255) as u8),
        Dtype::U16 => each!(2, |w| int(w, 0, 65_535) as u16),
        Dtype::U64 => each!(8, |w| int(w, 0, i64::MAX) as u64),
        Dtype::Bool8 => each!(1, |w| u8::from(w != 0)),
        Dtype::SFixed4 | Dtype::SFixed8 => each!(1, |w| quantised(w) as i8),
        Dtype::UFixed4 | Dtype::UFixed8 => each!(1, |w| quantised(w) as u8),
        Dtype::SFixed16 => each!(2, |w| quantised(w) as i16),
        Dtype::UFixed16 => each!(2, |w| quantised(w) as u16),
        Dtype::SFixed32 => each!(4, |w| quantised(w) as i32),
        Dtype::UFixed32 => each!(4, |w| quantised(w) as u32),
    }
}

/// A constant of any encoding as aligned `f32` or `i32` words.
pub(crate) fn decode_constant(isa: Isa, constant: &Constant, shape: &[usize]) -> Bytes {
    let n = shape.iter().product();
    let mut words = vec![0u32; n];
    let unpacked;
    let bytes: &[u8] = if constant.bytes.len() == n * constant.dtype.size_bytes() {
        &constant.bytes
    } else {
        // Two values per byte, the earlier in the lower half.
        unpacked = constant.bytes.iter().flat_map(|b| [b & 15, b >> 4]).take(n).collect::<Vec<u8>>();
        &unpacked
    };
    let one = |scale, offset| Some(QuantGrid { scale, offset, min: i64::MIN, max: i64::MAX });
    let fixed = Storage::of(constant.dtype) == Storage::F32 && !constant.dtype.is_float();
    match &constant.quant {
        Quant::PerTensor { scale, offset } if fixed => {
            decode(isa, bytes, constant.dtype, one(*scale, *offset), &mut words);
        }
        Quant::PerAxis { axis, scales, offsets, .. } if fixed => {
            decode(isa, bytes, constant.dtype, None, &mut words);
            let inner: usize = shape[*axis as usize + 1..].iter().product();
            for (i, word) in words.iter_mut().enumerate() {
                let channel = i / inner % scales.len();
                *word = rescaled(*word, scales[channel], offsets.get(channel));
            }
        }
        Quant::Block { block_dims, scales, offsets } if fixed => {
            decode(isa, bytes, constant.dtype, None, &mut words);
            for (i, word) in words.iter_mut().enumerate() {
                let block = block_of(i, shape, block_dims);
                *word = rescaled(*word, scales.get(block), offsets.get(block));
            }
        }
        _ => decode(isa, bytes, constant.dtype, None, &mut words),
    }
    Bytes::copy_from(as_bytes(&words))
}

/// A quantised value, kept as a number, with its scale and offset.
fn rescaled(quantised: u32, scale: f32, offset: Option<&i32>) -> u32 {
    let sum = f64::from(f32::from_bits(quantised)) + offset.map_or(0.0, |&o| f64::from(o));
    ((sum * f64::from(scale)) as f32).to_bits()
}

/// The row-major number of the block that element `i` is in.
fn block_of(mut i: usize, shape: &[usize], block_dims: &[u32]) -> usize {
    let (mut block, mut stride) = (0, 1);
    for (&dim, &len) in shape.iter().zip(block_dims).rev() {
        block += i % dim / len as usize * stride;
        stride *= dim.div_ceil(len as usize);
        i /= dim;
    }
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_survives_a_round_trip() {
        for dtype in Dtype::ALL {
            let numbers: [i32; 4] = if matches!(dtype, Dtype::Bool8) { [0, 1, 1, 0] } else { [0, 1, 5, 7] };
            let words = numbers.map(|x| match Storage::of(dtype) {
                Storage::F32 => (x as f32).to_bits(),
                Storage::I32 => x.cast_unsigned(),
            });
            let mut bytes = vec![0; 4 * dtype.size_bytes()];
            encode(Isa::PLAIN, &words, dtype, None, &mut bytes);
            let mut back = [0; 4];
            decode(Isa::PLAIN, &bytes, dtype, None, &mut back);
            assert_eq!(back, words, "{dtype:?}");
        }
    }

    #[test]
    fn codes_are_rounded_and_clamped() {
        let grid = QuantGrid { scale: 0.5, offset: -10, min: 0, max: 255 };
        let words = [0.0f32, 0.26, -100.0, 1e9, f32::NAN].map(f32::to_bits);
        let mut bytes = [0; 5];
        encode(Isa::PLAIN, &words, Dtype::UFixed8, Some(grid), &mut bytes);
        assert_eq!(bytes[..4], [10, 11, 0, 255]);
        let mut back = [0; 5];
        decode(Isa::PLAIN, &bytes, Dtype::UFixed8, Some(grid), &mut back);
        assert_eq!(back.map(f32::from_bits)[..4], [0.0, 0.5, -5.0, 122.5]);
    }

    #[test]
    fn blocks_and_channels_have_their_own_scales() {
        let constant = |quant| Constant::new(Bytes::copy_from(&[1, 2, 3, 4, 5, 6, 7, 8]), Dtype::SFixed8, quant);
        let numbers = |quant| -> Vec<f32> {
            let bytes = decode_constant(Isa::PLAIN, &constant(quant), &[2, 4]);
            bytes.as_chunks().0.iter().map(|&b| f32::from_ne_bytes(b)).collect()
        };
        let per_axis = Quant::PerAxis { axis: 0, bits: 8, scales: [1.0, 10.0].into(), offsets: [0, -1].into() };
        assert_eq!(numbers(per_axis), [1.0, 2.0, 3.0, 4.0, 40.0, 50.0, 60.0, 70.0]);
        let block = Quant::Block { block_dims: [1, 2].into(), scales: [1.0, 2.0, 3.0, 4.0].into(), offsets: [].into() };
        assert_eq!(numbers(block), [1.0, 2.0, 6.0, 8.0, 15.0, 18.0, 28.0, 32.0]);
    }
}
