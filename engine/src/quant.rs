//! Real numbers to element types and back, for inputs and outputs of a graph.
//!
//! *Units*: `real = (quantised + offset) * scale`, as QNN has it.

use genie_types::{Dtype, Quant};
use half::f16;
use half::slice::HalfFloatSliceExt;

use crate::buffer::{elements, elements_mut};

/// How a tensor's elements stand for numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct QuantParams {
    pub(crate) dtype: Dtype,
    /// 1 for floats.
    pub(crate) scale: f32,
    pub(crate) offset: i32,
}

/// What becomes of a number between two quantised values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rounding {
    /// The next lower one, as in libGenie's rotary tables.
    Down,
    /// The nearest one.
    Nearest,
}

impl QuantParams {
    /// `None` if the dtype has no numbers, or is fixed point without a scale for the whole tensor.
    pub(crate) fn of(dtype: Dtype, quant: &Quant) -> Option<Self> {
        match dtype {
            Dtype::F16 | Dtype::F32 => Some(Self { dtype, scale: 1.0, offset: 0 }),
            Dtype::UFixed8 | Dtype::UFixed16 | Dtype::SFixed8 | Dtype::SFixed16 => {
                quant.per_tensor().map(|(scale, offset)| Self { dtype, scale, offset })
            }
            _ => None,
        }
    }

    pub(crate) fn size_bytes(self) -> usize {
        self.dtype.size_bytes()
    }

    /// Writes numbers; `bytes` begins at an element and has room for all of them.
    pub(crate) fn encode(self, numbers: impl Iterator<Item = f64>, rounding: Rounding, bytes: &mut [u8]) {
        let (scale, offset) = (f64::from(self.scale), f64::from(self.offset));
        let quantise = move |x: f64| {
            let exact = x / scale - offset;
            if rounding == Rounding::Down { exact.floor() } else { exact.round() }
        };
        // Casts from float saturate, so values beyond the type end at its limits.
        match self.dtype {
            Dtype::F32 => put(bytes, numbers.map(|x| x as f32)),
            Dtype::F16 => put(bytes, numbers.map(f16::from_f64)),
            Dtype::UFixed8 => put(bytes, numbers.map(|x| quantise(x) as u8)),
            Dtype::UFixed16 => put(bytes, numbers.map(|x| quantise(x) as u16)),
            Dtype::SFixed8 => put(bytes, numbers.map(|x| quantise(x) as i8)),
            Dtype::SFixed16 => put(bytes, numbers.map(|x| quantise(x) as i16)),
            other => unreachable!("`QuantParams::of` refuses {other}"),
        }
    }

    /// Reads as many numbers as `out` takes; `bytes` begins at an element.
    pub(crate) fn decode(self, bytes: &[u8], out: &mut [f32]) {
        let (scale, offset) = (self.scale, self.offset);
        let real = move |q: i32| (q + offset) as f32 * scale;
        match self.dtype {
            Dtype::F32 => out.copy_from_slice(&elements(bytes)[..out.len()]),
            Dtype::F16 => elements::<f16>(bytes)[..out.len()].convert_to_f32_slice(out),
            Dtype::UFixed8 => get(bytes, out, |c: u8| real(c.into())),
            Dtype::UFixed16 => get(bytes, out, |c: u16| real(c.into())),
            Dtype::SFixed8 => get(bytes, out, |c: i8| real(c.into())),
            Dtype::SFixed16 => get(bytes, out, |c: i16| real(c.into())),
            other => unreachable!("`QuantParams::of` refuses {other}"),
        }
    }
}

fn put<T: bytemuck::Pod>(bytes: &mut [u8], numbers: impl Iterator<Item = T>) {
    elements_mut::<T>(bytes).iter_mut().zip(numbers).for_each(|(to, x)| *to = x);
}

fn get<T: bytemuck::Pod>(bytes: &[u8], out: &mut [f32], real: impl Fn(T) -> f32) {
    out.iter_mut().zip(elements::<T>(bytes)).for_each(|(to, x)| *to = real(*x));
}

