//! Rotary position embedding.
//!
//! *Shapes*: vectors of `dim` f32 at any strides, `[rows, heads]` of them; cosines and sines `[rows, rotary / 2]`, any
//! [`Floats`] type.
//!
//! Half-split form: with `h = rotary / 2`, the pair `(x[i], x[i + h])` is rotated by the angle of column `i`. Interleaved
//! form: the pair is `(x[2 i], x[2 i + 1])`. Numbers from `rotary` on pass unchanged.

use super::Floats;
use super::float::{Elem, with_elem};
use super::isa::simd_fn;
use super::simd::Simd;

/// Where the vectors of a [`rope`] call are, and the angles to rotate them by.
#[derive(Clone, Copy)]
pub struct Rope<'a> {
    /// Positions (tokens).
    pub rows: usize,
    /// Vectors for each position.
    pub heads: usize,
    /// Length of a vector.
    pub dim: usize,
    /// How many numbers of a vector are rotated: even, at most `dim`.
    pub rotary: usize,
    /// From one position to the next, in elements.
    pub row_stride: usize,
    /// From one vector of a position to the next, in elements.
    pub head_stride: usize,
    /// Which numbers are a pair.
    pub interleaved: bool,
    /// Cosines, `rows` x `rotary / 2`.
    pub cos: Floats<'a>,
    /// Sines, `rows` x `rotary / 2`, of the same type as `cos`.
    pub sin: Floats<'a>,
}

impl<'a> Rope<'a> {
    /// Half-split, whole vectors, `x` as `[rows, heads, dim]` (what a linear layer writes).
    pub fn by_row(rows: usize, heads: usize, dim: usize, cos: Floats<'a>, sin: Floats<'a>) -> Self {
        let (row_stride, head_stride) = (heads * dim, dim);
        Self { rows, heads, dim, rotary: dim, row_stride, head_stride, interleaved: false, cos, sin }
    }

    /// Half-split, whole vectors, `x` as `[heads, rows, dim]`.
    pub fn by_head(rows: usize, heads: usize, dim: usize, cos: Floats<'a>, sin: Floats<'a>) -> Self {
        let (row_stride, head_stride) = (dim, rows * dim);
        Self { rows, heads, dim, rotary: dim, row_stride, head_stride, interleaved: false, cos, sin }
    }
}

