//! What the position inputs of the graphs are filled from, and whether the configuration says what the graphs take.
//!
//! `position_ids` says by its shape whether it takes positions or distances. A rotary table is found by its prefix.

use genie_types::{PositionKind, RopeAngles, RopeConfig};
use kvmanager::{Eviction, RopePairs, RopeSpec};
use nsp_graph::names::{DEFAULT_GROUP, POSITION_IDS};
use nsp_graph::{GraphLayout, InputRole, ModelLayout};

use crate::{EngineConfig, EngineError};

/// Compares the configured positions with the graphs' inputs, before anything is made of them.
pub(crate) fn check(layout: &ModelLayout, config: &EngineConfig) -> Result<(), EngineError> {
    for (table, found) in layout.rope_tables.iter().enumerate() {
        let graph = first_with(layout, InputRole::Cos(table)).expect("a table is one that a graph takes");
        let Some(rope) = rope_of(layout, table, config)? else { continue };
        if rope.rope_dim != found.dim {
            let (tensor, graph) = (cos_name(&found.prefix), graph.info.name.clone());
            return Err(EngineError::RopeDim { graph, tensor, expected: rope.rope_dim, found: found.dim });
        }
    }
    for (prefix, _) in &config.prefixed_ropes {
        if !layout.rope_tables.iter().any(|table| table.prefix == *prefix) {
            let tensor = cos_name(prefix);
            return Err(EngineError::NoPositionInput { kind: PositionKind::Rope, tensor });
        }
    }
    let (wanted, other) = match config.positions {
        Some(PositionKind::Absolute) => (InputRole::Positions, InputRole::Distances),
        Some(PositionKind::Alibi) => (InputRole::Distances, InputRole::Positions),
        _ => return check_distances(layout, config),
    };
    let kind = config.positions.expect("just matched");
    if let Some(graph) = first_with(layout, other) {
        let dims = graph.input(other).map(|(_, t)| t.dims.clone()).unwrap_or_default();
        return Err(EngineError::PositionShape { graph: graph.info.name.clone(), kind, found: dims });
    }
    if first_with(layout, wanted).is_none() {
        return Err(EngineError::NoPositionInput { kind, tensor: POSITION_IDS.into() });
    }
    check_distances(layout, config)
}

/// Where each head keeps other keys, a column has no single distance.
fn check_distances(layout: &ModelLayout, config: &EngineConfig) -> Result<(), EngineError> {
    let per_head =
        |(prefix, rule): &(String, Eviction)| prefix == DEFAULT_GROUP && matches!(rule, Eviction::KeyDiff { .. });
    if first_with(layout, InputRole::Distances).is_some() && config.long_context.iter().any(per_head) {
        let what = "alibi with KeyDiff, which keeps other keys in each head,".into();
        return Err(EngineError::Unsupported { what, hint: "; use a sliding window" });
    }
    Ok(())
}

/// The embedding of a table; `None` if the configuration says that nothing is fed.
pub(crate) fn rope_of<'a>(
    layout: &ModelLayout,
    table: usize,
    config: &'a EngineConfig,
) -> Result<Option<&'a RopeConfig>, EngineError> {
    let found = &layout.rope_tables[table];
    let rope = if found.prefix.is_empty() {
        config.rope.as_ref()
    } else {
        config.prefixed_ropes.iter().find(|(prefix, _)| *prefix == found.prefix).map(|(_, rope)| rope)
    };
    match rope {
        None if config.positions != Some(PositionKind::None) => {
            Err(EngineError::RopeMissing { prefix: found.prefix.clone(), rope_dim: found.dim })
        }
        rope => Ok(rope),
    }
}

/// How keys are turned when they move to other positions, if that is known: rotated as the only table is, or as all of
/// them are if they are equal; not at all where positions are in the scores alone.
pub(crate) fn key_rotation(layout: &ModelLayout, config: &EngineConfig, limit: usize) -> Option<RopeSpec> {
    let spec = |frequencies| Some(RopeSpec { frequencies, pairs: RopePairs::HalfSplit });
    if config.mixed_rotation {
        return None;
    }
    if layout.rope_tables.is_empty() {
        return first_with(layout, InputRole::Distances).and_then(|_| spec(Vec::new()));
    }
    // Which layers are turned by which table is the graphs' own affair.
    let mut all: Option<RopeAngles> = None;
    for table in 0..layout.rope_tables.len() {
        let angles = angles(rope_of(layout, table, config).ok()??, config, limit);
        if all.as_ref().is_some_and(|first| first.frequencies != angles.frequencies) {
            return None;
        }
        all = Some(angles);
    }
    spec(all?.frequencies)
}

/// The angles of an embedding: `longrope` goes by the dialog's context size, not by the prompt.
pub(crate) fn angles(rope: &RopeConfig, config: &EngineConfig, limit: usize) -> RopeAngles {
    rope.angles(config.context_size.unwrap_or(limit))
}

fn cos_name(prefix: &str) -> String {
    format!("{prefix}{}", nsp_graph::names::POSITION_COS)
}

fn first_with(layout: &ModelLayout, role: InputRole) -> Option<&GraphLayout> {
    layout.splits.iter().flat_map(|split| &split.graphs).find(|graph| graph.input(role).is_some())
}
