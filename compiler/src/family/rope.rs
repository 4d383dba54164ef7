//! Rotary positions: theta and scaling, from either spelling in `config.json`, for all layers or by their type.
//!
//! Every key of the scaling is read or refused: an unknown one changes the angles of all positions.

mod scaling;

pub use genie_types::RopeScaling;

use self::scaling::AT_LEAST_1;
use super::skeleton::FamilyInfo;
use super::{LocalPositions, local_rope};
use crate::Result;
use crate::json::{Object, shown, shown_key};

/// The newer key, and the older one that it replaced.
const KEYS: [&str; 2] = ["rope_parameters", "rope_scaling"];
/// Types of layers that a block may name: without a window, and with one.
const LAYER_TYPES: [&str; 2] = ["full_attention", "sliding_attention"];

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

/// Positions by kind of layer.
pub(super) struct ByLayer {
    /// Of layers without a window; of all, if those with one have none of their own.
    pub(super) rope: Rope,
    /// Of layers with a window, where the block of positions names layer types.
    pub(super) windowed: Option<Rope>,
}

pub(super) fn read(config: &Object<'_>, info: &FamilyInfo) -> Result<ByLayer> {
    let defaults = &info.defaults;
    let [newer, older] = KEYS.map(|key| config.value(key));
    if let (Some(newer), Some(older)) = (newer, older)
        && newer != older
    {
        return Err(config.bad(KEYS[1], shown(older), "the same as `rope_parameters`, or no such key"));
    }
    let theta = config.number("rope_theta", 1.0..=f64::MAX, AT_LEAST_1)?;
    let part = rotated_part(config)?;
    let outer = Outer { theta, part, default_theta: defaults.theta, default_part: defaults.rotary_part };
    let Some(block) = config.object(key(config))? else {
        let rope = Rope { theta: outer.theta(), scaling: None, part: outer.part() };
        return Ok(ByLayer { rope, windowed: None });
    };
    // Asked for only where layers may differ: a key that was looked at counts as read, and others refuse it.
    let by_type = || LAYER_TYPES.iter().any(|kind| block.value(kind).is_some());
    if info.local_positions == LocalPositions::Same || !by_type() {
        return Ok(ByLayer { rope: of_block(config, &block, &outer)?, windowed: None });
    }
    let of_type = |kind: &str, outer: &Outer| match block.object(kind)? {
        Some(inner) => of_block(config, &inner, outer),
        None => Err(block.missing(kind, "an object with the positions of these layers")),
    };
    let [full, windowed] = LAYER_TYPES;
    let rope = of_type(full, &outer)?;
    // A theta outside of the block is that of layers without a window.
    let default_theta = local_rope::default_base(config, info.local_positions, rope.theta)?;
    let windowed = of_type(windowed, &Outer { theta: None, default_theta, ..outer })?;
    if windowed.part != rope.part {
        let expected = format!("{}, as in `{full}`: all layers rotate as much of a head", rope.part);
        return Err(block.bad("sliding_attention.partial_rotary_factor", windowed.part, &expected));
    }
    refuse_unread(&block)?;
    Ok(ByLayer { rope, windowed: Some(windowed) })
}

/// What `config.json` says outside of a block of positions, and what holds if it does not.
struct Outer {
    theta: Option<f64>,
    part: Option<f64>,
    default_theta: f64,
    default_part: f64,
}

impl Outer {
    fn theta(&self) -> f64 {
        self.theta.unwrap_or(self.default_theta)
    }

    fn part(&self) -> f64 {
        self.part.unwrap_or(self.default_part)
    }
}

/// The positions of one block.
fn of_block(config: &Object<'_>, block: &Object<'_>, outer: &Outer) -> Result<Rope> {
    let own_theta = block.number("rope_theta", 1.0..=f64::MAX, AT_LEAST_1)?;
    if let (Some(own), Some(outer)) = (own_theta, outer.theta)
        && own != outer
    {
        return Err(block.bad("rope_theta", own, &format!("{outer}, as `rope_theta` outside of it")));
    }
    let own_part = rotated_part(block)?;
    if let (Some(own), Some(outer)) = (own_part, outer.part)
        && own != outer
    {
        let expected = format!("{outer}, as `partial_rotary_factor` outside of it");
        return Err(block.bad("partial_rotary_factor", own, &expected));
    }
    let part = own_part.unwrap_or_else(|| outer.part());
    let (newer, older) = (block.text("rope_type")?, block.text("type")?);
    if let (Some(newer), Some(older)) = (newer, older)
        && newer != older
    {
        return Err(block.bad("type", shown_key(older), &format!("{}, as `rope_type`", shown_key(newer))));
    }
    let scaling = match newer.or(older) {
        Some(kind) => scaling::read(kind, config, block)?,
        // The newer key may hold theta alone.
        None if block.unread().is_empty() => None,
        None => return Err(block.missing("rope_type", scaling::ROPE_TYPES)),
    };
    refuse_unread(block)?;
    Ok(Rope { theta: own_theta.unwrap_or_else(|| outer.theta()), scaling, part })
}

/// An unknown key changes the angles of all positions.
fn refuse_unread(block: &Object<'_>) -> Result<()> {
    match block.unread().iter().find(|(_, value)| !value.is_null()) {
        Some((key, value)) => Err(block.unknown(key, value)),
        None => Ok(()),
    }
}

/// The key that a configuration has.
fn key(config: &Object<'_>) -> &'static str {
    if config.value(KEYS[0]).is_some() { KEYS[0] } else { KEYS[1] }
}

/// The part of a head that is rotated, where it is said.
fn rotated_part(block: &Object<'_>) -> Result<Option<f64>> {
    block.number("partial_rotary_factor", 0.0..=1.0, "a number from 0 to 1")
}

impl Rope {
    /// Settles what depends on the rotated width of a head: `rope_dim` is half of it. `windowed` are the positions of layers with a window.
    pub(super) fn fit(&mut self, config: &Object<'_>, rope_dim: usize, windowed: Option<&mut Rope>) -> Result<()> {
        let key = key(config);
        let Some(windowed) = windowed else {
            return scaling::fit(config, key, self.theta, &mut self.scaling, rope_dim);
        };
        for (kind, rope) in LAYER_TYPES.into_iter().zip([self, windowed]) {
            scaling::fit(config, &format!("{key}.{kind}"), rope.theta, &mut rope.scaling, rope_dim)?;
        }
        Ok(())
    }
}
