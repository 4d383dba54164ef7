//! Checks of the config's `positional-encoding` against the position inputs of the graphs.

use genie_types::PositionKind;
use nsp_graph::LayoutError;
use nsp_graph::names::{DEFAULT_GROUP, POSITION_COS, POSITION_IDS, rope_prefix};
use serde_json::Value;

use super::{Check, tensors};
use crate::facts::ConfigFile;
use crate::{Facts, Findings, Fix, Rule, Severity};

/// The checks, in the order of the report.
pub(super) const CHECKS: &[Check] = &[
    Check { rules: &[&ROPE_DIM, &ROPE_SCALING_IGNORED, &YARN_DIM], run: tables },
    Check { rules: &[&POSITION_INPUTS], run: inputs },
    Check { rules: &[&POSITION_NUMBERS], run: numbers },
    Check { rules: &[&WINDOW], run: windows },
];

const ROPE_DIM: Rule = Rule {
    id: "rope-dim",
    severity: Severity::Error,
    title: "`rope-dim` does not fit the graphs or the heads",
    why: "libGenie refuses it with `ShapeError : position_ids_sin`; it is half of the rotated part of a head",
    fix: Fix::Text("set it to the last dimension of `position_ids_cos`"),
};

const ROPE_SCALING_IGNORED: Rule = Rule {
    id: "rope-scaling-ignored",
    severity: Severity::Error,
    title: "`rope-scaling` without `rope-type`",
    why: "it is ignored silently, and positions beyond the first thousands are wrong",
    fix: Fix::Text("add `rope-type`, for example `llama3`"),
};

const YARN_DIM: Rule = Rule {
    id: "yarn-dim",
    severity: Severity::Warning,
    title: "`dim` of `yarnrope` is not twice `rope-dim`",
    why: "libGenie scales the first half of `dim` angles and leaves the others as they were",
    fix: Fix::Text("set `dim` to twice `rope-dim`"),
};

const POSITION_INPUTS: Rule = Rule {
    id: "position-inputs",
    severity: Severity::Error,
    title: "the graphs take other position inputs than the config's `positional-encoding` fills",
    why: "libGenie does not create the dialog, or feeds zeros where positions belong",
    fix: Fix::Text("write what the model was compiled with: `type`, and for rotary tables `rope-dim` and `prefix`"),
};

const POSITION_NUMBERS: Rule = Rule {
    id: "position-numbers",
    severity: Severity::Error,
    title: "the config's positions are not those of the model",
    why: "graphs run with any angles, and the text gets worse the further it goes",
    fix: Fix::Text("take `positional-encoding` back from the manifest's `source.encoding`, or compile again"),
};

const WINDOW: Rule = Rule {
    id: "attention-window",
    severity: Severity::Error,
    title: "the config's attention window is not that of the model",
    why: "layers that were trained to see the last tokens would see others: wrong text behind the window, or a context that ends early",
    fix: Fix::Text("write the window that the manifest's `source.windows` has, as `sliding-window` of `longcontext`"),
};

/// Where a config has its positions.
const POINTER: &str = "/dialog/engine/model/positional-encoding";

