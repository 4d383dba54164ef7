//! Weights of an online softmax whose bits do not depend on how the scores are cut into blocks.
//!
//! *Units*: a weight is `e^score / 2^highest`, for a whole number `highest` of each query. A later, larger `highest` multiplies
//! what was added before by a power of two, which changes no digit (what falls below 2^-126 of the largest becomes 0, or on a
//! matrix unit what it takes for 0).

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

/// Vectors of a [`Total`].
pub(super) const TOTAL_VECTORS: usize = 3;

/// The sum of weights, lane by lane, in three numbers: what is added, what rounding left out of it, and what rounding left out of
/// that. In all, three times the digits: two would differ in the last digit of the result in one of some ten million.
#[derive(Clone, Copy)]
pub(super) struct Total<S: Simd>([S::V; TOTAL_VECTORS]);

impl<S: Simd> Total<S> {
    #[inline(always)]
    pub(super) fn none(s: S) -> Self {
        Self([s.zero(); TOTAL_VECTORS])
    }

    /// # Safety
    /// `TOTAL_VECTORS * LANES` numbers are readable at `p`.
    #[inline(always)]
    pub(super) unsafe fn load(s: S, p: *const f32) -> Self {
        // SAFETY: the caller's promise.
        unsafe { Self([s.load(p), s.load(p.add(S::LANES)), s.load(p.add(2 * S::LANES))]) }
    }

    /// # Safety
    /// `TOTAL_VECTORS * LANES` numbers are writable at `p`.
    #[inline(always)]
    pub(super) unsafe fn store(self, s: S, p: *mut f32) {
        let Self([sum, rest, last]) = self;
        // SAFETY: the caller's promise.
        unsafe {
            s.store(p, sum);
            s.store(p.add(S::LANES), rest);
            s.store(p.add(2 * S::LANES), last);
        }
    }

    #[inline(always)]
    pub(super) fn scaled(self, s: S, factor: f32) -> Self {
        let (Self([sum, rest, last]), factor) = (self, s.splat(factor));
        Self([s.mul(sum, factor), s.mul(rest, factor), s.mul(last, factor)])
    }

    #[inline(always)]
    pub(super) fn add(self, s: S, x: S::V) -> Self {
        let Self([sum, rest, last]) = self;
        let (sum, lost) = exact_sum(s, sum, x);
        let (rest, lost) = exact_sum(s, rest, lost);
        Self([sum, rest, s.add(last, lost)])
    }

    #[inline(always)]
    pub(super) fn join(self, s: S, other: Self) -> Self {
        let [sum, rest, last] = other.0;
        self.add(s, sum).add(s, rest).add(s, last)
    }

    /// Of all lanes.
    #[inline(always)]
    pub(super) fn value(self, s: S) -> f32 {
        /// Sums that do not wait for each other.
        const CHAINS: usize = 8;
        let mut lanes = [0.0; TOTAL_VECTORS * MAX_LANES];
        // SAFETY: the array holds these vectors of any instruction set.
        unsafe { self.store(s, lanes.as_mut_ptr()) };
        let (mut sum, mut rest) = ([0.0f64; CHAINS], [0.0f64; CHAINS]);
        for numbers in lanes.as_chunks::<CHAINS>().0 {
            for i in 0..CHAINS {
                let (next, lost) = exact_sum_f64(sum[i], f64::from(numbers[i]));
                sum[i] = next;
                rest[i] += lost;
            }
        }
        for half in [4, 2, 1] {
            for i in 0..half {
                let (next, lost) = exact_sum_f64(sum[i], sum[i + half]);
                sum[i] = next;
                rest[i] += rest[i + half] + lost;
            }
        }
        (sum[0] + rest[0]) as f32
    }
}

/// `a + b`, and what rounding left out.
#[inline(always)]
fn exact_sum_f64(a: f64, b: f64) -> (f64, f64) {
    let sum = a + b;
    let added = sum - a;
    (sum, (a - (sum - added)) + (b - added))
}

/// `a + b`, and what rounding left out.
#[inline(always)]
fn exact_sum<S: Simd>(s: S, a: S::V, b: S::V) -> (S::V, S::V) {
    let sum = s.add(a, b);
    let added = s.sub(sum, a);
    (sum, s.add(s.sub(a, s.sub(sum, added)), s.sub(b, added)))
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
