//! Conversion between f32 and the types that numbers are stored in (f32, f16, bf16).

use half::f16;

use super::float::{Elem, Load, with_elem};
use super::isa::simd_fn;
use super::simd::{MAX_LANES, Simd};
use super::{Floats, FloatsMut};

simd_fn! {
    /// `y = x`, exactly.
    ///
    /// # Panics
    /// When the lengths differ.
    pub fn widen(x: Floats<'_>, y: &mut [f32]) = widen_body
}

simd_fn! {
    /// `y = x`, rounded to nearest even.
    ///
    /// # Panics
    /// When the lengths differ.
    pub fn narrow(x: &[f32], y: FloatsMut<'_>) = narrow_body
}

simd_fn! {
    /// Rounds each number to one that f16 holds, the nearest or even one.
    pub fn round_to_f16(x: &mut [f32]) = round_to_f16_body
}

#[inline(always)]
fn round_to_f16_body<S: Simd>(s: S, x: &mut [f32]) {
    let mut narrow = [f16::ZERO; 4 * MAX_LANES];
    for x in x.chunks_mut(narrow.len()) {
        // SAFETY: the chunk has that many numbers, and there is space for as many.
        unsafe {
            move_all::<S, f32, f16>(s, x.as_ptr(), narrow.as_mut_ptr(), x.len());
            move_all::<S, f16, f32>(s, narrow.as_ptr(), x.as_mut_ptr(), x.len());
        }
    }
}

#[inline(always)]
fn widen_body<S: Simd>(s: S, x: Floats<'_>, y: &mut [f32]) {
    assert_eq!(x.len(), y.len(), "operand and result differ in length");
    with_elem!(x.ty(), E => {
        // SAFETY: both have that many elements.
        unsafe { move_all::<S, E, f32>(s, x.ptr(), y.as_mut_ptr(), y.len()) }
    });
}

#[inline(always)]
fn narrow_body<S: Simd>(s: S, x: &[f32], mut y: FloatsMut<'_>) {
    assert_eq!(x.len(), y.len(), "operand and result differ in length");
    with_elem!(y.ty(), E => {
        // SAFETY: both have that many elements.
        unsafe { move_all::<S, f32, E>(s, x.as_ptr(), y.ptr_mut(), x.len()) }
    });
}

/// # Safety
/// `n` elements are readable at `x` and writable at `y`.
#[inline(always)]
pub(super) unsafe fn move_all<S: Simd, A: Load, B: Elem>(s: S, x: *const A, y: *mut B, n: usize) {
    let (whole, rest) = (n - n % S::LANES, n % S::LANES);
    for i in (0..whole).step_by(S::LANES) {
        // SAFETY: `i + LANES <= n`.
        unsafe { B::store(s, y.add(i), A::load(s, x.add(i))) };
    }
    if rest > 0 {
        // SAFETY: `rest` elements are left behind `whole`.
        unsafe { B::store_first(s, y.add(whole), A::load_first(s, x.add(whole), rest), rest) };
    }
}

#[cfg(test)]
mod tests {
    use super::super::Float;
    use super::super::testing::{encoded, isas, numbers};
    use super::*;

    #[test]
    fn there_and_back_is_what_the_type_holds() {
        for isa in isas() {
            for ty in Float::ALL {
                for n in [0, 1, 7, 8, 9, 16, 31, 64, 67] {
                    for shift in [0, 1] {
                        let x = numbers(n, n as u64);
                        let (bytes, stored) = encoded(&x, ty, shift);
                        let mut wide = vec![f32::NAN; n];
                        widen(isa, Floats::new(&bytes[shift..], ty), &mut wide);
                        assert_eq!(wide, stored, "widen {ty:?} {n} on {}", isa.name());
                        let mut narrowed = vec![0xAA; bytes.len() + 3];
                        let end = bytes.len();
                        narrow(isa, &x, FloatsMut::new(&mut narrowed[shift..end], ty));
                        assert_eq!(narrowed[..end], bytes, "narrow {ty:?} {n} on {}", isa.name());
                        assert_eq!(narrowed[end..], [0xAA; 3], "narrow {ty:?} {n} wrote too far on {}", isa.name());
                    }
                }
            }
        }
    }

    #[test]
    fn rounding_is_narrowing_and_widening() {
        for isa in isas() {
            for n in [0, 1, 15, 63, 64, 65, 200] {
                let mut x = numbers(n, n as u64);
                x.iter_mut().skip(1).step_by(9).for_each(|x| *x *= 1e-7);
                x.iter_mut().skip(2).step_by(50).for_each(|x| *x *= 1e6);
                let rounded: Vec<f32> = x.iter().map(|&x| f16::from_f32(x).to_f32()).collect();
                round_to_f16(isa, &mut x);
                assert_eq!(x, rounded, "{n} on {}", isa.name());
            }
        }
    }

    #[test]
    fn every_half_widens_exactly() {
        let all: Vec<u16> = (0..=u16::MAX).collect();
        let bytes: Vec<u8> = all.iter().flat_map(|h| h.to_ne_bytes()).collect();
        for isa in isas() {
            let mut wide = vec![0.0; all.len()];
            widen(isa, Floats::new(&bytes, Float::F16), &mut wide);
            for (&h, &w) in all.iter().zip(&wide) {
                let exact = f16::from_bits(h).to_f32();
                assert!(exact.to_bits() == w.to_bits() || exact.is_nan() && w.is_nan(), "{h:#06x} on {}", isa.name());
            }
        }
    }
}
