//! RMS normalisation of rows.
//!
//! *Shapes*: `x` and `y` `[rows, width]`, f32; `gamma` and `beta` `[width]`, any [`Floats`] type.

use super::Floats;
use super::float::{Elem, with_elem};
use super::isa::simd_fn;
use super::simd::Simd;

simd_fn! {
    /// `y = x / sqrt(mean(x^2) + epsilon) * gamma + beta` for each row of `width` numbers. `beta` may be left out.
    ///
    /// # Panics
    /// When `x` is not whole rows, or `y`, `gamma` or `beta` do not fit.
    pub fn rms_norm(x: &[f32], width: usize, gamma: Floats<'_>, beta: Option<Floats<'_>>, epsilon: f32, y: &mut [f32]) = body
}

simd_fn! {
    /// [`rms_norm`] without `beta`, in place.
    pub fn rms_norm_in_place(x: &mut [f32], width: usize, gamma: Floats<'_>, epsilon: f32) = in_place_body
}

#[inline(always)]
fn body<S: Simd>(
    s: S,
    x: &[f32],
    width: usize,
    gamma: Floats<'_>,
    beta: Option<Floats<'_>>,
    epsilon: f32,
    y: &mut [f32],
) {
    assert!(width > 0 && x.len().is_multiple_of(width), "{} numbers are no rows of {width}", x.len());
    assert_eq!(y.len(), x.len(), "result and operand differ in length");
    assert_eq!(gamma.len(), width, "gamma has the length of a row");
    with_elem!(gamma.ty(), E => {
        for (x, y) in x.chunks_exact(width).zip(y.chunks_exact_mut(width)) {
            // SAFETY: rows of `width` numbers, as `gamma` has.
            unsafe { row::<S, E>(s, x.as_ptr(), width, gamma.ptr(), epsilon, y.as_mut_ptr()) };
        }
    });
    if let Some(beta) = beta {
        assert_eq!(beta.len(), width, "beta has the length of a row");
        with_elem!(beta.ty(), E => {
            for y in y.chunks_exact_mut(width) {
                // SAFETY: rows of `width` numbers, as `beta` has.
                unsafe { shift::<S, E>(s, y.as_mut_ptr(), width, beta.ptr()) };
            }
        });
    }
}

#[inline(always)]
fn in_place_body<S: Simd>(s: S, x: &mut [f32], width: usize, gamma: Floats<'_>, epsilon: f32) {
    assert!(width > 0 && x.len().is_multiple_of(width), "{} numbers are no rows of {width}", x.len());
    assert_eq!(gamma.len(), width, "gamma has the length of a row");
    with_elem!(gamma.ty(), E => {
        for x in x.chunks_exact_mut(width) {
            let x = x.as_mut_ptr();
            // SAFETY: a row of `width` numbers, as `gamma` has; operand and result are the same.
            unsafe { row::<S, E>(s, x, width, gamma.ptr(), epsilon, x) };
        }
    });
}

/// One row.
///
/// # Safety
/// `n` elements are readable at `x` and `gamma` and writable at `y`; `y` is `x` or does not overlap it.
#[inline(always)]
pub(super) unsafe fn row<S: Simd, E: Elem>(s: S, x: *const f32, n: usize, gamma: *const E, epsilon: f32, y: *mut f32) {
    let (whole, rest) = (n - n % S::LANES, n % S::LANES);
    let mut sums = [s.zero(); 4];
    for (turn, i) in (0..whole).step_by(S::LANES).enumerate() {
        // SAFETY: `i + LANES <= n`.
        let v = unsafe { s.load(x.add(i)) };
        sums[turn % 4] = s.fma(v, v, sums[turn % 4]);
    }
    let mut sum = s.add(s.add(sums[0], sums[1]), s.add(sums[2], sums[3]));
    if rest > 0 {
        // SAFETY: `rest` numbers are left behind `whole`.
        let v = unsafe { s.load_first(x.add(whole), rest) };
        sum = s.fma(v, v, sum);
    }
    let factor = s.splat(1.0 / (s.sum(sum) / n as f32 + epsilon).sqrt());
    for i in (0..whole).step_by(S::LANES) {
        // SAFETY: `i + LANES <= n`.
        unsafe { s.store(y.add(i), s.mul(s.mul(s.load(x.add(i)), factor), E::load(s, gamma.add(i)))) };
    }
    if rest > 0 {
        // SAFETY: `rest` elements are left behind `whole`.
        unsafe {
            let v = s.mul(s.load_first(x.add(whole), rest), factor);
            s.store_first(y.add(whole), s.mul(v, E::load_first(s, gamma.add(whole), rest)), rest);
        }
    }
}

/// Adds `beta`.
///
/// # Safety
/// `n` elements are readable at `beta` and writable at `y`.
#[inline(always)]
pub(super) unsafe fn shift<S: Simd, E: Elem>(s: S, y: *mut f32, n: usize, beta: *const E) {
    let (whole, rest) = (n - n % S::LANES, n % S::LANES);
    for i in (0..whole).step_by(S::LANES) {
        // SAFETY: `i + LANES <= n`.
        unsafe { s.store(y.add(i), s.add(s.load(y.add(i)), E::load(s, beta.add(i)))) };
    }
    if rest > 0 {
        // SAFETY: `rest` elements are left behind `whole`.
        unsafe {
            let v = s.add(s.load_first(y.add(whole), rest), E::load_first(s, beta.add(whole), rest));
            s.store_first(y.add(whole), v, rest);
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
        fn rows_match_the_definition(rows in 0usize..4, width in 1usize..150, ty in 0usize..3, shift in 0usize..2, seed: u64) {
            let (x, ty) = (numbers(rows * width, seed), Float::ALL[ty]);
            let (gamma_bytes, gamma) = encoded(&numbers(width, seed ^ 1), ty, shift);
            let (beta_bytes, beta) = encoded(&numbers(width, seed ^ 2), ty, shift);
            let view = |bytes| Floats::new(bytes, ty);
            let epsilon = 1e-5f32;
            let mut plain = Vec::new();
            for row in x.chunks_exact(width) {
                let mean = row.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / width as f64;
                let factor = 1.0 / (mean + f64::from(epsilon)).sqrt();
                plain.extend(row.iter().zip(&gamma).map(|(&x, &g)| f64::from(x) * factor * f64::from(g)));
            }
            let shifted: Vec<f64> = plain.iter().enumerate().map(|(i, &y)| y + f64::from(beta[i % width])).collect();
            for isa in isas() {
                let mut y = vec![f32::NAN; x.len()];
                rms_norm(isa, &x, width, view(&gamma_bytes[shift..]), None, epsilon, &mut y);
                assert_close(&y, &plain, 2e-6, 1e-7, isa.name());
                rms_norm(isa, &x, width, view(&gamma_bytes[shift..]), Some(view(&beta_bytes[shift..])), epsilon, &mut y);
                assert_close(&y, &shifted, 2e-6, 2e-6, isa.name());
                y.copy_from_slice(&x);
                rms_norm_in_place(isa, &mut y, width, view(&gamma_bytes[shift..]), epsilon);
                assert_close(&y, &plain, 2e-6, 1e-7, isa.name());
            }
        }
    }
}
