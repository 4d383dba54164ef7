//! What is done to rotary frequencies so that a model reaches further than it was trained: one variant a `rope-type`.
//!
//! *Trap*: `hunyuan` has its alpha and head width built in, and `yarnrope` scales the first `dim / 2` angles only, as in
//! libGenie.

use super::{RopeAngles, RopeConfig};

/// The kinds of scaling, by Genie's `rope-type`.
#[derive(Clone, Debug, PartialEq)]
pub enum RopeScaling {
    /// `linear`: all positions divided by a factor.
    Linear {
        /// The divisor.
        factor: f64,
    },
    /// `llama3`.
    Llama3(Llama3Scaling),
    /// `longrope`.
    LongRope(LongRopeScaling),
    /// `yarnrope`.
    Yarn(YarnScaling),
    /// `proportional`: the first angles divided by a factor, the others do not turn.
    Proportional {
        /// The divisor.
        factor: f64,
        /// Share of the angles that turn, 0 to 1.
        partial_rotary_factor: f64,
    },
    /// `hunyuan`: the base of the frequencies raised for an alpha of 1000 and heads of 128.
    Hunyuan,
    /// `qwen2vl-mrope` and `qwen3vl-mrope`: text tokens turn plainly, since their three positions are the same.
    Mrope {
        /// True for `qwen3vl-mrope`.
        interleaved: bool,
        /// Angles that follow time, height and width; empty where the configuration does not say.
        sections: Vec<usize>,
    },
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

/// Phi-3's scaling: a divisor for each angle, one list for contexts as trained and one for longer ones.
///
/// The context's size decides once, not the length of a prompt: all positions of a table have the same divisors.
#[derive(Clone, Debug, PartialEq)]
pub struct LongRopeScaling {
    /// How many times longer the context is than in training; only the amplitude depends on it.
    pub factor: f64,
    /// Context length of the training, in tokens.
    pub original_max_position: f64,
    /// Divisors for contexts up to that.
    pub short_factor: Vec<f64>,
    /// Divisors for longer ones.
    pub long_factor: Vec<f64>,
}

/// YaRN: angles that turn often within the trained context are kept, slow ones divided by `factor`, those between blended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct YarnScaling {
    /// The divisor.
    pub factor: f64,
    /// Context length of the training, in tokens.
    pub original_max_position: f64,
    /// Rotated width of a head: twice the angles. With less, the angles from `dim / 2` on are not scaled.
    pub dim: usize,
    /// How much of the kept part is kept; 1 keeps all of it.
    pub extrapolation_factor: f64,
    /// Multiplied into the amplitude.
    pub attn_factor: f64,
    /// Angles that turn more often than that within the trained context are kept.
    pub beta_fast: f64,
    /// Angles that turn less often are divided.
    pub beta_slow: f64,
}

impl RopeScaling {
    /// Genie's name for it.
    pub const fn rope_type(&self) -> &'static str {
        match self {
            Self::Linear { .. } => "linear",
            Self::Llama3(_) => "llama3",
            Self::LongRope(_) => "longrope",
            Self::Yarn(_) => "yarnrope",
            Self::Proportional { .. } => "proportional",
            Self::Hunyuan => "hunyuan",
            Self::Mrope { interleaved: false, .. } => "qwen2vl-mrope",
            Self::Mrope { interleaved: true, .. } => "qwen3vl-mrope",
        }
    }

    pub(super) fn apply(&self, rope: &RopeConfig, plain: Vec<f64>, context_size: usize) -> RopeAngles {
        let as_they_are = |frequencies| RopeAngles { frequencies, amplitude: 1.0 };
        match self {
            Self::Linear { factor } => as_they_are(plain.iter().map(|f| f / factor).collect()),
            Self::Llama3(llama3) => as_they_are(plain.into_iter().map(|f| llama3.scale(f)).collect()),
            Self::LongRope(long) => long.apply(&plain, context_size),
            Self::Yarn(yarn) => yarn.apply(rope.theta, plain),
            Self::Proportional { factor, partial_rotary_factor } => {
                let n = (partial_rotary_factor * rope.rope_dim as f64).floor() as usize;
                as_they_are(plain.iter().enumerate().map(|(j, f)| if j < n { f / factor } else { 0.0 }).collect())
            }
            Self::Hunyuan => {
                let theta = rope.theta * 1000f64.powf(128.0 / 126.0);
                as_they_are(RopeConfig::new(rope.rope_dim, theta).angles(context_size).frequencies)
            }
            Self::Mrope { .. } => as_they_are(plain),
        }
    }
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

impl LongRopeScaling {
    /// The divisors for a context of that many tokens.
    pub fn divisors(&self, context_size: usize) -> &[f64] {
        if context_size as f64 > self.original_max_position { &self.long_factor } else { &self.short_factor }
    }

    /// Factor of cosines and sines: the square root of `1 + ln factor / ln original_max_position`.
    pub fn amplitude(&self) -> f64 {
        if self.factor <= 1.0 { 1.0 } else { (1.0 + self.factor.ln() / self.original_max_position.ln()).sqrt() }
    }

    fn apply(&self, plain: &[f64], context_size: usize) -> RopeAngles {
        let divided = plain.iter().zip(self.divisors(context_size)).map(|(f, divisor)| f / divisor);
        RopeAngles { frequencies: divided.collect(), amplitude: self.amplitude() }
    }
}

impl YarnScaling {
    /// What a factor does to the amplitude before `attn_factor` is multiplied in.
    pub fn amplitude_of(factor: f64) -> f64 {
        if factor <= 1.0 { 1.0 } else { 0.1 * factor.ln() + 1.0 }
    }

    fn apply(&self, theta: f64, plain: Vec<f64>) -> RopeAngles {
        let dim = self.dim as f64;
        // The angle, as a number with a fraction, that turns so often within the trained context.
        let angle_of = |turns: f64| {
            dim * (self.original_max_position / (turns * core::f64::consts::TAU)).ln() / (2.0 * theta.ln())
        };
        let low = angle_of(self.beta_fast).floor().max(0.0);
        let high = angle_of(self.beta_slow).ceil().min(dim - 1.0);
        let width = if low == high { 0.001 } else { high - low };
        let scaled = |(j, plain): (usize, f64)| {
            if j >= self.dim / 2 {
                return plain;
            }
            let base = theta.powf(-2.0 * j as f64 / dim);
            let ramp = ((j as f64 - low) / width).clamp(0.0, 1.0);
            let keep = (1.0 - ramp) * self.extrapolation_factor;
            base / self.factor * (1.0 - keep) + base * keep
        };
        RopeAngles {
            frequencies: plain.into_iter().enumerate().map(scaled).collect(),
            amplitude: self.attn_factor * Self::amplitude_of(self.factor),
        }
    }
}

impl From<Llama3Scaling> for RopeScaling {
    fn from(scaling: Llama3Scaling) -> Self {
        Self::Llama3(scaling)
    }
}

impl From<LongRopeScaling> for RopeScaling {
    fn from(scaling: LongRopeScaling) -> Self {
        Self::LongRope(scaling)
    }
}

impl From<YarnScaling> for RopeScaling {
    fn from(scaling: YarnScaling) -> Self {
        Self::Yarn(scaling)
    }
}
