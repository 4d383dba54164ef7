//! Deterministic noise: close to normal, made of integers only.

/// A stream of numbers with mean 0 and variance 1.
pub(super) struct Noise {
    state: u64,
}

impl Noise {
    /// The stream of one tensor: it depends on seed and name, not on the order of writing.
    pub(super) fn new(seed: u64, name: &str) -> Self {
        let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        Self { state: name.bytes().fold(seed ^ 0xcbf2_9ce4_8422_2325, mix) }
    }

    /// SplitMix64.
    fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// The sum of four 16-bit uniforms, centred, divided by its deviation `65536 / sqrt(3)`.
    pub(super) fn draw(&mut self) -> f32 {
        let bits = self.bits();
        let sum: u32 = [0, 16, 32, 48].iter().map(|shift| (bits >> shift) as u32 & 0xffff).sum();
        (sum as f32 - 131_070.0) * 2.642_916e-5
    }
}

#[cfg(test)]
mod tests {
    use super::Noise;

    #[test]
    fn noise_is_standard_and_repeatable() {
        let n = 100_000;
        let mut noise = Noise::new(7, "w");
        let values: Vec<f64> = (0..n).map(|_| f64::from(noise.draw())).collect();
        let mean = values.iter().sum::<f64>() / f64::from(n);
        let variance = values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / f64::from(n);
        assert!(mean.abs() < 0.02 && (variance - 1.0).abs() < 0.02, "mean {mean}, variance {variance}");
        assert_eq!(f64::from(Noise::new(7, "w").draw()), values[0]);
        assert_ne!(f64::from(Noise::new(8, "w").draw()), values[0]);
        assert_ne!(f64::from(Noise::new(7, "v").draw()), values[0]);
    }
}
