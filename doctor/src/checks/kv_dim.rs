//! `kv-dim`: demanded by Genie at run time, and the width of a head.

use super::facts;
use crate::{Case, Findings, Rule, Severity};

/// Not there.
pub const RULE: Rule = Rule {
    id: "kv-dim-missing",
    severity: Severity::Error,
    title: "no `kv-dim` in the `QnnHtp` block",
    why: "the schema allows it, but Qualcomm's Genie then dies with `type must be number, but is number`",
    cure: "add `kv-dim`, the width of a head",
};

/// Another number.
pub const DIFFERS_RULE: Rule = Rule {
    id: "kv-dim",
    severity: Severity::Warning,
    title: "`kv-dim` is not the width of a head",
    why: "today's Genie reads it and goes by the tensors; other versions may not",
    cure: "write the width of a head",
};

const POINTER: &str = "/dialog/engine/backend/QnnHtp/kv-dim";

/// The key, then its value against the cache tensors.
pub fn check(case: &Case, found: &mut Findings) {
    let Some(config) = case.config().filter(|config| config.is_htp()) else { return };
    let head_dim = facts::head_dim(case);
    match config.htp("kv-dim") {
        None => {
            let finding = found.add(&RULE, config.at(POINTER), "required key is missing");
            if let Some((dim, tensor)) = head_dim {
                finding.cure(format!("add `\"kv-dim\": {dim}`, the width of a head of {tensor}"));
            }
        }
        Some(value) => {
            if let (Some(said), Some((dim, tensor))) = (value.as_u64(), head_dim)
                && said != dim as u64
            {
                found.add(&DIFFERS_RULE, config.at(POINTER), format!("{said}, but {tensor} has heads of {dim}"));
            }
        }
    }
}
