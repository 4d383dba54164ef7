//! Checks of the config by itself: syntax, schema, API version, sampler.

use genie_bundle::config::{ConfigError, GenieConfig, validate};
use genie_bundle::config::{GenieApi, rejected_by};
use serde_json::Value;

use super::Check;
use crate::facts::FileState;
use crate::{Facts, Findings, Fix, Rule, Severity};

/// The checks, in the order of the report.
pub(super) const CHECKS: &[Check] = &[
    Check { rules: &[&CONFIG_MISSING, &CONFIG_SYNTAX], run: config_syntax },
    Check { rules: &[&CONFIG_SCHEMA, &CONFIG_UNSUPPORTED], run: config_schema },
    Check { rules: &[&CONFIG_API], run: config_api },
    Check { rules: &[&SAMPLER_MISSING, &REPETITION_PENALTY, &GREEDY_IGNORED], run: sampler },
    Check { rules: &[&WEIGHTS_MAPPED], run: weights_mapped },
];

const CONFIG_MISSING: Rule = Rule {
    id: "config-missing",
    severity: Severity::Error,
    title: "a folder without `genie_config.json`",
    why: "nothing states which binaries and which tokenizer belong together",
    fix: Fix::NameBundle,
};

const CONFIG_SYNTAX: Rule = Rule {
    id: "config-syntax",
    severity: Severity::Error,
    title: "a config that cannot be read as JSON",
    why: "libGenie returns -7 (JSON syntax)",
    fix: Fix::Text("correct it at the reported line and column"),
};

/// The file, then its syntax.
fn config_syntax(facts: &Facts, found: &mut Findings) {
    let Some(bundle) = &facts.bundle else { return };
    match &bundle.config {
        None if bundle.is_folder => {
            let at = bundle.path.display().to_string();
            let kind = bundle.kind.as_ref().map_or_else(|| "a folder".to_owned(), ToString::to_string);
            let finding = found.add(&CONFIG_MISSING, at, format!("{kind}, without `genie_config.json`"));
            if let Some(fix) = bundle.kind.as_ref().and_then(|kind| Fix::of_kind(kind, &bundle.path)) {
                finding.set_fix(fix);
            }
        }
        Some(config) => {
            if let Err(error) = &config.document {
                found.add(&CONFIG_SYNTAX, config.at(""), error.clone());
            }
        }
        None => {}
    }
}

const CONFIG_SCHEMA: Rule = Rule {
    id: "config-schema",
    severity: Severity::Error,
    title: "a config that violates Genie's schema or the rules between its keys",
    why: "libGenie returns -8 (JSON schema) or -9 (JSON value), or refuses to create the dialog",
    fix: Fix::Text("correct the reported key"),
};

const CONFIG_UNSUPPORTED: Rule = Rule {
    id: "config-unsupported",
    severity: Severity::Warning,
    title: "a config with a feature that this engine does not support",
    why: "this engine refuses it by name; libGenie may accept it",
    fix: Fix::Text("run it with libGenie, or remove the feature from the config"),
};

/// Schema, rules between keys, and support, without the files that it names.
fn config_schema(facts: &Facts, found: &mut Findings) {
    let Some(config) = facts.config() else { return };
    let Ok(document) = &config.document else { return };
    let mut problems = validate(document);
    let mut rule = &CONFIG_SCHEMA;
    if problems.is_empty() {
        match GenieConfig::from_json(&document.to_string(), &config.base) {
            Err(ConfigError::Unsupported { problems: named, .. }) => (rule, problems) = (&CONFIG_UNSUPPORTED, named),
            Err(other) => problems.extend(other.problems().iter().cloned()),
            Ok(_) => {}
        }
    }
    for problem in problems {
        let finding = found.add(rule, config.at(&problem.pointer), problem.message);
        if let Some(hint) = problem.hint {
            finding.fix(hint);
        }
    }
}

const CONFIG_API: Rule = Rule {
    id: "config-api",
    severity: Severity::Error,
    title: "a config that this version of the Genie API refuses",
    why: "unknown keys are errors, and required keys changed: 1.0 needs `pos-id-dim`, later versions forbid it beside \
        `positional-encoding`",
    fix: Fix::Text("use a newer QAIRT release, or write the config for this one"),
};

