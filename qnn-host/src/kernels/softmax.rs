//! Softmax of rows.
//!
//! *Shapes*: `x` and `y` `[rows, width]`, f32.

use super::isa::simd_fn;
use super::math::exp;
use super::simd::Simd;

simd_fn! {
    /// `y = e^(beta x) / sum(e^(beta x))` for each row of `width` numbers, made safe from overflow by the row's maximum.
    ///
    /// # Panics
    /// When `x` is not whole rows or `y` does not fit.
    pub fn softmax(x: &[f32], width: usize, beta: f32, y: &mut [f32]) = body
}

#[cfg(test)]
simd_fn! {
    /// `y = e^(x - max)`; the sum.
    pub(crate) fn exp_row(x: &[f32], max: f32, y: &mut [f32]) -> f32 = exp_row_body
}

#[inline(always)]
fn body<S: Simd>(s: S, x: &[f32], width: usize, beta: f32, y: &mut [f32]) {
    assert!(width > 0 && x.len().is_multiple_of(width), "{} numbers are no rows of {width}", x.len());
    assert_eq!(y.len(), x.len(), "result and operand differ in length");
    for (x, y) in x.chunks_exact(width).zip(y.chunks_exact_mut(width)) {
        // SAFETY: two rows of `width` numbers.
        unsafe { row(s, x.as_ptr(), width, beta, y.as_mut_ptr()) };
    }
}

#[cfg(test)]
#[inline(always)]
fn exp_row_body<S: Simd>(s: S, x: &[f32], max: f32, y: &mut [f32]) -> f32 {
    assert_eq!(x.len(), y.len());
    y.copy_from_slice(x);
    // SAFETY: `y` has that many numbers.
    unsafe { exp_sum(s, y.as_mut_ptr(), y.len(), max) }
}

/// # Safety
/// `n` numbers are readable at `x` and writable at `y`.
#[inline(always)]
unsafe fn row<S: Simd>(s: S, x: *const f32, n: usize, beta: f32, y: *mut f32) {
    let (whole, rest) = (n - n % S::LANES, n % S::LANES);
    let factor = s.splat(beta);
    for i in (0..whole).step_by(S::LANES) {
        // SAFETY: `i + LANES <= n`.
        unsafe { s.store(y.add(i), s.mul(s.load(x.add(i)), factor)) };
    }
    for i in whole..whole + rest {
        // SAFETY: `i < n`.
        unsafe { *y.add(i) = *x.add(i) * beta };
    }
    // SAFETY: `n` numbers at `y`, all written above.
    unsafe {
        let max = maximum(s, y, n);
        let sum = exp_sum(s, y, n, max);
        scale(s, y, n, 1.0 / sum);
    }
}

/// The largest of `n` numbers; minus infinity of none.
///
/// # Safety
/// They are readable at `x`.
#[inline(always)]
pub(super) unsafe fn maximum<S: Simd>(s: S, x: *const f32, n: usize) -> f32 {
    let (whole, rest) = (n - n % S::LANES, n % S::LANES);
    let mut max = s.splat(f32::NEG_INFINITY);
    for i in (0..whole).step_by(S::LANES) {
        // SAFETY: `i + LANES <= n`.
        max = s.max(max, unsafe { s.load(x.add(i)) });
    }
    let mut max = s.max_lane(max);
    for i in whole..whole + rest {
        // SAFETY: `i < n`.
        max = max.max(unsafe { *x.add(i) });
    }
    max
}

/// Replaces each number by `e^(x - max)` and returns their sum.
///
/// # Safety
/// `n` numbers are readable and writable at `x`.
#[inline(always)]
pub(super) unsafe fn exp_sum<S: Simd>(s: S, x: *mut f32, n: usize, max: f32) -> f32 {
    let (whole, rest) = (n - n % S::LANES, n % S::LANES);
    let shift = s.splat(max);
    let mut sum = s.zero();
    for i in (0..whole).step_by(S::LANES) {
        // SAFETY: `i + LANES <= n`.
        unsafe {
            let e = exp(s, s.sub(s.load(x.add(i)), shift));
            s.store(x.add(i), e);
            sum = s.add(sum, e);
        }
    }
    let mut sum = s.sum(sum);
    if rest > 0 {
        // SAFETY: `rest` numbers are left behind `whole`.
        unsafe {
            let e = exp(s, s.sub(s.load_first(x.add(whole), rest), shift));
            s.store_first(x.add(whole), e, rest);
            for i in whole..n {
                sum += *x.add(i);
            }
        }
    }
    sum
}

/// Multiplies each number.
///
/// # Safety
/// `n` numbers are readable and writable at `x`.
#[inline(always)]
pub(super) unsafe fn scale<S: Simd>(s: S, x: *mut f32, n: usize, factor: f32) {
    let whole = n - n % S::LANES;
    let f = s.splat(factor);
    for i in (0..whole).step_by(S::LANES) {
        // SAFETY: `i + LANES <= n`.
        unsafe { s.store(x.add(i), s.mul(s.load(x.add(i)), f)) };
    }
    for i in whole..n {
        // SAFETY: `i < n`.
        unsafe { *x.add(i) *= factor };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::testing::{assert_close, isas, numbers};
    use super::*;

    fn reference(x: &[f32], width: usize, beta: f32) -> Vec<f64> {
        let mut y = Vec::new();
        for row in x.chunks_exact(width) {
            let z: Vec<f64> = row.iter().map(|&x| f64::from(x * beta)).collect();
            let max = z.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = z.iter().map(|z| (z - max).exp()).sum();
            y.extend(z.iter().map(|z| (z - max).exp() / sum));
        }
        y
    }

    proptest! {
        #[test]
        fn rows_match_the_definition(rows in 0usize..4, width in 1usize..100, beta in 0.1f32..3.0, seed: u64) {
            let x = numbers(rows * width, seed);
            for isa in isas() {
                let mut y = vec![f32::NAN; x.len()];
                softmax(isa, &x, width, beta, &mut y);
                assert_close(&y, &reference(&x, width, beta), 3e-6, 1e-9, isa.name());
            }
        }
    }

    #[test]
    fn huge_and_hidden_scores_stay_finite() {
        for isa in isas() {
            let mut y = [f32::NAN; 20];
            let mut x = [-1000.0; 20];
            softmax(isa, &x, 20, 1.0, &mut y);
            assert!(y.iter().all(|&y| (y - 0.05).abs() < 1e-7), "{}: {y:?}", isa.name());
            x[3] = 3e4;
            softmax(isa, &x, 20, 1.0, &mut y);
            assert_eq!((y[3], y[4]), (1.0, 0.0), "{}", isa.name());
        }
    }
}
