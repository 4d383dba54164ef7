//! The config against the schema of the newest API, and against what this build can do.

use genie_bundle::config::{ConfigError, GenieConfig, validate};

use crate::{Case, Findings, Rule, Severity};

/// Not valid.
pub const RULE: Rule = Rule {
    id: "config-schema",
    severity: Severity::Error,
    title: "a config that Genie's schema or its rules between keys refuse",
    why: "Genie answers -8 (JSON schema) or -9 (JSON value), or refuses to create the dialog",
    cure: "correct the key that is named",
};

/// Valid, but not for us.
pub const UNSUPPORTED_RULE: Rule = Rule {
    id: "config-unsupported",
    severity: Severity::Warning,
    title: "a config that asks for what this engine cannot do yet",
    why: "`genie run` refuses it by name; Qualcomm's Genie may take it",
    cure: "run it with Qualcomm's Genie, or take the feature out of the config",
};

/// All stages that need no files.
pub fn check(case: &Case, found: &mut Findings) {
    let Some(config) = case.config() else { return };
    let Ok(document) = &config.document else { return };
    let mut problems = validate(document);
    let mut rule = &RULE;
    if problems.is_empty() {
        match GenieConfig::from_json(&document.to_string(), &config.base) {
            Err(ConfigError::Unsupported { problems: named, .. }) => (rule, problems) = (&UNSUPPORTED_RULE, named),
            Err(other) => problems.extend(other.problems().iter().cloned()),
            Ok(_) => {}
        }
    }
    for problem in problems {
        let finding = found.add(rule, config.at(&problem.pointer), problem.message);
        if let Some(hint) = problem.hint {
            finding.cure(hint);
        }
    }
}