/// The first logit that no sampler can use. Minus infinity is fine: it rules an entry out.
pub(crate) fn not_finite(logits: &[f32]) -> Option<(usize, &'static str)> {
    // The fold vectorises; looking for the place is done only when there is one.
    let bad = |x: f32| x.is_nan() || x == f32::INFINITY;
    if !logits.iter().fold(false, |any, &x| any | bad(x)) {
        return None;
    }
    let index = logits.iter().position(|&x| bad(x))?;
    Some((index, if logits[index].is_nan() { "NaN" } else { "+inf" }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::Buffer;

    fn encoding(dtype: Dtype, scale: f32, offset: i32) -> QuantParams {
        QuantParams::of(dtype, &Quant::PerTensor { scale, offset }).unwrap()
    }

    #[test]
    fn quantised_as_libgenie_does() {
        // Measured: scale 2/65535, offset -32768: 1 -> 65535, 0 -> 32768; values are cut, not rounded.
        let e = encoding(Dtype::UFixed16, 2.0 / 65535.0, -32768);
        let mut buffer = Buffer::zeroed(8);
        e.encode([1.0, 0.0, -1.0, 0.999_99].into_iter(), Rounding::Down, buffer.bytes_mut());
        assert_eq!(elements::<u16>(buffer.bytes()), [65535, 32768, 0, 65535]);
        e.encode([0.5, 0.25].into_iter(), Rounding::Down, buffer.bytes_mut());
        assert_eq!(elements::<u16>(buffer.bytes())[..2], [49151, 40959]);
        e.encode([0.5, 0.25].into_iter(), Rounding::Nearest, buffer.bytes_mut());
        assert_eq!(elements::<u16>(buffer.bytes())[..2], [49152, 40960]);
    }

    #[test]
    fn every_type_comes_back() {
        for (e, step) in [
            (encoding(Dtype::F32, 0.0, 0), 1e-7),
            (encoding(Dtype::F16, 0.0, 0), 1e-3),
            (encoding(Dtype::UFixed8, 0.01, -100), 0.01),
            (encoding(Dtype::SFixed8, 0.01, 0), 0.01),
            (encoding(Dtype::UFixed16, 1e-4, -20000), 1e-4),
            (encoding(Dtype::SFixed16, 1e-4, 0), 1e-4),
        ] {
            let numbers = [0.0, 1.0, -1.0, 0.123_456, -0.7];
            let mut buffer = Buffer::zeroed(20);
            let mut back = [9.0; 5];
            e.encode(numbers.into_iter(), Rounding::Nearest, buffer.bytes_mut());
            e.decode(buffer.bytes(), &mut back);
            for (x, y) in numbers.iter().zip(back) {
                assert!((x - f64::from(y)).abs() <= step * 0.51, "{e:?}: {x} came back as {y}");
            }
        }
    }

    #[test]
    fn values_end_at_the_limits_of_their_type() {
        let mut buffer = Buffer::zeroed(2);
        encoding(Dtype::UFixed8, 0.01, 0).encode([99.0, -99.0].into_iter(), Rounding::Nearest, buffer.bytes_mut());
        assert_eq!(buffer.bytes(), [255, 0]);
    }

    #[test]
    fn encodings_that_are_none() {
        assert_eq!(QuantParams::of(Dtype::UFixed8, &Quant::None), None);
        assert_eq!(QuantParams::of(Dtype::I32, &Quant::None), None);
    }

    #[test]
    fn bad_logits_are_found() {
        assert_eq!(not_finite(&[1.0, f32::NEG_INFINITY, -3.0]), None);
        assert_eq!(not_finite(&[1.0, f32::NAN, f32::INFINITY]), Some((1, "NaN")));
        assert_eq!(not_finite(&[f32::INFINITY]), Some((0, "+inf")));
        assert_eq!(not_finite(&[]), None);
    }
}
