//! Positions of layers with a window where they have a base of their own (`rope_local_base_freq`).
//!
//! One pair of position tables may serve both kinds of layers. Its column `k` of `w` turns by `theta^(-k / w)`. With `h` pairs in a head, the
//! angles of the base `theta` are those of every `a`-th column of `w = a h`, and those of a base `theta^(b / a)` of every `b`-th. So one wider
//! table holds both wherever the logarithms of the bases are as small whole numbers: 10,000 and 1,000,000 as 2 and 3. Other bases, and
//! positions of which only the layers without a window are scaled, have a second pair of tables, with a prefix.

use super::rope::Rope;
use crate::Result;
use crate::json::Object;

/// Where layers with a window, and those without one, have their angles.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LocalRope {
    /// In columns of one table.
    Columns {
        /// Layers without a window take every column of this number.
        global_step: usize,
        /// Layers with one take every column of this number, from the beginning.
        local_step: usize,
    },
    /// In tables of their own, not scaled.
    Table {
        /// Base of their angles.
        theta: f64,
    },
}

/// What the names of the second tables begin with.
pub(crate) const LOCAL_TABLES: &str = "local_";

const KEY: &str = "rope_local_base_freq";
/// Widest table, in heads' pairs.
const MAX_STEP: usize = 8;

/// The positions of a family that has the key, with the base where it is absent.
///
/// # Errors
/// A base that is no number of at least 1.
pub(super) fn read(config: &Object<'_>, default: Option<f64>, rope: &Rope) -> Result<Option<LocalRope>> {
    let Some(default) = default else { return Ok(None) };
    let theta = config.number(KEY, 1.0..=f64::MAX, "a number of at least 1")?.unwrap_or(default);
    if rope.scaling.is_some() {
        return Ok(Some(LocalRope::Table { theta }));
    }
    let ratio = theta.ln() / rope.theta.ln();
    // A table as wide as a head looks like one whose columns come twice, which is a common mistake.
    let step = (1..=MAX_STEP).filter(|a| *a != 2).find(|a| {
        let b = ratio * *a as f64;
        b.round() >= 1.0 && b.round() <= *a as f64 && (b - b.round()).abs() < 1e-9
    });
    Ok(Some(match step {
        Some(global_step) => {
            let local_step = (ratio * global_step as f64).round() as usize;
            LocalRope::Columns { global_step, local_step }
        }
        None => LocalRope::Table { theta },
    }))
}
