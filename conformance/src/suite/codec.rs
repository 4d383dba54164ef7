//! Element types with their encodings: fitted to values, and between values and the bytes of a tensor.
//!
//! *Units*: `real = (code + offset) * scale`.

use genie_types::{Dtype, Quant};
use half::f16;

use super::values::Values;

/// How a tensor's encoding is found.
#[derive(Clone, Debug, PartialEq)]
pub enum Fit {
    /// There is none.
    Plain,
    /// One pair that covers the values and zero; signed types take no offset.
    Range,
    /// One pair with the offset in the middle of an unsigned type.
    Centred,
    /// A scale for each index of an axis, no offsets; codes of that many bits when fewer than the type has.
    Axis(u32, Option<u32>),
    /// Scales that are products of two operands' scales, as biases have.
    Product(usize, usize),
    /// As the operand of that number.
    Like(usize),
    /// This one.
    Given(Quant),
}

/// An element type and where its encoding comes from.
#[derive(Clone, Debug, PartialEq)]
pub struct Ty {
    /// The type.
    pub dtype: Dtype,
    /// The encoding.
    pub fit: Fit,
}

/// The types of the suite: `of(Dtype)` with the encoding that is usual for it.
pub const fn of(dtype: Dtype) -> Ty {
    Ty { dtype, fit: if dtype.is_fixed_point() { Fit::Range } else { Fit::Plain } }
}

/// float16.
pub const F16: Ty = of(Dtype::F16);
/// float32.
pub const F32: Ty = of(Dtype::F32);
/// Unsigned 8-bit codes.
pub const U8: Ty = of(Dtype::UFixed8);
/// Unsigned 16-bit codes.
pub const U16: Ty = of(Dtype::UFixed16);
/// Signed 8-bit codes.
pub const S8: Ty = of(Dtype::SFixed8);
/// Signed 16-bit codes.
pub const S16: Ty = of(Dtype::SFixed16);
/// Plain int32.
pub const I32: Ty = of(Dtype::I32);
/// Plain uint32.
pub const U32: Ty = of(Dtype::U32);
/// Booleans.
pub const BOOL: Ty = of(Dtype::Bool8);

impl Ty {
    /// Signed 8-bit codes with a scale for each index of `axis`.
    pub const fn s8_by(axis: u32) -> Self {
        Self { dtype: Dtype::SFixed8, fit: Fit::Axis(axis, None) }
    }

    /// 4-bit values, one per byte, with a scale for each index of `axis`.
    pub const fn s4_by(axis: u32) -> Self {
        Self { dtype: Dtype::SFixed8, fit: Fit::Axis(axis, Some(4)) }
    }

    /// The same type with another encoding.
    #[must_use]
    pub fn with(self, fit: Fit) -> Self {
        Self { fit, ..self }
    }

    /// As the type of an operand with its encoding.
    #[must_use]
    pub fn like(self, operand: usize) -> Self {
        self.with(Fit::Like(operand))
    }

