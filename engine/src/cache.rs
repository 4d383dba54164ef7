//! Which cache a model gets: groups with their lengths and rules, the mode, the tensors.

use kvmanager::{CacheGroup, Eviction, KvGeometry, ModeKind, SplitGeometry, Variants};
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
        long: rule(config, &group.prefix),
    };
    Ok(layout.groups.iter().enumerate().map(group).collect())
}

fn rule(config: &EngineConfig, prefix: &str) -> Eviction {
    config.long_context.iter().find(|(p, _)| p == prefix).map_or(Eviction::None, |(_, rule)| *rule)
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
pub(crate) fn geometry(layout: &ModelLayout, variants: &Variants, mode: ModeKind) -> Result<KvGeometry, EngineError> {
    let padded = |n: usize| mode.mode().padded(n);
    for (group, spec) in variants.groups().iter().flat_map(|g| variants.all().iter().map(move |s| (g, *s))) {
        let lengths = [group.past_len(spec), spec.ar().get()];
        if let Some(n) = lengths.into_iter().find(|&n| padded(n) != n) {
            // What a graph with a partial tile wants to see there is not known.
            let what = format!("a cache in hardware tiles with {n} rows (group `{}`, {spec})", group.prefix);
            return Err(EngineError::Unsupported { what, hint: "; whole tiles have a multiple of 32" });
        }
    }
    let split = |s: &nsp_graph::Split| SplitGeometry { tensors: s.kv.iter().map(|t| t.tensor).collect() };
    Ok(KvGeometry { splits: layout.splits.iter().map(split).collect() })
}
