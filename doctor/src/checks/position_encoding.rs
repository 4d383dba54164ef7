//! The tables of cos and sin share one encoding.

use nsp_graph::names::{POSITION_COS, POSITION_SIN};

use super::facts;
use crate::{Case, Findings, Rule, Severity};

/// They do not.
pub const RULE: Rule = Rule {
    id: "position-encoding",
    severity: Severity::Error,
    title: "`position_ids_cos` and `position_ids_sin` are encoded differently, or differently in two graphs",
    why: "the table is made once, with one encoding; the other tensor then gets other numbers: silent nonsense",
    cure: "give both the same type, scale and offset in all graphs",
};

/// Every such tensor against the first.
pub fn check(case: &Case, found: &mut Findings) {
    let mut all = facts::inputs(case, |name| name == POSITION_COS || name == POSITION_SIN);
    let Some(first) = all.next() else { return };
    let differs =
        |t: &facts::Tensor<'_>| (t.tensor.dtype, &t.tensor.quant) != (first.tensor.dtype, &first.tensor.quant);
    if let Some(other) = all.find(differs) {
        let what = format!(
            "`{}` is {}, but `{}` of `{}` is {}",
            other.tensor.name,
            facts::encoding_words(other.tensor),
            first.tensor.name,
            first.graph,
            facts::encoding_words(first.tensor)
        );
        found.add(&RULE, other.at(), what);
    }
}
