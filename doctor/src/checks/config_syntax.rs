//! A folder needs a config, and a config must be JSON.

use crate::{Case, Findings, Rule, Severity};

/// No config.
pub const RULE: Rule = Rule {
    id: "config-missing",
    severity: Severity::Error,
    title: "a folder without `genie_config.json`",
    why: "nothing says which binaries and which tokenizer belong together",
    cure: "give a bundle's folder; `genie compile` makes one",
};

/// Not JSON.
pub const SYNTAX_RULE: Rule = Rule {
    id: "config-syntax",
    severity: Severity::Error,
    title: "a config that cannot be read as JSON",
    why: "Genie answers -7 (JSON syntax)",
    cure: "repair it at the line and column that are named",
};

/// The file, then its content.
pub fn check(case: &Case, found: &mut Findings) {
    let Some(bundle) = &case.bundle else { return };
    match &bundle.config {
        None if bundle.is_folder => {
            found.add(&RULE, bundle.path.display().to_string(), "no `genie_config.json` there");
        }
        Some(config) => {
            if let Err(words) = &config.document {
                found.add(&SYNTAX_RULE, config.at(""), words.clone());
            }
        }
        None => {}
    }
}
