//! The matrix of a linear layer: rows as the graph stores them, or packed.
//!
//! *Shape*: `[rows, cols]`, outputs by inputs.

use super::rows::RowMat;
use super::{Floats, Packed};

/// A matrix with a row for each output.
#[derive(Clone, Copy)]
pub struct Mat<'a>(Kind<'a>);

#[derive(Clone, Copy)]
enum Kind<'a> {
    Rows(RowMat<'a>),
    Packed(Packed<'a>),
}

impl<'a> Mat<'a> {
    /// Views numbers as a row-major matrix, rows without gaps.
    ///
    /// # Panics
    /// When `data` does not hold `rows * cols` numbers.
    pub fn new(data: Floats<'a>, rows: usize, cols: usize) -> Self {
        Self(Kind::Rows(RowMat::floats(data, rows, cols)))
    }

    /// Views signed bytes as a row-major matrix, rows without gaps, each multiplied by a scale of its own.
    ///
    /// # Panics
    /// When there are not `rows * cols` bytes and `rows` scales.
    pub fn quantised(bytes: &'a [u8], scales: &'a [f32], rows: usize, cols: usize) -> Self {
        Self(Kind::Rows(RowMat::quantised(bytes, scales, rows, cols)))
    }

    /// Rows `range` of it. Packed rows begin at a multiple of sixteen.
    ///
    /// # Panics
    /// When they do not lie inside.
    pub fn slice(&self, range: std::ops::Range<usize>) -> Self {
        Self(match self.0 {
            Kind::Rows(mat) => Kind::Rows(mat.slice(range)),
            Kind::Packed(packed) => Kind::Packed(packed.slice(range)),
        })
    }

    /// Rows: outputs.
    pub fn rows(&self) -> usize {
        match self.0 {
            Kind::Rows(mat) => mat.rows,
            Kind::Packed(packed) => packed.rows(),
        }
    }

    /// Columns: inputs.
    pub fn cols(&self) -> usize {
        match self.0 {
            Kind::Rows(mat) => mat.cols,
            Kind::Packed(packed) => packed.cols(),
        }
    }

    pub(crate) fn as_rows(&self) -> Option<RowMat<'a>> {
        if let Kind::Rows(mat) = self.0 { Some(mat) } else { None }
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