simd_fn! {
    /// Rotates every vector of `x` in place.
    ///
    /// # Panics
    /// When `x`, `cos` or `sin` do not fit the shape, or `cos` and `sin` differ in type.
    pub fn rope(shape: &Rope<'_>, x: &mut [f32]) = body
}

#[inline(always)]
fn body<S: Simd>(s: S, shape: &Rope<'_>, x: &mut [f32]) {
    let Rope { rows, heads, dim, rotary, row_stride, head_stride, interleaved, cos, sin } = *shape;
    if rows == 0 || heads == 0 {
        return;
    }
    assert!(rotary <= dim && rotary.is_multiple_of(2), "{rotary} of {dim} numbers cannot be turned in pairs");
    assert!((rows - 1) * row_stride + (heads - 1) * head_stride + dim <= x.len(), "vectors reach past the operand");
    assert_eq!((cos.len(), sin.len()), (rows * rotary / 2, rows * rotary / 2), "a cosine and a sine for each pair");
    assert_eq!(cos.ty(), sin.ty(), "cosines and sines of one type");
    with_elem!(cos.ty(), E => {
        for row in 0..rows {
            let at = row * rotary / 2;
            for head in 0..heads {
                // SAFETY: the asserts above keep the vector inside `x` and the angles of `row` inside `cos` and `sin`.
                unsafe {
                    let x = x.as_mut_ptr().add(row * row_stride + head * head_stride);
                    let (cos, sin) = (cos.ptr::<E>().add(at), sin.ptr::<E>().add(at));
                    if interleaved {
                        turn_interleaved(s, x, rotary / 2, cos, sin);
                    } else {
                        turn(s, x, rotary / 2, cos, sin);
                    }
                }
            }
        }
    });
}

/// # Safety
/// `2 h` numbers are readable and writable at `x`, `h` elements readable at `cos` and `sin`.
#[inline(always)]
unsafe fn turn<S: Simd, E: Elem>(s: S, x: *mut f32, h: usize, cos: *const E, sin: *const E) {
    let whole = h - h % S::LANES;
    for i in (0..whole).step_by(S::LANES) {
        // SAFETY: `i + LANES <= h`.
        unsafe {
            let (c, d) = (E::load(s, cos.add(i)), E::load(s, sin.add(i)));
            let (a, b) = (s.load(x.add(i)), s.load(x.add(h + i)));
            s.store(x.add(i), s.sub(s.mul(a, c), s.mul(b, d)));
            s.store(x.add(h + i), s.fma(b, c, s.mul(a, d)));
        }
    }
    let rest = h - whole;
    if rest > 0 {
        // SAFETY: `rest` elements are left behind `whole` in each half and in both tables.
        unsafe {
            let (c, d) = (E::load_first(s, cos.add(whole), rest), E::load_first(s, sin.add(whole), rest));
            let (a, b) = (s.load_first(x.add(whole), rest), s.load_first(x.add(h + whole), rest));
            s.store_first(x.add(whole), s.sub(s.mul(a, c), s.mul(b, d)), rest);
            s.store_first(x.add(h + whole), s.fma(b, c, s.mul(a, d)), rest);
        }
    }
}

/// # Safety
/// As [`turn`].
#[inline(always)]
unsafe fn turn_interleaved<S: Simd, E: Elem>(s: S, x: *mut f32, h: usize, cos: *const E, sin: *const E) {
    for i in 0..h {
        // SAFETY: `i < h`.
        unsafe {
            // One lane of a vector: this form is rare, and its tables may be of any type.
            let mut angle = [[0.0; super::simd::MAX_LANES]; 2];
            s.store(angle[0].as_mut_ptr(), E::load_first(s, cos.add(i), 1));
            s.store(angle[1].as_mut_ptr(), E::load_first(s, sin.add(i), 1));
            let (c, d, a, b) = (angle[0][0], angle[1][0], *x.add(2 * i), *x.add(2 * i + 1));
            *x.add(2 * i) = a * c - b * d;
            *x.add(2 * i + 1) = a * d + b * c;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::Float;
    use super::super::testing::{assert_close, encoded, isas, numbers};
    use super::*;

    proptest! {
        #[test]
        fn vectors_match_the_definition(
            rows in 0usize..4, heads in 1usize..4, half in 1usize..40, tail in 0usize..5, by_head: bool,
            interleaved: bool, ty in 0usize..3, shift in 0usize..2, seed: u64,
        ) {
            let (dim, ty) = (2 * half + tail, Float::ALL[ty]);
            let x = numbers(rows * heads * dim, seed);
            let (cos_bytes, cos) = encoded(&numbers(rows * half, seed ^ 1), ty, shift);
            let (sin_bytes, sin) = encoded(&numbers(rows * half, seed ^ 2), ty, shift);
            let view = |bytes| Floats::new(bytes, ty);
            let (c, d) = (view(&cos_bytes[shift..]), view(&sin_bytes[shift..]));
            let base = if by_head { Rope::by_head(rows, heads, dim, c, d) } else { Rope::by_row(rows, heads, dim, c, d) };
            let shape = Rope { rotary: 2 * half, interleaved, ..base };
            let mut expected: Vec<f64> = x.iter().map(|&x| x.into()).collect();
            for row in 0..rows {
                for head in 0..heads {
                    let at = row * shape.row_stride + head * shape.head_stride;
                    for i in 0..half {
                        let (p, q) = if interleaved { (at + 2 * i, at + 2 * i + 1) } else { (at + i, at + i + half) };
                        let (c, d) = (f64::from(cos[row * half + i]), f64::from(sin[row * half + i]));
                        (expected[p], expected[q]) = (expected[p] * c - expected[q] * d, expected[p] * d + expected[q] * c);
                    }
                }
            }
            for isa in isas() {
                let mut y = x.clone();
                rope(isa, &shape, &mut y);
                assert_close(&y, &expected, 1e-6, 5e-6, isa.name());
            }
        }
    }
}
