//! Scales of blocks of activations: of so few bits that a scale times one of weights can be had from a table, and that sums of products can
//! begin with a float from which they end as one ([`Dot::BASED`](super::dot::Dot::BASED)).

/// A scale of activations is a power of two times one of these.
pub(crate) const MANTISSAS: [f32; 4] = [1.125, 1.375, 1.625, 1.875];

/// Which of [`MANTISSAS`] a scale has, or any power of two times it.
#[inline(always)]
pub(crate) const fn mantissa_of(scale: f32) -> usize {
    (scale.to_bits() >> 21 & 3) as usize
}

/// The scale of a block of activations and what they are multiplied with to be quantised: the least power of two times one of
/// [`MANTISSAS`] with which `largest`, the largest magnitude, becomes 127 or less. Blocks of numbers below 2^-93 become zeros, or nearly.
/// With a largest magnitude that is infinite or NaN ([`magnitude`]) both are NaN, and so is whatever is computed with them.
#[inline(always)]
pub(crate) fn scale_of(largest: f32) -> (f32, f32) {
    const LEAST: f32 = f32::from_bits((127 - 100) << 23);
    // The bits of positive numbers are in their order, and a carry out of the mantissa is the next power of two.
    let least = (largest / 127.0).max(LEAST).to_bits();
    let scale = f32::from_bits((least + 0xf_ffff) & !0x1f_ffff | 0x10_0000);
    // What is not more than 0 is 0 or NaN.
    if largest > 0.0 { (scale, 1.0 / scale) } else { (largest, largest) }
}

/// The bits of a magnitude. As integers they have an order in which NaN is above infinity, and infinity above all numbers: the largest ones
/// are NaN wherever one is, which a maximum of floats would drop.
#[inline(always)]
pub(crate) fn magnitude(x: f32) -> i32 {
    x.abs().to_bits().cast_signed()
}

/// The base of sums that belong to a scale of activations: 1 added to its bits is the scale's power of two added to it.
#[inline(always)]
pub(crate) fn base_of(scale: f32) -> f32 {
    scale * (1 << 23) as f32
}

/// The scale that a base belongs to.
#[inline(always)]
pub(crate) fn scale_of_base(base: f32) -> f32 {
    base * const { 1.0 / (1 << 23) as f32 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_scale_is_the_least_with_which_the_largest_number_fits(bits in 34u32 << 23..253 << 23) {
            let largest = f32::from_bits(bits);
            let (scale, inverse) = scale_of(largest);
            let mantissa = f32::from_bits(scale.to_bits() & 0x7f_ffff | 127 << 23);
            prop_assert_eq!(mantissa, MANTISSAS[mantissa_of(scale)]);
            prop_assert!((largest * inverse).round_ties_even() <= 127.0);
            // The next lower scale is too small.
            let lower = match mantissa_of(scale) {
                0 => scale / MANTISSAS[0] * MANTISSAS[3] / 2.0,
                i => scale / MANTISSAS[i] * MANTISSAS[i - 1],
            };
            prop_assert!(lower < largest / 127.0, "{} {}", scale, lower);
        }

        #[test]
        fn a_base_holds_every_sum(scale in 1e-20f32..1e20, sum in -(1i32 << 20)..1 << 20) {
            let (scale, _) = scale_of(127.0 * scale);
            let (base, unit) = (base_of(scale), scale / MANTISSAS[mantissa_of(scale)]);
            prop_assert_eq!((scale_of_base(base), mantissa_of(base)), (scale, mantissa_of(scale)));
            let begun = f32::from_bits(base.to_bits().wrapping_add_signed(sum));
            prop_assert_eq!(begun - base, sum as f32 * unit);
        }
    }

    #[test]
    fn what_is_not_a_number_is_the_largest() {
        let order = [0.0, f32::from_bits(1), 1.0, f32::MAX, f32::INFINITY, f32::NAN].map(magnitude);
        assert!(order.is_sorted() && order[0] == 0);
        assert_eq!(order, [-0.0, -f32::from_bits(1), -1.0, -f32::MAX, f32::NEG_INFINITY, -f32::NAN].map(magnitude));
    }

    #[test]
    fn blocks_without_a_scale_are_zeros() {
        assert_eq!(scale_of(0.0), (0.0, 0.0));
        for tiny in [f32::from_bits(1), f32::MIN_POSITIVE, 1e-35] {
            let (scale, inverse) = scale_of(tiny);
            assert!(scale > 0.0 && inverse.is_finite() && (tiny * inverse).round() == 0.0, "{tiny}: {scale} {inverse}");
        }
        for largest in [f32::INFINITY, f32::NAN, f32::from_bits(0x7f80_0001), f32::from_bits(0x7fff_ffff)] {
            let (scale, inverse) = scale_of(largest);
            assert!(scale.is_nan() && inverse.is_nan(), "what is not finite stays so: {:#x}", largest.to_bits());
            assert!(base_of(scale).is_nan() && scale_of_base(base_of(scale)).is_nan());
        }
        assert!(scale_of(f32::MAX).0.is_finite());
    }
}
