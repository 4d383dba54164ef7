//! Rotary positions: theta and scaling, from either spelling in `config.json`.
//!
//! Every key of the scaling is read or refused: an unknown one changes the angles of all positions.

pub use genie_types::Llama3Scaling;

use super::skeleton::Defaults;
use crate::Result;
use crate::json::{Object, shown, shown_key};

/// The newer key, and the older one that it replaced.
const KEYS: [&str; 2] = ["rope_parameters", "rope_scaling"];

const ROPE_TYPES: &str = "default, linear or llama3";
const AT_LEAST_1: &str = "a number of at least 1";
const ABOVE_0: &str = "a number above 0";

/// Rotary positions of a model. Graphs take cosines and sines as inputs; the engine computes them from the bundle's
/// configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// Base of the angles.
    pub theta: f64,
    /// Scaling of the low frequencies, `None` for plain rotation.
    pub scaling: Option<Llama3Scaling>,
    /// The part of a head that is rotated, 1 for all of it. The other elements come behind it and stay as they are.
    pub part: f64,
}

pub(super) fn read(config: &Object<'_>, defaults: &Defaults) -> Result<Rope> {
    let [newer, older] = KEYS.map(|key| config.value(key));
    if let (Some(newer), Some(older)) = (newer, older)
        && newer != older
    {
        return Err(config.bad(KEYS[1], shown(older), "the same as `rope_parameters`, or no such key"));
    }
    let theta = config.number("rope_theta", 1.0..=f64::MAX, AT_LEAST_1)?;
    let outer_part = rotated_part(config)?;
    let key = if newer.is_some() { KEYS[0] } else { KEYS[1] };
    let Some(block) = config.object(key)? else {
        let part = outer_part.unwrap_or(defaults.rotary_part);
        return Ok(Rope { theta: theta.unwrap_or(defaults.theta), scaling: None, part });
    };

    let own_theta = block.number("rope_theta", 1.0..=f64::MAX, AT_LEAST_1)?;
    if let (Some(own), Some(outer)) = (own_theta, theta)
        && own != outer
    {
        return Err(block.bad("rope_theta", own, &format!("{outer}, as `rope_theta` outside of it")));
    }
    let own_part = rotated_part(&block)?;
    if let (Some(own), Some(outer)) = (own_part, outer_part)
        && own != outer
    {
        let expected = format!("{outer}, as `partial_rotary_factor` outside of it");
        return Err(block.bad("partial_rotary_factor", own, &expected));
    }
    let part = own_part.or(outer_part).unwrap_or(defaults.rotary_part);
    let (newer, older) = (block.text("rope_type")?, block.text("type")?);
    if let (Some(newer), Some(older)) = (newer, older)
        && newer != older
    {
        return Err(block.bad("type", shown_key(older), &format!("{}, as `rope_type`", shown_key(newer))));
    }
    let scaling = match newer.or(older) {
        Some("default") => None,
        Some("llama3") => Some(llama3(&block)?),
        Some("linear") => Some(linear(&block)?),
        Some(other) => return Err(block.unsupported("rope_type", shown_key(other), ROPE_TYPES)),
        // The newer key may hold theta alone.
        None if block.unread().is_empty() => None,
        None => return Err(block.missing("rope_type", ROPE_TYPES)),
    };
    match block.unread().iter().find(|(_, value)| !value.is_null()) {
        Some((key, value)) => Err(block.unknown(key, value)),
        None => Ok(Rope { theta: own_theta.or(theta).unwrap_or(defaults.theta), scaling, part }),
    }
}

/// The part of a head that is rotated, where it is said.
fn rotated_part(block: &Object<'_>) -> Result<Option<f64>> {
    block.number("partial_rotary_factor", 0.0..=1.0, "a number from 0 to 1")
}

/// All positions divided by a factor. libGenie's configuration has no name for it, but it is the `llama3` rule for a model of one
/// position: every wavelength is longer than that, so every frequency is divided.
fn linear(block: &Object<'_>) -> Result<Llama3Scaling> {
    let factor = block.needed_number("factor", f64::MIN_POSITIVE..=f64::MAX, ABOVE_0)?;
    Ok(Llama3Scaling { factor, low_freq_factor: 1.0, high_freq_factor: 4.0, original_max_position: 1.0 })
}

fn llama3(block: &Object<'_>) -> Result<Llama3Scaling> {
    let above_0 = |key| block.needed_number(key, f64::MIN_POSITIVE..=f64::MAX, ABOVE_0);
    let scaling = Llama3Scaling {
        factor: above_0("factor")?,
        low_freq_factor: above_0("low_freq_factor")?,
        high_freq_factor: above_0("high_freq_factor")?,
        original_max_position: block.needed_number("original_max_position_embeddings", 1.0..=f64::MAX, AT_LEAST_1)?,
    };
    if scaling.high_freq_factor <= scaling.low_freq_factor {
        let expected = format!("more than `low_freq_factor`, {}", scaling.low_freq_factor);
        return Err(block.bad("high_freq_factor", scaling.high_freq_factor, &expected));
    }
    Ok(scaling)
}