/// The numbers of each rotary table.
fn tables(facts: &Facts, found: &mut Findings) {
    let Some(config) = facts.config() else { return };
    for item in config.position_items() {
        let Some(scaling) = item.value.and_then(|v| v.get("rope-scaling")).filter(|s| s.is_object()) else { continue };
        let at = || config.at(&format!("{}/rope-scaling", item.pointer));
        if scaling.get("rope-type").is_none() {
            found.add(&ROPE_SCALING_IGNORED, at(), "`rope-type` is missing");
        }
        if scaling.get("rope-type").and_then(Value::as_str) == Some("yarnrope")
            && let (Some(dim), Some(rope_dim)) = (scaling.get("dim").and_then(Value::as_f64), item.rope_dim)
            && dim != 2.0 * rope_dim as f64
        {
            let what = format!("{dim}, but `rope-dim` is {rope_dim}");
            found.add(&YARN_DIM, config.at(&format!("{}/rope-scaling/dim", item.pointer)), what);
        }
    }
    for item in config.position_items().iter().filter(|item| item.kind == Some(PositionKind::Rope)) {
        let Some(rope_dim) = item.rope_dim else { continue };
        let pointer = format!("{}/{}", item.pointer, item.dim_key);
        let of_item = |name: &str| rope_prefix(name) == Some((item.prefix, false));
        let table = tensors::inputs(facts, |name| rope_prefix(name).is_some()).find(|t| of_item(&t.tensor.name));
        let width = table.as_ref().and_then(|t| t.tensor.dims.last().copied());
        if let (Some(width), Some(table)) = (width, &table)
            && rope_dim != width as i64
        {
            let what = format!("{rope_dim}, but {}{POSITION_COS} of {} is {width} wide", item.prefix, table.at());
            found.add(&ROPE_DIM, config.at(&pointer), what).fix(format!("set it to {width}"));
        } else if let Some((head_dim, tensor)) = tensors::head_dim(facts)
            && rope_dim.saturating_mul(2) > head_dim as i64
            // Wider tables than heads are no mistake: layers of such a model take columns of their own.
            && (table.is_none() || rope_dim <= head_dim as i64)
        {
            let half = head_dim / 2;
            let what = format!("{rope_dim}, but {tensor} has heads of width {head_dim}, half of which is {half}");
            found.add(&ROPE_DIM, config.at(&pointer), what);
        }
    }
}

/// Each number against the model's own, which the manifest keeps. Numbers that mean the same may be written in different ways.
fn numbers(facts: &Facts, found: &mut Findings) {
    let (Some(config), Some(bundle)) = (config_of_model(facts), &facts.bundle) else { return };
    let Some(model) = bundle.manifest.as_ref().and_then(|manifest| manifest.encoding.as_ref()) else { return };
    let Some(written) = config.engine("/model/positional-encoding") else {
        // Graphs that take positions as such need no word of the config, and fused graphs hold their tables.
        let takes_tables =
            tensors::inputs(facts, |name| matches!(rope_prefix(name), Some((_, false)))).next().is_some();
        if takes_tables && config.htp("pos-id-dim").is_none() && !has_only_fused(facts) {
            found.add(&POSITION_NUMBERS, config.at(POINTER), format!("missing, but the model has {model}"));
        }
        return;
    };
    compare(model, written, POINTER, &mut |pointer, what| {
        found.add(&POSITION_NUMBERS, config.at(pointer), what);
    });
}

fn compare(model: &Value, written: &Value, pointer: &str, each: &mut dyn FnMut(&str, String)) {
    match (model, written) {
        (Value::Object(model), Value::Object(written)) => {
            for (key, value) in model {
                let pointer = format!("{pointer}/{key}");
                match written.get(key) {
                    Some(found) => compare(value, found, &pointer, each),
                    None => each(&pointer, format!("missing, but the model has {value}")),
                }
            }
            // Another scaling than the model's is one by keys that it does not have.
            for (key, value) in
                written.iter().filter(|(key, _)| key.as_str() == "rope-scaling" && !model.contains_key(*key))
            {
                each(&format!("{pointer}/{key}"), format!("{value}, but the model's positions are not scaled"));
            }
        }
        (Value::Array(model), Value::Array(written)) if model.len() == written.len() => {
            for (i, (model, written)) in model.iter().zip(written).enumerate() {
                compare(model, written, &format!("{pointer}/{i}"), each);
            }
        }
        _ if model == written || (model.is_number() && model.as_f64() == written.as_f64()) => {}
        _ => each(pointer, format!("{written}, but the model has {model}")),
    }
}

