//! Rotary positions: theta and scaling, from either spelling in `config.json`.
//!
//! Every key of the scaling is read or refused: an unknown one changes the angles of all positions.

mod scaling;

pub use genie_types::RopeScaling;

use self::scaling::AT_LEAST_1;
use super::skeleton::Defaults;
use crate::Result;
use crate::json::{Object, shown, shown_key};

/// The newer key, and the older one that it replaced.
const KEYS: [&str; 2] = ["rope_parameters", "rope_scaling"];

/// Rotary positions of a model. Graphs take cosines and sines as inputs; the engine computes them from the bundle's
/// configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// Base of the angles.
    pub theta: f64,
    /// What is done to the frequencies, `None` for plain rotation.
    pub scaling: Option<RopeScaling>,
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
        Some(kind) => scaling::read(kind, config, &block)?,
        // The newer key may hold theta alone.
        None if block.unread().is_empty() => None,
        None => return Err(block.missing("rope_type", scaling::ROPE_TYPES)),
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

impl Rope {
    /// Settles what depends on the rotated width of a head: `rope_dim` is half of it.
    pub(super) fn fit(&mut self, config: &Object<'_>, rope_dim: usize) -> Result<()> {
        let key = if config.value(KEYS[0]).is_some() { KEYS[0] } else { KEYS[1] };
        scaling::fit(config, key, self.theta, &mut self.scaling, rope_dim)
    }
}
