//! How numbers are kept between nodes: as `f32` or `i32`, rounded to what the declared type holds.

use crate::ir::{Dtype, Quant};

/// How a value is kept between nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Storage {
    /// Numbers: `f32`.
    F32,
    /// Integers and booleans: `i32`; 32-bit unsigned ones by their bits, 64-bit ones saturated.
    I32,
}

impl Storage {
    /// The storage that holds elements of `dtype`.
    pub(crate) fn of(dtype: Dtype) -> Self {
        match dtype {
            Dtype::I8
            | Dtype::I16
            | Dtype::I32
            | Dtype::I64
            | Dtype::U8
            | Dtype::U16
            | Dtype::U32
            | Dtype::U64
            | Dtype::Bool8 => Self::I32,
            _ => Self::F32,
        }
    }
}

/// The grid of a fixed-point type: `real = (quantised + offset) * scale`, quantised values clamped to `min..=max`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct QuantGrid {
    pub(crate) scale: f32,
    pub(crate) offset: i32,
    pub(crate) min: i64,
    pub(crate) max: i64,
}

impl QuantGrid {
    /// That of elements of `dtype`; `None` if they are not fixed-point.
    pub(crate) fn of(dtype: Dtype, quant: &Quant) -> Option<Self> {
        if dtype.is_float() || Storage::of(dtype) == Storage::I32 {
            return None;
        }
        let (scale, offset) = match *quant {
            Quant::PerTensor { scale, offset } => (scale, offset),
            _ => (1.0, 0),
        };
        let (min, max) = quantised_range(dtype);
        Some(Self { scale, offset, min, max })
    }

    /// The nearest quantised value (halves away from zero), clamped; of NaN the one that is nearest to 0, whatever it stands for.
    pub(crate) fn quantise(&self, real: f32) -> i64 {
        let q = (f64::from(real) / f64::from(self.scale)).round() - f64::from(self.offset);
        (q as i64).clamp(self.min, self.max)
    }

    /// The number that a quantised value stands for.
    pub(crate) fn dequantise(&self, q: i64) -> f32 {
        ((q + i64::from(self.offset)) as f64 * f64::from(self.scale)) as f32
    }
}

/// Rounding that a value undergoes when it is written, so that later nodes read what a client would.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Rounding {
    /// None: kept in `f32`.
    None,
    /// To the nearest `float16`.
    F16,
    /// To a fixed-point grid.
    Quantised(QuantGrid),
}

/// Smallest and largest quantised value of a fixed-point type.
pub(crate) fn quantised_range(dtype: Dtype) -> (i64, i64) {
    match dtype {
        Dtype::SFixed4 => (-8, 7),
        Dtype::SFixed8 => (-128, 127),
        Dtype::SFixed16 => (-32_768, 32_767),
        Dtype::UFixed4 => (0, 15),
        Dtype::UFixed8 => (0, 255),
        Dtype::UFixed16 => (0, 65_535),
        Dtype::UFixed32 => (0, i64::from(u32::MAX)),
        _ => (i64::from(i32::MIN), i64::from(i32::MAX)),
    }
}

/// A stored lane as a number.
pub(crate) fn number(lane: u32, real: bool) -> f64 {
    if real { f64::from(f32::from_bits(lane)) } else { f64::from(lane.cast_signed()) }
}