    /// The encoding for those values, given the operands before.
    ///
    /// # Panics
    /// The type has no codes to fit, or an operand lacks the encoding that is asked for: a mistake in the table.
    pub fn encoding(&self, values: &Values, operands: &[Quant]) -> Quant {
        let (low, high) = code_range(self.dtype, None);
        match &self.fit {
            Fit::Plain => Quant::None,
            Fit::Given(quant) => quant.clone(),
            Fit::Like(operand) => operands[*operand].clone(),
            Fit::Range if low < 0 => Quant::PerTensor { scale: step(values.largest() / high as f64), offset: 0 },
            Fit::Range => {
                let min = values.data.iter().fold(0.0, |m: f64, x| m.min(*x));
                let max = values.data.iter().fold(0.0, |m: f64, x| m.max(*x));
                let scale = step((max - min) / high as f64);
                Quant::PerTensor { scale, offset: (min / f64::from(scale)).round() as i32 }
            }
            Fit::Centred => {
                let middle = i64::midpoint(high, 1);
                let scale = step(values.largest() / (middle - 1) as f64);
                Quant::PerTensor { scale, offset: -(middle as i32) }
            }
            Fit::Axis(axis, bits) => {
                let (_, high) = code_range(self.dtype, *bits);
                let mut largest = vec![0.0f64; values.dims[*axis as usize]];
                let inner: usize = values.dims[*axis as usize + 1..].iter().product();
                for (i, x) in values.data.iter().enumerate() {
                    let index = i / inner % largest.len();
                    largest[index] = largest[index].max(x.abs());
                }
                let pairs = largest.iter().map(|l| (step(l / high as f64), 0)).collect();
                Quant::PerAxis { axis: *axis, bits: *bits, scale_offsets: pairs }
            }
            Fit::Product(a, b) => {
                let Quant::PerTensor { scale, .. } = operands[*a] else { panic!("operand {a} has one scale") };
                match &operands[*b] {
                    Quant::PerTensor { scale: other, .. } => Quant::PerTensor { scale: scale * other, offset: 0 },
                    Quant::PerAxis { scale_offsets, .. } => Quant::PerAxis {
                        axis: 0,
                        bits: None,
                        scale_offsets: scale_offsets.iter().map(|(s, _)| (scale * s, 0)).collect(),
                    },
                    other => panic!("operand {b} has scales, not {other:?}"),
                }
            }
        }
    }
}

/// A scale that can be divided by.
fn step(scale: f64) -> f32 {
    if scale > 0.0 { scale as f32 } else { 1.0 }
}

/// Smallest and largest code; of narrow codes the symmetric range.
fn code_range(dtype: Dtype, bits: Option<u32>) -> (i64, i64) {
    let width = bits.unwrap_or(dtype.size_bytes() as u32 * 8);
    match dtype {
        Dtype::UFixed8 | Dtype::UFixed16 | Dtype::UFixed32 => (0, (1 << width) - 1),
        _ if bits.is_some() => (1 - (1 << (width - 1)), (1 << (width - 1)) - 1),
        _ => (i64::MIN >> (64 - width), i64::MAX >> (64 - width)),
    }
}

/// Scale and offset of the element at a row-major position.
fn pair(quant: &Quant, dims: &[usize], position: usize) -> (f64, i64) {
    match quant {
        Quant::PerTensor { scale, offset } => (f64::from(*scale), i64::from(*offset)),
        Quant::PerAxis { axis, scale_offsets, .. } => {
            let inner: usize = dims[*axis as usize + 1..].iter().product();
            let (scale, offset) = scale_offsets[position / inner % scale_offsets.len()];
            (f64::from(scale), i64::from(offset))
        }
        _ => (1.0, 0),
    }
}

/// The bytes of a tensor with those values, each rounded to the nearest that the type has.
///
/// # Panics
/// A type that the suite does not use.
pub fn encode(values: &Values, dtype: Dtype, quant: &Quant) -> Vec<u8> {
    let bits = if let Quant::PerAxis { bits, .. } = quant { *bits } else { None };
    let (low, high) = code_range(dtype, bits);
    let mut out = Vec::with_capacity(values.data.len() * dtype.size_bytes());
    for (i, &x) in values.data.iter().enumerate() {
        let code = || {
            let (scale, offset) = pair(quant, &values.dims, i);
            ((x / scale).round_ties_even() as i64 - offset).clamp(low, high)
        };
        match dtype {
            Dtype::F32 => out.extend((x as f32).to_le_bytes()),
            Dtype::F16 => out.extend(f16::from_f64(x).to_le_bytes()),
            Dtype::I32 => out.extend((x as i32).to_le_bytes()),
            Dtype::U32 => out.extend((x as u32).to_le_bytes()),
            Dtype::I64 => out.extend((x as i64).to_le_bytes()),
            Dtype::U8 => out.push(x as u8),
            Dtype::Bool8 => out.push(u8::from(x != 0.0)),
            Dtype::UFixed8 => out.push(code() as u8),
            Dtype::SFixed8 => out.push((code() as i8).cast_unsigned()),
            Dtype::UFixed16 => out.extend((code() as u16).to_le_bytes()),
            Dtype::SFixed16 => out.extend((code() as i16).to_le_bytes()),
            Dtype::SFixed32 => out.extend((code() as i32).to_le_bytes()),
            other => panic!("the suite has no values of {other}"),
        }
    }
    out
}

