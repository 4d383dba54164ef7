//! Rotary position embedding as numbers: the base, the scaling and the angles that follow from them.
//!
//! The one owner of these rules: rotary tables, keys that move to other positions, checks of configs and the compiler's
//! references all take their angles from here.
//!
//! *Units*: radians per position; angle `j` of position `p` is `p * frequencies[j]`, and its cosine and sine are multiplied by
//! the amplitude.
//! *Source*: position tables of libGenie 1.21, which these rules equal in every recorded code; `docs/positions.md`.

mod axes;
mod problems;
mod scaling;
#[cfg(test)]
mod tests;

pub use problems::RopeProblem;
pub use scaling::{Llama3Scaling, LongRopeScaling, RopeScaling, YarnScaling};

/// Rotary position embedding of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct RopeConfig {
    /// Angles per position: half of the rotated width of a head.
    pub rope_dim: usize,
    /// Base of the frequencies: `theta ^ (-j / rope_dim)` before scaling.
    pub theta: f64,
    /// What is done to the frequencies; nothing for plain rotation.
    pub scaling: Option<RopeScaling>,
}

/// What a rotary table is computed from.
#[derive(Clone, Debug, PartialEq)]
pub struct RopeAngles {
    /// Radians per position, by angle.
    pub frequencies: Vec<f64>,
    /// Factor of every cosine and sine.
    pub amplitude: f64,
}

impl RopeConfig {
    /// No scaling.
    pub const fn new(rope_dim: usize, theta: f64) -> Self {
        Self { rope_dim, theta, scaling: None }
    }

    /// The same with a scaling, or with none.
    #[must_use]
    pub fn with_scaling(self, scaling: impl Into<Option<RopeScaling>>) -> Self {
        Self { scaling: scaling.into(), ..self }
    }

    /// The angles of a dialog with a context of that many tokens, on which `longrope` depends; the others do not.
    pub fn angles(&self, context_size: usize) -> RopeAngles {
        let plain: Vec<f64> = (0..self.rope_dim).map(|j| self.theta.powf(-(j as f64) / self.rope_dim as f64)).collect();
        match &self.scaling {
            None => RopeAngles { frequencies: plain, amplitude: 1.0 },
            Some(scaling) => scaling.apply(self, plain, context_size),
        }
    }
}
