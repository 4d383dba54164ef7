//! Weights of an online softmax whose bits do not depend on how the scores are cut into blocks.
//!
//! *Units*: a weight is `e^score / 2^highest`, for a whole number `highest` of each query. A later, larger `highest` multiplies
//! what was added before by a power of two, which changes no digit (what falls below 2^-126 of the largest becomes 0).

use super::super::math::{PARTS_MAX, exp_parts};
use super::super::simd::{MAX_LANES, Simd};

/// Below it, `2^n` is no normal number.
const LOWEST: f32 = -126.0;

/// The exponent that scores up to `score` are weighed by.
#[inline(always)]
pub(super) fn exponent(score: f32) -> f32 {
    (score.clamp(-PARTS_MAX, PARTS_MAX) * std::f32::consts::LOG2_E).round_ties_even()
}

/// `2^n` for a whole `n <= 0`; 0 where that is no normal number.
#[inline(always)]
pub(super) fn power(n: f32) -> f32 {
    if n < LOWEST { 0.0 } else { f32::from_bits(((n as i32 + 127) as u32) << 23) }
}

/// The sum of weights, lane by lane, in two numbers: what is added, and what rounding left out. In all, twice the digits.
#[derive(Clone, Copy)]
pub(super) struct Total<S: Simd> {
    sum: S::V,
    rest: S::V,
}

impl<S: Simd> Total<S> {
    #[inline(always)]
    pub(super) fn none(s: S) -> Self {
        Self { sum: s.zero(), rest: s.zero() }
    }

    /// # Safety
    /// `2 * LANES` numbers are readable at `p`.
    #[inline(always)]
    pub(super) unsafe fn load(s: S, p: *const f32) -> Self {
        // SAFETY: the caller's promise.
        unsafe { Self { sum: s.load(p), rest: s.load(p.add(S::LANES)) } }
    }

    /// # Safety
    /// `2 * LANES` numbers are writable at `p`.
    #[inline(always)]
    pub(super) unsafe fn store(self, s: S, p: *mut f32) {
        // SAFETY: the caller's promise.
        unsafe {
            s.store(p, self.sum);
            s.store(p.add(S::LANES), self.rest);
        }
    }

    #[inline(always)]
    pub(super) fn scaled(self, s: S, factor: f32) -> Self {
        let factor = s.splat(factor);
        Self { sum: s.mul(self.sum, factor), rest: s.mul(self.rest, factor) }
    }

    #[inline(always)]
    fn add(self, s: S, x: S::V) -> Self {
        let sum = s.add(self.sum, x);
        let added = s.sub(sum, self.sum);
        let lost = s.add(s.sub(self.sum, s.sub(sum, added)), s.sub(x, added));
        Self { sum, rest: s.add(self.rest, lost) }
    }

    #[inline(always)]
    pub(super) fn join(self, s: S, other: Self) -> Self {
        let Self { sum, rest } = self.add(s, other.sum);
        Self { sum, rest: s.add(rest, other.rest) }
    }

    /// Of all lanes.
    #[inline(always)]
    pub(super) fn value(self, s: S) -> f32 {
        let mut lanes = [0.0; 2 * MAX_LANES];
        // SAFETY: the array holds two vectors of any instruction set.
        unsafe { self.store(s, lanes.as_mut_ptr()) };
        lanes[..2 * S::LANES].iter().map(|&x| f64::from(x)).sum::<f64>() as f32
    }
}

/// Makes weights of `n` scores, and adds them to the total.
///
/// # Safety
/// `n` numbers are readable and writable at `scores`.
#[inline(always)]
pub(super) unsafe fn weigh<S: Simd>(s: S, scores: *mut f32, n: usize, highest: f32, total: Total<S>) -> Total<S> {
    let (whole, rest) = (n - n % S::LANES, n % S::LANES);
    let mut total = total;
    for i in (0..whole).step_by(S::LANES) {
        // SAFETY: `i + LANES <= n`.
        unsafe {
            let weights = of(s, s.load(scores.add(i)), highest);
            s.store(scores.add(i), weights);
            total = total.add(s, weights);
        }
    }
    if rest > 0 {
        // SAFETY: `rest` numbers are left behind `whole`; read again, zeros follow them.
        unsafe {
            let at = scores.add(whole);
            s.store_first(at, of(s, s.load_first(at, rest), highest), rest);
            total = total.add(s, s.load_first(at, rest));
        }
    }
    total
}

#[inline(always)]
fn of<S: Simd>(s: S, scores: S::V, highest: f32) -> S::V {
    let held = s.min(s.splat(PARTS_MAX), s.max(s.splat(-PARTS_MAX), scores));
    let (e, n) = exp_parts(s, held);
    let n = s.sub(n, s.splat(highest));
    let held = s.min(s.splat(1.0), s.max(s.splat(LOWEST), n));
    s.zero_below(s.scale(e, held), n, s.splat(LOWEST))
}
