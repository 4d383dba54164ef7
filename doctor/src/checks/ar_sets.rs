//! Every context length should have the same widths.

use std::collections::BTreeMap;

use crate::{Case, Findings, Rule, Severity};

/// It has not.
pub const RULE: Rule = Rule {
    id: "ar-sets",
    severity: Severity::Error,
    title: "the widths (AR) differ between context lengths (CL)",
    why: "Qualcomm's Genie puts wide pieces into narrow graphs and says nonsense without an error; this engine plans with \
          what is there",
    cure: "compile every AR for every CL",
};

/// The variants by CL.
pub fn check(case: &Case, found: &mut Findings) {
    let Some(Ok(layout)) = case.layout() else { return };
    let mut by_cl: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    for spec in &layout.variants {
        by_cl.entry(spec.cl().get()).or_default().push(spec.ar().to_string());
    }
    let mut sets = by_cl.values();
    let first = sets.next();
    if sets.any(|set| Some(set) != first) {
        let words: Vec<String> = by_cl.iter().map(|(cl, ars)| format!("CL-{cl} has AR {}", ars.join(", "))).collect();
        found.add(&RULE, "graphs", words.join("; "));
    }
}
