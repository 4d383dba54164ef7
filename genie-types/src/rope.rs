//! Rotary position embedding as numbers: the base, the scaling and the frequencies that follow from them.
//!
//! *Units*: radians per position; angle `j` of position `p` is `p * frequencies()[j]`.

/// Rotary position embedding of a model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RopeConfig {
    /// Angles per position: half of the rotated width of a head.
    pub rope_dim: usize,
    /// Base of the frequencies: `theta ^ (-j / rope_dim)` before scaling.
    pub theta: f64,
    /// What is done to the frequencies; nothing for plain rotation.
    pub scaling: Option<Llama3Scaling>,
}

impl RopeConfig {
    /// No scaling.
    pub const fn new(rope_dim: usize, theta: f64) -> Self {
        Self { rope_dim, theta, scaling: None }
    }

    /// Radians per position, by angle.
    pub fn frequencies(&self) -> Vec<f64> {
        let plain = |j: usize| self.theta.powf(-(j as f64) / self.rope_dim as f64);
        (0..self.rope_dim).map(|j| self.scaling.map_or(plain(j), |scaling| scaling.scale(plain(j)))).collect()
    }
}

/// Llama 3's scaling: long waves are stretched by `factor`, short ones kept, those between blended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Llama3Scaling {
    /// The stretch.
    pub factor: f64,
    /// Waves longer than `original_max_position / low_freq_factor` are stretched in full.
    pub low_freq_factor: f64,
    /// Waves shorter than `original_max_position / high_freq_factor` are kept.
    pub high_freq_factor: f64,
    /// Context length of the training, in tokens.
    pub original_max_position: f64,
}

impl Llama3Scaling {
    /// The frequency that takes the place of a plain one.
    pub fn scale(&self, frequency: f64) -> f64 {
        let wave = core::f64::consts::TAU / frequency;
        // Waves that fit `high` times into the trained context are kept; those that fit fewer than `low` are stretched.
        let fits = self.original_max_position / wave;
        let keep = ((fits - self.low_freq_factor) / (self.high_freq_factor - self.low_freq_factor)).clamp(0.0, 1.0);
        keep * frequency + (1.0 - keep) * frequency / self.factor
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn llama3_scaling_stretches_long_waves_only() {
        // Llama 3.2 1B: head_dim 64, theta 5e5, factor 32, low 1, high 4, trained on 8192.
        let scaling =
            Llama3Scaling { factor: 32.0, low_freq_factor: 1.0, high_freq_factor: 4.0, original_max_position: 8192.0 };
        let plain = RopeConfig::new(32, 5e5).frequencies();
        let scaled = RopeConfig { scaling: Some(scaling), ..RopeConfig::new(32, 5e5) }.frequencies();
        // Waves of angle 0 to 14 are under 2048 tokens, those of 18 to 31 over 8192.
        for j in 0..32 {
            let ratio = plain[j] / scaled[j];
            match j {
                0..=14 => assert_eq!(ratio, 1.0, "angle {j}"),
                15..=17 => assert!(ratio > 1.0 && ratio < 32.0, "angle {j}: {ratio}"),
                _ => assert!((ratio - 32.0).abs() < 1e-9, "angle {j}: {ratio}"),
            }
        }
        // The blend of angle 16, by the published formula: theta^-0.5, wave 4442.88, 8192 / wave = 1.84385.
        let smooth = (8192.0 / (std::f64::consts::TAU * 5e5f64.sqrt()) - 1.0) / 3.0;
        let want = (1.0 - smooth) * plain[16] / 32.0 + smooth * plain[16];
        assert!((scaled[16] - want).abs() < 1e-15);
    }
}
