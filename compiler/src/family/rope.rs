//! Rotary positions: theta and scaling, from either spelling in `config.json`.

pub use genie_types::Llama3Scaling;

use super::raw::{RawConfig, RawRope};
use super::skeleton::refuse;
use crate::{CompileError, Result};

/// Theta where `config.json` has none.
const DEFAULT_THETA: f64 = 10_000.0;

/// Rotary positions of a model. Graphs take cosines and sines as inputs; the engine computes them from the bundle's
/// configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// Base of the angles.
    pub theta: f64,
    /// Scaling of the low frequencies, `None` for plain rotation.
    pub scaling: Option<Llama3Scaling>,
}

pub(super) fn read(raw: &RawConfig) -> Result<Rope> {
    let empty = RawRope::default();
    let scaling = raw.rope_parameters.as_ref().or(raw.rope_scaling.as_ref()).unwrap_or(&empty);
    let theta = scaling.rope_theta.or(raw.rope_theta).unwrap_or(DEFAULT_THETA);
    if !(theta.is_finite() && theta > 0.0) {
        return Err(CompileError::ConfigValue {
            key: "rope_theta",
            found: theta.to_string(),
            expected: "a positive number",
        });
    }
    let partial = scaling.partial_rotary_factor.or(raw.partial_rotary_factor);
    if let Some(factor) = partial.filter(|factor| *factor != 1.0) {
        return Err(refuse("partial_rotary_factor", factor, "1.0"));
    }
    let scaling = match scaling.rope_type.as_deref().or(scaling.r#type.as_deref()) {
        None | Some("default") => None,
        Some("llama3") => Some(llama3(scaling)?),
        Some(other) => return Err(refuse("rope type", other, "default or llama3")),
    };
    Ok(Rope { theta, scaling })
}

fn llama3(raw: &RawRope) -> Result<Llama3Scaling> {
    let positive = |value: Option<f64>, key| match value {
        None => Err(CompileError::ConfigMissing { key }),
        Some(v) if v.is_finite() && v > 0.0 => Ok(v),
        Some(v) => Err(CompileError::ConfigValue { key, found: v.to_string(), expected: "a positive number" }),
    };
    let scaling = Llama3Scaling {
        factor: positive(raw.factor, "rope_scaling.factor")?,
        low_freq_factor: positive(raw.low_freq_factor, "rope_scaling.low_freq_factor")?,
        high_freq_factor: positive(raw.high_freq_factor, "rope_scaling.high_freq_factor")?,
        original_max_position: positive(
            raw.original_max_position_embeddings,
            "rope_scaling.original_max_position_embeddings",
        )?,
    };
    if scaling.high_freq_factor <= scaling.low_freq_factor {
        return Err(CompileError::ConfigValue {
            key: "rope_scaling.high_freq_factor",
            found: scaling.high_freq_factor.to_string(),
            expected: "a number above low_freq_factor",
        });
    }
    Ok(scaling)
}
