//! Cache groups: their prefixes, and one form for all.

use nsp_graph::names::DEFAULT_GROUP;

use crate::{Case, Findings, Rule, Severity};

/// A prefix that Genie does not know.
pub const RULE: Rule = Rule {
    id: "cache-group",
    severity: Severity::Error,
    title: "cache tensors with a prefix that the config does not name",
    why: "Genie refuses them: `Invalid cache-group prefix detected`",
    cure: "name every prefix in `engine.cache-groups`, or the tensors `past_key_L_in` and so on",
};

/// Concat beside scatter.
pub const FORMS_RULE: Rule = Rule {
    id: "cache-forms",
    severity: Severity::Error,
    title: "one cache group concatenates, another scatters",
    why: "Genie feeds the scatter group a wrong index and computes nonsense without an error",
    cure: "compile all groups in the same form",
};

/// The groups that the graphs have.
pub fn check(case: &Case, found: &mut Findings) {
    let Some(Ok(layout)) = case.layout() else { return };
    if let Some(config) = case.config()
        && config.cache_groups().is_empty()
    {
        for group in layout.groups.iter().filter(|group| group.prefix != DEFAULT_GROUP) {
            let what = format!("the graphs have cache tensors `{}..`, which no group names", group.prefix);
            found.add(&RULE, config.at("/dialog/engine/cache-groups"), what);
        }
    }
    if layout.groups.iter().any(|group| group.form != layout.groups[0].form) {
        let words: Vec<_> = layout.groups.iter().map(|g| format!("`{}` is in {} form", g.prefix, g.form)).collect();
        found.add(&FORMS_RULE, "graphs", words.join(", "));
    }
}