/// The values of a tensor's bytes.
///
/// # Panics
/// A type that the suite does not use, or bytes that do not fit the extents.
pub fn decode(bytes: &[u8], dims: &[usize], dtype: Dtype, quant: &Quant) -> Values {
    let n: usize = dims.iter().product();
    assert_eq!(bytes.len(), n * dtype.size_bytes(), "as many bytes as {dims:?} of {dtype} take");
    let data = bytes.chunks_exact(dtype.size_bytes()).enumerate().map(|(i, b)| {
        let real = |code: i64| {
            let (scale, offset) = pair(quant, dims, i);
            (code + offset) as f64 * scale
        };
        let word = || [b[0], b[1], b[2], b[3]];
        match dtype {
            Dtype::F32 => f64::from(f32::from_le_bytes(word())),
            Dtype::F16 => f16::from_le_bytes([b[0], b[1]]).to_f64(),
            Dtype::I32 => f64::from(i32::from_le_bytes(word())),
            Dtype::U32 => f64::from(u32::from_le_bytes(word())),
            Dtype::I64 => i64::from_le_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]) as f64,
            Dtype::U8 | Dtype::Bool8 => f64::from(b[0]),
            Dtype::UFixed8 => real(i64::from(b[0])),
            Dtype::SFixed8 => real(i64::from(b[0].cast_signed())),
            Dtype::UFixed16 => real(i64::from(u16::from_le_bytes([b[0], b[1]]))),
            Dtype::SFixed16 => real(i64::from(i16::from_le_bytes([b[0], b[1]]))),
            Dtype::SFixed32 => real(i64::from(i32::from_le_bytes(word()))),
            other => panic!("the suite has no values of {other}"),
        }
    });
    Values::new(dims, data.collect())
}

/// How tables and messages call a type with its encoding.
pub fn label(dtype: Dtype, quant: &Quant) -> String {
    let short = match dtype {
        Dtype::F16 => "f16",
        Dtype::F32 => "f32",
        Dtype::I32 => "i32",
        Dtype::U32 => "u32",
        Dtype::I64 => "i64",
        Dtype::Bool8 => "bool",
        Dtype::UFixed8 => "u8",
        Dtype::UFixed16 => "u16",
        Dtype::SFixed8 => "s8",
        Dtype::SFixed16 => "s16",
        Dtype::SFixed32 => "s32",
        other => other.name(),
    };
    match quant {
        Quant::PerAxis { axis, bits: Some(4), .. } => format!("s4 by axis {axis}"),
        Quant::PerAxis { axis, .. } => format!("{short} by axis {axis}"),
        _ => short.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fitted_codes_are_within_half_a_step() {
        let values = Values::noise(1, [4, 6], 3.0);
        for ty in [U8, U16, S8, S16, Ty::s8_by(0), Ty::s8_by(1), Ty::s4_by(1), U8.with(Fit::Centred)] {
            let quant = ty.encoding(&values, &[]);
            let back = decode(&encode(&values, ty.dtype, &quant), &values.dims, ty.dtype, &quant);
            for (i, (x, y)) in values.data.iter().zip(&back.data).enumerate() {
                let (scale, _) = pair(&quant, &values.dims, i);
                assert!((x - y).abs() <= 0.5001 * scale, "{ty:?}: {x} became {y}");
            }
        }
    }

    #[test]
    fn plain_types_come_back() {
        let values = Values::new([4], vec![0.0, 1.0, 7.0, 100.0]);
        for ty in [F16, F32, I32, U32, of(Dtype::I64)] {
            let quant = ty.encoding(&values, &[]);
            assert_eq!(decode(&encode(&values, ty.dtype, &quant), &[4], ty.dtype, &quant), values);
        }
    }
}