/// The window of each cache group against the model's.
fn windows(facts: &Facts, found: &mut Findings) {
    let (Some(config), Some(bundle)) = (facts.config(), &facts.bundle) else { return };
    for (prefix, tokens) in bundle.manifest.iter().flat_map(|manifest| &manifest.windows) {
        let groups = config.engine("/cache-groups").and_then(Value::as_array);
        let group = groups.into_iter().flatten().position(|group| group.get("prefix").is_some_and(|p| p == prefix));
        let at_group = group.map(|i| format!("/cache-groups/{i}/longcontext"));
        let at_engine = (prefix == DEFAULT_GROUP).then(|| "/longcontext".to_owned());
        let mut places = at_group.into_iter().chain(at_engine);
        let size = |at: &String| config.engine(&format!("{at}/sliding-window/window-size")).and_then(Value::as_u64);
        let rule = places.clone().find_map(|at| Some((size(&at)?, at)));
        let pointer = |at: &str| config.at(&format!("/dialog/engine{at}"));
        match rule {
            Some((size, _)) if size == *tokens as u64 => {}
            Some((size, at)) => {
                let what = format!("{size}, but layers of `{prefix}` see {tokens} tokens");
                found.add(&WINDOW, pointer(&format!("{at}/sliding-window/window-size")), what);
            }
            None => {
                let what = format!("no window, but layers of `{prefix}` see the last {tokens} tokens");
                found.add(&WINDOW, pointer(&places.next().unwrap_or_else(|| "/cache-groups".into())), what);
            }
        }
    }
}

/// The config, unless it has no place for positions: that is found elsewhere.
fn config_of_model(facts: &Facts) -> Option<&ConfigFile> {
    facts.config().filter(|config| config.engine("/model").is_some())
}

fn has_only_fused(facts: &Facts) -> bool {
    matches!((facts.fused(), facts.layout()), (Some(Ok(_)), Some(Err(LayoutError::OnlyFused { .. }))))
}

/// The inputs themselves. A config that says nothing of positions is left to the graphs, unless they take tables.
fn inputs(facts: &Facts, found: &mut Findings) {
    let Some(config) = config_of_model(facts) else { return };
    // Fused graphs hold their tables.
    if has_only_fused(facts) {
        return;
    }
    let items = config.position_items();
    let first = items.first();
    let at = config.at(first.map_or(POINTER, |item| &item.pointer));
    let ropes = || items.iter().filter(|item| item.kind == Some(PositionKind::Rope));
    let tables = || tensors::inputs(facts, |name| matches!(rope_prefix(name), Some((_, false))));
    let ids = tensors::inputs(facts, |name| name == POSITION_IDS).next();
    let made = |name: &str| tensors::outputs(facts, |n| rope_prefix(n).is_some()).any(|t| t.tensor.name == name);
    let mut seen: Vec<&str> = Vec::new();
    for table in tables().filter(|t| !made(&t.tensor.name)) {
        let prefix = rope_prefix(&table.tensor.name).map_or("", |(prefix, _)| prefix);
        if !seen.contains(&prefix) && !ropes().any(|item| item.prefix == prefix) {
            let lacks = if items.is_empty() { "missing, no rotary positions" } else { "no item of type `rope`" };
            let what = format!("{lacks} for {}, which {} takes", table.tensor.name, table.at());
            found.add(&POSITION_INPUTS, &at, what);
        }
        seen.push(prefix);
    }
    // Without any graph to look at, nothing can be said to be missing.
    let known = tensors::inputs(facts, |_| true).next().is_some();
    for item in ropes().filter(|item| known && !seen.contains(&item.prefix)) {
        // A split may hold the tables of a part that is not there.
        let what = format!("no graph takes {}{POSITION_COS}", item.prefix);
        found.add(&POSITION_INPUTS, config.at(&item.pointer), what);
    }
    match (first.and_then(|item| item.kind), ids) {
        (Some(kind @ (PositionKind::Absolute | PositionKind::Alibi)), None) if known => {
            found.add(&POSITION_INPUTS, &at, format!("`{kind}` fills {POSITION_IDS}, which no graph takes"));
        }
        (Some(kind @ (PositionKind::Absolute | PositionKind::Alibi)), Some(ids)) => {
            let distances = ids.tensor.dims.len() > 2;
            if distances != (kind == PositionKind::Alibi) {
                let fills = if kind == PositionKind::Alibi { "[1, 1, AR, CL]" } else { "[1, AR]" };
                let what = format!(
                    "`{kind}` fills {POSITION_IDS} of shape {fills}, but {} has {:?}",
                    ids.at(),
                    ids.tensor.dims
                );
                found.add(&POSITION_INPUTS, &at, what);
            }
        }
        (Some(PositionKind::None), Some(ids)) => {
            let what = format!("`none` leaves {POSITION_IDS} of {} at zero", ids.at());
            found.add(&POSITION_INPUTS, &at, what);
        }
        _ => {}
    }
}
