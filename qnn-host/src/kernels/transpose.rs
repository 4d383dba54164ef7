//! Transposing numbers, with conversion on the way.
//!
//! *Shapes*: row-major, f32 in, any [`FloatsMut`] type out; strides count elements.

use super::float::{Elem, with_elem};
use super::isa::simd_fn;
use super::simd::{MAX_LANES, Simd};
use super::{FloatsMut, convert};

simd_fn! {
    /// `y[c, r] = x[r, c]` for `rows` x `cols` numbers; strides from row to row in elements.
    ///
    /// # Panics
    /// When an operand is too short.
    pub fn transpose(x: &[f32], x_stride: usize, rows: usize, cols: usize, y: FloatsMut<'_>, y_stride: usize) = transpose_body
}

/// Rows whose part of a column is written at once: a cache line or more of any type.
const STRIP_ROWS: usize = 64;

/// Elements that `rows` rows of `cols` at a stride reach over.
fn reach(rows: usize, cols: usize, stride: usize) -> usize {
    if rows == 0 || cols == 0 { 0 } else { (rows - 1) * stride + cols }
}

#[inline(always)]
fn transpose_body<S: Simd>(
    s: S,
    x: &[f32],
    x_stride: usize,
    rows: usize,
    cols: usize,
    mut y: FloatsMut<'_>,
    y_stride: usize,
) {
    assert!(reach(rows, cols, x_stride) <= x.len(), "rows reach past the operand");
    assert!(reach(cols, rows, y_stride) <= y.len(), "columns reach past the result");
    with_elem!(y.ty(), E => {
        // SAFETY: both reach as far as asserted.
        unsafe { transpose_all::<S, E>(s, x.as_ptr(), x_stride, rows, cols, y.ptr_mut(), y_stride) }
    });
}

/// # Safety
/// `x[r * x_stride + c]` is readable and `y[c * y_stride + r]` writable for all `r < rows`, `c < cols`.
#[inline(always)]
unsafe fn transpose_all<S: Simd, E: Elem>(
    s: S,
    x: *const f32,
    x_stride: usize,
    rows: usize,
    cols: usize,
    y: *mut E,
    y_stride: usize,
) {
    if rows == 1 && y_stride == 1 {
        // SAFETY: one row becomes one run of `cols` elements.
        return unsafe { convert::move_all::<S, f32, E>(s, x, y, cols) };
    }
    // Columns of a result are often a power of two apart, so that few sets of a cache hold their lines: each is written whole while it is
    // there, by blocks one below the other.
    for top in (0..rows).step_by(STRIP_ROWS) {
        let strip = STRIP_ROWS.min(rows - top);
        for c in (0..cols).step_by(S::LANES) {
            let width = S::LANES.min(cols - c);
            for r in (top..top + strip).step_by(S::LANES) {
                let height = S::LANES.min(top + strip - r);
                // SAFETY: the block at (r, c) of `height` x `width` lies inside both operands.
                unsafe {
                    let (from, to) = (x.add(r * x_stride + c), y.add(c * y_stride + r));
                    transpose_block::<S, E>(s, from, x_stride, [height, width], to, y_stride);
                }
            }
        }
    }
}

/// A block of up to `LANES` rows and columns.
///
/// # Safety
/// As [`transpose_all`], for that block.
#[inline(always)]
unsafe fn transpose_block<S: Simd, E: Elem>(
    s: S,
    from: *const f32,
    x_stride: usize,
    [height, width]: [usize; 2],
    to: *mut E,
    y_stride: usize,
) {
    let mut block = [0.0f32; MAX_LANES * MAX_LANES];
    // SAFETY: whole blocks are read with full vectors, others number by number; `block` holds the largest.
    unsafe {
        if height == S::LANES && width == S::LANES {
            s.transpose(from, x_stride, block.as_mut_ptr(), S::LANES);
        } else {
            for i in 0..height {
                for j in 0..width {
                    block[j * S::LANES + i] = *from.add(i * x_stride + j);
                }
            }
        }
        for j in 0..width {
            let to = to.add(j * y_stride);
            let line = block.as_ptr().add(j * S::LANES);
            if height == S::LANES {
                E::store(s, to, s.load(line));
            } else {
                E::store_first(s, to, s.load(line), height);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::Float;
    use super::super::testing::{encoded, isas, numbers};
    use super::*;

    proptest! {
        #[test]
        fn transposing_moves_every_number(
            rows in 0usize..150, cols in 0usize..40, gap in 0usize..3, ty in 0usize..3, shift in 0usize..2, seed: u64,
        ) {
            let ty = Float::ALL[ty];
            let (x_stride, y_stride) = (cols + gap, rows + gap);
            let x = numbers(rows * x_stride, seed);
            let (_, stored) = encoded(&x, ty, 0);
            for isa in isas() {
                let mut bytes = vec![0xAA; shift + cols * y_stride * ty.size_bytes()];
                let untouched = super::super::Floats::new(&bytes.clone()[shift..], ty).len();
                prop_assert_eq!(untouched, cols * y_stride);
                transpose(isa, &x, x_stride, rows, cols, FloatsMut::new(&mut bytes[shift..], ty), y_stride);
                let y = super::super::Floats::new(&bytes[shift..], ty);
                for r in 0..rows {
                    for c in 0..cols {
                        prop_assert_eq!(y.get(c * y_stride + r), stored[r * x_stride + c], "({}, {}) on {}", r, c, isa.name());
                    }
                }
                for gap in (0..cols).flat_map(|c| c * y_stride + rows..(c + 1) * y_stride) {
                    let at = shift + gap * ty.size_bytes();
                    prop_assert_eq!(bytes[at], 0xAA, "gap {} on {}", gap, isa.name());
                }
            }
        }
    }
}