/// Only for versions before the newest one, whose schema is another check.
fn config_api(facts: &Facts, found: &mut Findings) {
    let Some(config) = facts.config() else { return };
    let (Ok(document), Some(api)) = (&config.document, facts.genie_api) else { return };
    if api >= GenieApi::NEWEST {
        return;
    }
    for problem in rejected_by(document, api) {
        let finding = found.add(&CONFIG_API, config.at(&problem.pointer), problem.message);
        if let Some(hint) = problem.hint {
            finding.fix(hint);
        }
    }
}

const SAMPLER_MISSING: Rule = Rule {
    id: "sampler-missing",
    severity: Severity::Error,
    title: "no `sampler` block",
    why: "the schema allows it, but libGenie then refuses to create the dialog",
    fix: Fix::Text("add `\"sampler\": {\"version\": 1}`"),
};

const REPETITION_PENALTY: Rule = Rule {
    id: "repetition-penalty",
    severity: Severity::Error,
    title: "a `token-penalty` without `repetition-penalty`",
    why: "libGenie takes it as 0, which makes all tokens the same",
    fix: Fix::Text("add `\"repetition-penalty\": 1.0`"),
};

const GREEDY_IGNORED: Rule = Rule {
    id: "greedy-ignored",
    severity: Severity::Warning,
    title: "`greedy` without `temp` 0 or `top-k` 1",
    why: "libGenie ignores `greedy` and samples at random; this engine respects it",
    fix: Fix::Text("add `\"temp\": 0` or `\"top-k\": 1`"),
};

const POINTER: &str = "/dialog/sampler";

/// The sampler block, then its keys.
fn sampler(facts: &Facts, found: &mut Findings) {
    let Some(config) = facts.config().filter(|config| config.dialog("").is_some()) else { return };
    let Some(sampler) = config.dialog("/sampler") else {
        found.add(&SAMPLER_MISSING, config.at(POINTER), "required key is missing");
        return;
    };
    if sampler.get("token-penalty").is_some_and(|p| p.is_object() && p.get("repetition-penalty").is_none()) {
        found.add(&REPETITION_PENALTY, config.at("/dialog/sampler/token-penalty"), "`repetition-penalty` is missing");
    }
    let is = |key: &str, want: f64| sampler.get(key).and_then(Value::as_f64) == Some(want);
    let greedy = sampler.get("greedy").and_then(Value::as_bool) == Some(true);
    if greedy && !is("temp", 0.0) && !is("top-k", 1.0) {
        found.add(
            &GREEDY_IGNORED,
            config.at("/dialog/sampler/greedy"),
            "true, but neither `temp` is 0 nor `top-k` is 1",
        );
    }
}

const WEIGHTS_MAPPED: Rule = Rule {
    id: "weights-mapped",
    severity: Severity::Warning,
    title: "`use-mmap` is true, and a binary is for the embedded backend",
    why: "weights stay in the file's small pages, where decode reads them more slowly than in huge pages of its own",
    fix: Fix::Text("set `use-mmap` to `false`: weights are moved into memory behind the first 16 steps"),
};

/// Smaller files have no weights to speak of.
const MAPPED_BYTES: u64 = 16 << 20;

/// Weights are moved on Linux only.
fn weights_mapped(facts: &Facts, found: &mut Findings) {
    let Some(config) = facts.config().filter(|config| cfg!(target_os = "linux") && config.is_htp()) else { return };
    let mut bytes = facts.host_binaries().map(|(binary, _)| match binary.file {
        FileState::Present { bytes } => bytes,
        _ => 0,
    });
    if config.htp("use-mmap").and_then(Value::as_bool) == Some(true)
        && let Some(bytes) = bytes.find(|&bytes| bytes >= MAPPED_BYTES)
    {
        found.add(
            &WEIGHTS_MAPPED,
            config.at("/dialog/engine/backend/QnnHtp/use-mmap"),
            format!("`true`, with a binary of {} MB for the embedded backend", bytes / 1_000_000),
        );
    }
}
