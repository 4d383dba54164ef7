//! Positions of layers with a window where they have a base of their own (`rope_local_base_freq`).
//!
//! Graphs take one pair of position tables, whose column `k` of `w` turns by `theta^(-k / w)`. With `h` pairs in a head, the angles of
//! the base `theta` are those of every `a`-th column of `w = a h`, and those of a base `theta^(b / a)` of every `b`-th. So one wider
//! table holds both wherever the logarithms of the bases are as small whole numbers: 10,000 and 1,000,000 as 2 and 3.

use super::rope::Rope;
use crate::Result;
use crate::json::Object;

/// How the columns of the position tables belong to layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalRope {
    /// Layers without a window take every column of this number.
    pub global_step: usize,
    /// Layers with one take every column of this number, from the beginning.
    pub local_step: usize,
}

const KEY: &str = "rope_local_base_freq";
/// Widest table, in heads' pairs.
const MAX_STEP: usize = 8;

/// The steps of a family that has the key, with the base where it is absent.
///
/// # Errors
/// Bases that no table of a moderate width has both of; positions that are scaled as well.
pub(super) fn read(config: &Object<'_>, default: Option<f64>, rope: &Rope) -> Result<Option<LocalRope>> {
    let Some(default) = default else { return Ok(None) };
    let local = config.number(KEY, 1.0..=f64::MAX, "a number of at least 1")?.unwrap_or(default);
    if rope.scaling.is_some() {
        return Err(config.unsupported(KEY, local, "positions that are not scaled beside it"));
    }
    let ratio = local.ln() / rope.theta.ln();
    // A table as wide as a head looks like one whose columns come twice, which is a common mistake.
    let step = (1..=MAX_STEP).filter(|a| *a != 2).find(|a| {
        let b = ratio * *a as f64;
        b.round() >= 1.0 && b.round() <= *a as f64 && (b - b.round()).abs() < 1e-9
    });
    match step {
        Some(global_step) => {
            let local_step = (ratio * global_step as f64).round() as usize;
            Ok(Some(LocalRope { global_step, local_step }))
        }
        None => {
            let accepted = format!(
                "a base whose logarithm is a whole multiple of 1/n of that of `rope_theta`, {}, for an n of at most {MAX_STEP}",
                rope.theta
            );
            Err(config.unsupported(KEY, local, &accepted))
        }
    }
}
