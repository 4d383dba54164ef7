//! Past and new rows of a cache tensor must be encoded alike, in and out and in every graph: rows are copied as they are.

use std::collections::BTreeMap;

use genie_types::TensorInfo;
use nsp_graph::names::KvName;

use super::facts;
use crate::{Case, Findings, Rule, Severity};

/// They are not.
pub const RULE: Rule = Rule {
    id: "kv-encoding",
    severity: Severity::Error,
    title: "a cache tensor that is encoded differently in and out, or in two graphs",
    why: "rows are copied from one to the other byte by byte, so that the numbers change: silent nonsense",
    cure: "give both the same type, scale and offset when the model is quantised",
};

/// Every cache tensor; the first difference of each, with how many more there are.
pub fn check(case: &Case, found: &mut Findings) {
    let mut first: BTreeMap<String, facts::Tensor<'_>> = BTreeMap::new();
    let mut breaches: Vec<(String, String)> = Vec::new();
    let all = facts::inputs(case, |name| KvName::parse(name).is_some())
        .chain(facts::outputs(case, |name| KvName::parse(name).is_some()));
    for tensor in all {
        let name = tensor.tensor.name.as_str();
        let row = name.strip_suffix("_in").or_else(|| name.strip_suffix("_out")).unwrap_or(name).to_owned();
        let Some(known) = first.get(&row) else {
            first.insert(row, tensor);
            continue;
        };
        if encoding(known.tensor) != encoding(tensor.tensor) {
            let what = format!(
                "`{}` is {}, but `{}` of `{}` is {}",
                name,
                facts::encoding_words(tensor.tensor),
                known.tensor.name,
                known.graph,
                facts::encoding_words(known.tensor)
            );
            breaches.push((tensor.at(), what));
        }
    }
    let more = breaches.len().saturating_sub(1);
    if let Some((at, what)) = breaches.into_iter().next() {
        let what = if more == 0 { what } else { format!("{what}; {more} more like it") };
        found.add(&RULE, at, what);
    }
}

fn encoding(t: &TensorInfo) -> (genie_types::Dtype, &genie_types::Quant, genie_types::DataFormat) {
    (t.dtype, &t.quant, t.format)
}
