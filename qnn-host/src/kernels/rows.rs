//! Matrices that kernels read row by row in place: floats, or signed bytes with a scale for each row.
//!
//! A byte is widened to f32 as it is loaded, exactly, and its row's scale multiplies the finished sum: products with such
//! weights are as exact as with floats, at a quarter of the bytes.

use super::float::Load;
use super::simd::Simd;
use super::{Float, Floats};

/// Element types of a [`RowMat`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowElem {
    /// A number.
    Float(Float),
    /// A signed byte, to be multiplied by its row's scale.
    I8,
}

/// A row-major matrix at any alignment: `rows` x `cols`, rows without gaps.
#[derive(Clone, Copy)]
pub(crate) struct RowMat<'a> {
    bytes: &'a [u8],
    pub(crate) elem: RowElem,
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    /// Of signed bytes: one for each row. Empty for floats.
    pub(crate) scales: &'a [f32],
}

impl<'a> RowMat<'a> {
    /// Views numbers.
    ///
    /// # Panics
    /// When `data` does not hold `rows * cols` numbers.
    pub(crate) fn floats(data: Floats<'a>, rows: usize, cols: usize) -> Self {
        assert_eq!(data.len(), rows * cols, "a matrix of {rows} x {cols} needs as many numbers");
        Self { bytes: data.bytes(), elem: RowElem::Float(data.ty()), rows, cols, scales: &[] }
    }

    /// Views signed bytes.
    ///
    /// # Panics
    /// When there are not `rows * cols` bytes and `rows` scales.
    pub(crate) fn quantised(bytes: &'a [u8], scales: &'a [f32], rows: usize, cols: usize) -> Self {
        assert_eq!(bytes.len(), rows * cols, "a matrix of {rows} x {cols} needs as many bytes");
        assert_eq!(scales.len(), rows, "a scale for each row");
        Self { bytes, elem: RowElem::I8, rows, cols, scales }
    }

    /// Bytes of an element.
    pub(crate) fn elem_bytes(&self) -> usize {
        match self.elem {
            RowElem::Float(ty) => ty.size_bytes(),
            RowElem::I8 => 1,
        }
    }

    /// Start of the elements; `E` must be the type that `elem` names for reads through it to make sense.
    pub(crate) fn ptr<E: Load>(&self) -> *const E {
        debug_assert_eq!(size_of::<E>(), self.elem_bytes());
        self.bytes.as_ptr().cast()
    }

    /// Rows `range`.
    ///
    /// # Panics
    /// When they do not lie inside.
    pub(crate) fn slice(&self, range: std::ops::Range<usize>) -> Self {
        let row = self.cols * self.elem_bytes();
        let scales = if self.scales.is_empty() { self.scales } else { &self.scales[range.clone()] };
        Self { bytes: &self.bytes[range.start * row..range.end * row], rows: range.len(), scales, ..*self }
    }
}

impl Load for i8 {
    #[inline(always)]
    unsafe fn get(p: *const Self) -> f32 {
        // SAFETY: the caller's promise.
        f32::from(unsafe { p.read() })
    }

    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, p: *const Self) -> S::V {
        // SAFETY: the caller's promise.
        unsafe { s.load_i8(p) }
    }
}

/// Runs `$body` with `$e` standing for the Rust type of a [`RowElem`].
macro_rules! with_row_elem {
    ($elem:expr, $e:ident => $body:expr) => {
        match $elem {
            $crate::kernels::rows::RowElem::Float(ty) => $crate::kernels::float::with_elem!(ty, $e => $body),
            $crate::kernels::rows::RowElem::I8 => {
                type $e = i8;
                $body
            }
        }
    };
}
pub(crate) use with_row_elem;
