//! The config against the Genie version that is to read it.

use genie_bundle::config::{GenieApi, rejected_by};

use crate::{Case, Findings, Rule, Severity};

/// Too new, or too old.
pub const RULE: Rule = Rule {
    id: "config-api",
    severity: Severity::Error,
    title: "a config that this Genie version refuses",
    why: "unknown keys are errors, and what is required changed: 1.0 needs `pos-id-dim`, later ones forbid it beside \
          `positional-encoding`",
    cure: "use a newer QAIRT release, or write the config for this one",
};

/// Only for versions before the newest one, whose schema is checked elsewhere.
pub fn check(case: &Case, found: &mut Findings) {
    let Some(config) = case.config() else { return };
    let (Ok(document), Some(api)) = (&config.document, case.genie_api) else { return };
    if api >= GenieApi::NEWEST {
        return;
    }
    for problem in rejected_by(document, api) {
        let finding = found.add(&RULE, config.at(&problem.pointer), problem.message);
        if let Some(hint) = problem.hint {
            finding.cure(hint);
        }
    }
}
