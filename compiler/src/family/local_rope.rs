//! Positions of layers with a window where they are others than those of all layers: a base of their own (`rope_local_base_freq`), no
//! scaling, or a block of their own in `rope_parameters`.
//!
//! One pair of position tables may serve both kinds of layers. Its column `k` of `w` turns by `theta^(-k / w)`. With `h` pairs in a head, the
//! angles of the base `theta` are those of every `a`-th column of `w = a h`, and those of a base `theta^(b / a)` of every `b`-th. So one wider
//! table holds both wherever the logarithms of the bases are as small whole numbers: 10,000 and 1,000,000 as 2 and 3. Other bases, and
//! positions that are scaled in either kind of layers, have a second pair of tables, with a prefix.

use super::parts::Window;
use super::rope::Rope;
use crate::Result;
use crate::json::Object;
use genie_types::RopeScaling;

/// Positions of layers with a window, as far as a family goes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum LocalPositions {
    /// Those of all layers.
    Same,
    /// `rope_local_base_freq`, by default this one, and no scaling.
    OwnBase(f64),
    /// The base of all layers, and no scaling.
    Unscaled,
}

/// Where layers with a window, and those without one, have their angles.
#[derive(Clone, Debug, PartialEq)]
pub enum LocalRope {
    /// In columns of one table.
    Columns {
        /// Layers without a window take every column of this number.
        global_step: usize,
        /// Layers with one take every column of this number, from the beginning.
        local_step: usize,
    },
    /// In tables of their own.
    Table {
        /// Base of their angles.
        theta: f64,
        /// What is done to their frequencies.
        scaling: Option<RopeScaling>,
    },
}

/// What the names of the second tables begin with.
pub(crate) const LOCAL_TABLES: &str = "local_";

const KEY: &str = "rope_local_base_freq";
/// Widest table, in heads' pairs.
const MAX_STEP: usize = 8;

/// The positions of layers with a window, where they differ from `rope`; `windowed` is what `rope_parameters` says of them.
///
/// # Errors
/// A base that is no number of at least 1, or another one than in `rope_parameters`.
pub(super) fn read(
    config: &Object<'_>,
    rule: LocalPositions,
    rope: &Rope,
    windowed: Option<Rope>,
) -> Result<Option<LocalRope>> {
    let (theta, scaling) = match (rule, windowed) {
        (LocalPositions::Same, _) => return Ok(None),
        (_, Some(own)) => (own.theta, own.scaling),
        (LocalPositions::OwnBase(default), None) => (base(config)?.unwrap_or(default), None),
        (LocalPositions::Unscaled, None) => (rope.theta, None),
    };
    if let Some(stated) = base(config)?.filter(|stated| *stated != theta) {
        return Err(config.bad(KEY, stated, &format!("{theta}, as in `rope_parameters`")));
    }
    if rope.scaling.is_some() || scaling.is_some() {
        let same = rope.scaling == scaling && rope.theta == theta;
        return Ok((!same).then_some(LocalRope::Table { theta, scaling }));
    }
    if rule == LocalPositions::Unscaled && rope.theta == theta {
        return Ok(None);
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
        None => LocalRope::Table { theta, scaling: None },
    }))
}

/// `rope_local_base_freq`, of families that have the key.
fn base(config: &Object<'_>) -> Result<Option<f64>> {
    config.number(KEY, 1.0..=f64::MAX, "a number of at least 1")
}

/// The base of layers with a window, where neither `rope_parameters` nor a key of its own states it.
pub(super) fn default_base(config: &Object<'_>, rule: LocalPositions, theta: f64) -> Result<f64> {
    Ok(match rule {
        LocalPositions::OwnBase(default) => base(config)?.unwrap_or(default),
        LocalPositions::Same | LocalPositions::Unscaled => theta,
    })
}

/// Which layers have which positions goes by their windows: with the window switched off they would all have the same ones.
///
/// # Errors
/// No window in a family whose positions depend on it, unless every layer is said to have full attention.
pub(super) fn check_window(config: &Object<'_>, rule: LocalPositions, window: Option<&Window>) -> Result<()> {
    if rule == LocalPositions::Same || window.is_some() || config.value("layer_types").is_some() {
        return Ok(());
    }
    Err(config.missing("sliding_window", "the tokens that windowed layers see, since positions differ between layers"))
}
