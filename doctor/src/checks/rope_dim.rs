//! The width of the position tables: config, graphs and heads.

use nsp_graph::names::POSITION_COS;

use super::facts;
use crate::{Case, Findings, Rule, Severity};

/// Differs.
pub const RULE: Rule = Rule {
    id: "rope-dim",
    severity: Severity::Error,
    title: "`rope-dim` does not fit the graphs or the heads",
    why: "Genie refuses it with `ShapeError : position_ids_sin`; it is half of the rotated part of a head",
    cure: "write the last extent of `position_ids_cos`",
};

/// The scaling that does nothing.
pub const SCALING_RULE: Rule = Rule {
    id: "rope-scaling-ignored",
    severity: Severity::Error,
    title: "`rope-scaling` without `rope-type`",
    why: "it is ignored without a word, and positions beyond the first thousands are wrong",
    cure: "add `rope-type`, for example `llama3`",
};

/// The config against the tensors.
pub fn check(case: &Case, found: &mut Findings) {
    let Some(config) = case.config() else { return };
    let encodings = config.engine("/model/positional-encoding");
    let one_or_many = encodings.map(|e| e.as_array().map_or(std::slice::from_ref(e), Vec::as_slice));
    for encoding in one_or_many.into_iter().flatten() {
        if encoding.get("rope-scaling").is_some_and(|s| s.is_object() && s.get("rope-type").is_none()) {
            let at = config.at("/dialog/engine/model/positional-encoding/rope-scaling");
            found.add(&SCALING_RULE, at, "`rope-type` is missing");
        }
    }
    let Some((said, pointer)) = config.rope_dim() else { return };
    let table = facts::inputs(case, |name| name == POSITION_COS).next();
    let width = table.as_ref().and_then(|t| t.tensor.dims.last().copied());
    if let (Some(width), Some(table)) = (width, &table)
        && said != width as i64
    {
        let what = format!("{said}, but {POSITION_COS} of {} is {width} wide", table.at());
        found.add(&RULE, config.at(pointer), what).cure(format!("write {width}"));
    } else if let Some((head_dim, tensor)) = facts::head_dim(case)
        && said.saturating_mul(2) > head_dim as i64
    {
        let what = format!("{said}, but {tensor} has heads of {head_dim}, half of which is {}", head_dim / 2);
        found.add(&RULE, config.at(pointer), what);
    }
}
