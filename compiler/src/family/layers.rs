//! What differs from layer to layer: attention windows, and layers without rotary positions.
//!
//! A window changes nothing as long as the context is not longer than it: every token then sees all earlier ones. How longer contexts
//! are compiled stands in `lower/window.rs`. A layer of another kind of attention is refused.

use super::parts::Window;
use crate::Result;
use crate::json::{Object, shown_key};

/// Most layers of a model.
pub(super) const MAX_LAYERS: usize = 1 << 16;
/// `max_window_layers` where there is none: layers without a window before those with one.
const FIRST_WITH_WINDOW: usize = 28;

/// Which layers have the window that `sliding_window` gives, where `layer_types` does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlidingWindow {
    /// All layers.
    All {
        /// Size of the window where there is no key.
        default: Option<usize>,
    },
    /// None, unless `use_sliding_window` is true; then those from `max_window_layers` on, or those that do not rotate if some do not.
    OffByDefault,
    /// All but every second, third, ... one. `sliding_window_pattern` may say which.
    AllBut {
        /// One in this many layers has no window.
        every: usize,
        /// Size of the window where there is no key.
        default: usize,
    },
}

/// The window of a model, if any of its layers has one; `rotated` says which layers rotate queries and keys.
///
/// # Errors
/// Attention of another kind than full and windowed, lists of another length, a window without a size, or one that is
/// switched off.
pub(super) fn window(config: &Object<'_>, rule: SlidingWindow, rotated: &[bool]) -> Result<Option<Window>> {
    let n_layers = rotated.len();
    let given = config.count("sliding_window", 0..=u32::MAX as usize)?.filter(|size| *size > 0);
    // A null switches the window off, an absent key does not.
    let or = |default: Option<usize>| given.or(default.filter(|_| !config.is_null("sliding_window")));
    let on = config.flag("use_sliding_window")?;
    let first = config.count("max_window_layers", 0..=MAX_LAYERS)?;
    let types = config.texts("layer_types")?;
    let (rule_on, size, layers): (bool, _, Vec<bool>) = match rule {
        SlidingWindow::All { default } => {
            (or(default).is_some() || on == Some(true), or(default), vec![true; n_layers])
        }
        SlidingWindow::OffByDefault => {
            let first = first.unwrap_or(FIRST_WITH_WINDOW);
            let some_rotate = rotated.contains(&false);
            let has = |layer: usize| if some_rotate { !rotated[layer] } else { layer >= first };
            (on == Some(true), given, (0..n_layers).map(has).collect())
        }
        SlidingWindow::AllBut { every, default } => {
            let pattern = |key| config.count(key, 1..=MAX_LAYERS);
            let given = pattern("sliding_window_pattern")?.or(pattern("_sliding_window_pattern")?);
            let every = given.unwrap_or(every);
            let size = or(Some(default));
            (size.is_some(), size, (0..n_layers).map(|layer| (layer + 1) % every != 0).collect())
        }
    };
    let layers = match types {
        None if rule_on && on != Some(false) => layers,
        None => return Ok(None),
        Some(types) => {
            let windowed = |kind: &&str| match *kind {
                "full_attention" => Ok(false),
                "sliding_attention" => Ok(true),
                other => {
                    Err(config.unsupported("layer_types", shown_key(other), "full_attention or sliding_attention"))
                }
            };
            let layers = types.iter().map(windowed).collect::<Result<Vec<_>>>()?;
            if layers.len() != n_layers {
                let found = format!("{} entries", layers.len());
                return Err(config.bad("layer_types", found, &format!("one for each of the {n_layers} layers")));
            }
            if layers.contains(&true) && (on == Some(false) || (on.is_none() && rule == SlidingWindow::OffByDefault)) {
                let expected = "only full_attention where `use_sliding_window` is not true";
                return Err(config.bad("layer_types", "sliding_attention", expected));
            }
            layers
        }
    };
    match (layers.contains(&true), size) {
        (false, _) => Ok(None),
        (true, Some(tokens)) => Ok(Some(Window { tokens, layers })),
        (true, None) => Err(config.missing("sliding_window", "the tokens that windowed layers see")),
    }
}

/// Which layers rotate queries and keys: all, or those of `no_rope_layers` (1 for a layer that does), or all but every
/// `no_rope_layer_interval`-th one.
///
/// # Errors
/// Lists of another length or with other numbers.
pub(super) fn rotated(config: &Object<'_>, has_keys: bool, n_layers: usize) -> Result<Vec<bool>> {
    if !has_keys {
        return Ok(vec![true; n_layers]);
    }
    let interval = config.count("no_rope_layer_interval", 1..=MAX_LAYERS)?.unwrap_or(4);
    let Some(listed) = config.one_or_many("no_rope_layers", 0..=1)? else {
        return Ok((0..n_layers).map(|layer| (layer + 1) % interval != 0).collect());
    };
    if listed.len() != n_layers {
        let found = format!("{} entries", listed.len());
        return Err(config.bad("no_rope_layers", found, &format!("one for each of the {n_layers} layers")));
    }
    Ok(listed.iter().map(|rotates| *rotates == 1).collect())
}
