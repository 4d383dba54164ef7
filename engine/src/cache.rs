//! Which cache a model gets: groups with their lengths and rules, the mode, the tensors.

use genie_types::Variant;
use kvmanager::{CacheGroup, Eviction, KvForm, KvGeometry, ModeKind, Policy, SplitGeometry};
use nsp_graph::{InputRole, ModelLayout};

use crate::{EngineConfig, EngineError};

/// The cache groups, the default one first, each with its own context length and the rule that the configuration gives it.
pub(crate) fn groups(layout: &ModelLayout, config: &EngineConfig) -> Result<Vec<CacheGroup>, EngineError> {
    for (prefix, _) in &config.long_context {
        if !layout.groups.iter().any(|g| g.prefix == *prefix) {
            let found = format!("`{prefix}`");
            return Err(EngineError::Config { what: "long context", expected: "the prefix of a cache group", found });
        }
    }
    let group = |(g, group): (usize, &nsp_graph::GroupLayout)| CacheGroup {
        prefix: group.prefix.clone(),
        form: group.form,
        ctx: (0..layout.variants.len()).filter_map(|v| Some((layout.variants[v], width(layout, g, v)?))).collect(),
        long: rule(layout, config, g),
    };
    let groups: Vec<CacheGroup> = layout.groups.iter().enumerate().map(group).collect();
    groups.iter().try_for_each(|group| check_window(group, &layout.variants))?;
    Ok(groups)
}

/// The rule of a group as the configuration has it. libGenie does not look at the size of a window on the default group: its
/// cache is a ring of the slots that there are. In other groups of scatter graphs it takes the first slots that fit.
fn rule(layout: &ModelLayout, config: &EngineConfig, group: usize) -> Eviction {
    let prefix = &layout.groups[group].prefix;
    let context = config.context_size.unwrap_or_else(|| layout.max_cl());
    let rule = config.long_context.iter().find(|(p, _)| p == prefix).map_or(Eviction::None, |(_, rule)| *rule);
    match rule {
        Eviction::Window { sinks, .. } if group == 0 && matches!(config.policy, Policy::Genie) => {
            Eviction::Ring { sinks }
        }
        // No token looks further back than the context, which the graphs hold.
        Eviction::Window { size, .. } if size >= context && layout.max_cl() >= context => Eviction::None,
        Eviction::Window { size, sinks }
            if group > 0 && matches!(config.policy, Policy::Genie) && layout.groups[group].form == KvForm::Scatter =>
        {
            // The window of the config has the reserved tokens in it.
            Eviction::FirstFit { size: size.saturating_sub(sinks).max(1), sinks }
        }
        rule => rule,
    }
}

/// A window that no graph holds would end a dialog where others go on.
fn check_window(group: &CacheGroup, variants: &[Variant]) -> Result<(), EngineError> {
    let widest = variants.iter().map(|&v| group.room(v)).max().unwrap_or(0);
    match group.long {
        Eviction::Window { size, sinks } | Eviction::FirstFit { size, sinks }
            if (size.max(1) - 1).saturating_add(sinks) > widest =>
        {
            Err(EngineError::WindowTooLong { prefix: group.prefix.clone(), size, sinks, most: widest + 1 })
        }
        Eviction::Ring { sinks } | Eviction::KeyDiff { sinks, .. } if sinks >= widest => {
            Err(EngineError::TooManyReserved { prefix: group.prefix.clone(), found: sinks, most: widest.max(1) - 1 })
        }
        _ => Ok(()),
    }
}

/// Columns of a group's mask in a variant.
fn width(layout: &ModelLayout, group: usize, variant: usize) -> Option<usize> {
    let mut masks = layout.splits.iter().filter_map(|s| s.graph(variant).input(InputRole::Mask(group)));
    masks.next().and_then(|(_, t)| t.dims.last().copied())
}

/// The mode that is asked for, if it fits the format of the bundle's cache tensors; else the one that they ask for.
pub(crate) fn mode(layout: &ModelLayout, wanted: Option<ModeKind>) -> Result<ModeKind, EngineError> {
    let tensors = || layout.splits.iter().flat_map(|s| &s.kv);
    let own = ModeKind::for_formats(tensors().map(|t| t.format));
    let tiled = own == ModeKind::NATIVE_KV;
    match wanted {
        None => Ok(own),
        Some(mode) if tensors().next().is_none() || (mode == ModeKind::NATIVE_KV) == tiled => Ok(mode),
        Some(mode) => {
            let expected = if tiled {
                "`native-kv`, since the bundle's cache tensors are in hardware tiles"
            } else {
                "`smart-mask`, `shift-concat` or `pointer-shift`, since the bundle's cache tensors are flat"
            };
            Err(EngineError::Config { what: "cache mode", expected, found: format!("`{}`", mode.name()) })
        }
    }
}

/// The cache tensors, in the layout's order.
pub(crate) fn geometry(layout: &ModelLayout) -> KvGeometry {
    let split = |s: &nsp_graph::Split| SplitGeometry { tensors: s.kv.iter().map(|t| t.tensor).collect() };
    KvGeometry { splits: layout.splits.iter().map(split).collect() }
}
