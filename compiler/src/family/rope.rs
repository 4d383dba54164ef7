//! Rotary positions: theta and scaling, from either spelling in `config.json`.
//!
//! Every key of the scaling is read or refused: an unknown one changes the angles of all positions.

mod scaling;

pub use genie_types::RopeScaling;

use crate::Result;
use crate::json::{Object, shown, shown_key};

/// Theta where `config.json` has none.
const DEFAULT_THETA: f64 = 10_000.0;

/// The newer key, and the older one that it replaced.
const KEYS: [&str; 2] = ["rope_parameters", "rope_scaling"];

const AT_LEAST_1: &str = "a number of at least 1";
const ABOVE_0: &str = "a number above 0";

/// Rotary positions of a model. Graphs take cosines and sines as inputs; the engine computes them from the bundle's
/// configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// Base of the angles.
    pub theta: f64,
    /// What is done to the frequencies, `None` for plain rotation.
    pub scaling: Option<RopeScaling>,
}

pub(super) fn read(config: &Object<'_>) -> Result<Rope> {
    let [newer, older] = KEYS.map(|key| config.value(key));
    if let (Some(newer), Some(older)) = (newer, older)
        && newer != older
    {
        return Err(config.bad(KEYS[1], shown(older), "the same as `rope_parameters`, or no such key"));
    }
    let theta = config.number("rope_theta", 1.0..=f64::MAX, AT_LEAST_1)?;
    full_rotation(config)?;
    let key = if newer.is_some() { KEYS[0] } else { KEYS[1] };
    let Some(block) = config.object(key)? else {
        return Ok(Rope { theta: theta.unwrap_or(DEFAULT_THETA), scaling: None });
    };

    let own_theta = block.number("rope_theta", 1.0..=f64::MAX, AT_LEAST_1)?;
    if let (Some(own), Some(outer)) = (own_theta, theta)
        && own != outer
    {
        return Err(block.bad("rope_theta", own, &format!("{outer}, as `rope_theta` outside of it")));
    }
    full_rotation(&block)?;
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
        None => Ok(Rope { theta: own_theta.or(theta).unwrap_or(DEFAULT_THETA), scaling }),
    }
}

/// Refuses heads of which only a part is rotated.
fn full_rotation(block: &Object<'_>) -> Result<()> {
    let key = "partial_rotary_factor";
    match block.number(key, 0.0..=1.0, "a number from 0 to 1")? {
        Some(factor) if factor != 1.0 => Err(block.unsupported(key, factor, "1.0")),
        _ => Ok(()),
    }
}

impl Rope {
    /// Settles what depends on the rotated width of a head: `rope_dim` is half of it.
    pub(super) fn fit(&mut self, config: &Object<'_>, rope_dim: usize) -> Result<()> {
        let key = if config.value(KEYS[0]).is_some() { KEYS[0] } else { KEYS[1] };
        scaling::fit(config, key, self.theta, &mut self.scaling, rope_dim)
    }
}
