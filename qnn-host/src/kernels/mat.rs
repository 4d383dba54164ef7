//! The matrix of a linear layer: floats as the graph stores them, or packed codes.

use super::float::FloatMat;
use super::{Floats, Packed};

/// A matrix with a row for each output.
#[derive(Clone, Copy)]
pub struct Mat<'a>(Kind<'a>);

#[derive(Clone, Copy)]
enum Kind<'a> {
    Floats(FloatMat<'a>),
    Packed(Packed<'a>),
}

impl<'a> Mat<'a> {
    /// Views numbers as a row-major matrix, rows without gaps.
    ///
    /// # Panics
    /// When `data` does not hold `rows * cols` numbers.
    pub fn new(data: Floats<'a>, rows: usize, cols: usize) -> Self {
        assert_eq!(data.len(), rows * cols, "a matrix of {rows} x {cols} needs as many numbers");
        Self(Kind::Floats(FloatMat { data, rows, cols }))
    }

    /// Rows: outputs.
    pub fn rows(&self) -> usize {
        match self.0 {
            Kind::Floats(mat) => mat.rows,
            Kind::Packed(packed) => packed.rows(),
        }
    }

    /// Columns: inputs.
    pub fn cols(&self) -> usize {
        match self.0 {
            Kind::Floats(mat) => mat.cols,
            Kind::Packed(packed) => packed.cols(),
        }
    }

    pub(crate) fn floats(&self) -> Option<FloatMat<'a>> {
        if let Kind::Floats(mat) = self.0 { Some(mat) } else { None }
    }

    pub(crate) fn packed(&self) -> Option<Packed<'a>> {
        if let Kind::Packed(packed) = self.0 { Some(packed) } else { None }
    }
}

impl<'a> From<Packed<'a>> for Mat<'a> {
    fn from(packed: Packed<'a>) -> Self {
        Self(Kind::Packed(packed))
    }
}
