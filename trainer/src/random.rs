//! Random numbers that depend on a seed and a position only, so that a resumed run draws what the first would have drawn.

/// SplitMix64.
pub(crate) struct Random(u64);

impl Random {
    /// The numbers of a seed and a place in the run.
    pub(crate) fn at(seed: u64, place: u64) -> Self {
        let mut random = Self(seed ^ place.wrapping_mul(0xa076_1d64_78bd_642f));
        random.next();
        random
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// Below `n`, which is not 0.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.next()) * n as u128) >> 64) as usize
    }

    /// In (0, 1].
    fn unit(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// Of the normal distribution around 0 with deviation 1.
    pub(crate) fn normal(&mut self) -> f32 {
        let (radius, angle) = ((-2.0 * self.unit().ln()).sqrt(), std::f64::consts::TAU * self.unit());
        (radius * angle.cos()) as f32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_differ_and_numbers_are_spread() {
        assert_ne!(Random::at(1, 2).next(), Random::at(1, 3).next());
        assert_eq!(Random::at(1, 2).next(), Random::at(1, 2).next());
        let mut random = Random::at(7, 0);
        let drawn: Vec<f32> = (0..10_000).map(|_| random.normal()).collect();
        let mean = drawn.iter().sum::<f32>() / 10_000.0;
        let deviation = (drawn.iter().map(|x| (x - mean).powi(2)).sum::<f32>() / 10_000.0).sqrt();
        assert!(mean.abs() < 0.05 && (deviation - 1.0).abs() < 0.05, "{mean} {deviation}");
        assert!((0..1000).all(|_| random.below(3) < 3));
    }
}
