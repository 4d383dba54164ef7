//! The sampler block: that it is there, and what in it does other than it seems to.

use serde_json::Value;

use crate::{Case, Findings, Rule, Severity};

/// None.
pub const RULE: Rule = Rule {
    id: "sampler-missing",
    severity: Severity::Error,
    title: "no `sampler` block",
    why: "the schema allows it, but Qualcomm's Genie then refuses to create the dialog",
    cure: "add `\"sampler\": {\"version\": 1}`",
};

/// The penalty that destroys the output.
pub const PENALTY_RULE: Rule = Rule {
    id: "repetition-penalty",
    severity: Severity::Error,
    title: "a `token-penalty` without `repetition-penalty`",
    why: "Qualcomm's Genie takes it as 0, which makes every token the same",
    cure: "add `\"repetition-penalty\": 1.0`",
};

/// The switch without effect.
pub const GREEDY_RULE: Rule = Rule {
    id: "greedy-ignored",
    severity: Severity::Warning,
    title: "`greedy` without `temp` 0 or `top-k` 1",
    why: "Qualcomm's Genie ignores `greedy` and draws at random; this engine heeds it",
    cure: "write `\"temp\": 0` or `\"top-k\": 1` as well",
};

const POINTER: &str = "/dialog/sampler";

/// The block, then its keys.
pub fn check(case: &Case, found: &mut Findings) {
    let Some(config) = case.config().filter(|config| config.dialog("").is_some()) else { return };
    let Some(sampler) = config.dialog("/sampler") else {
        found.add(&RULE, config.at(POINTER), "required key is missing");
        return;
    };
    if sampler.get("token-penalty").is_some_and(|p| p.is_object() && p.get("repetition-penalty").is_none()) {
        found.add(&PENALTY_RULE, config.at("/dialog/sampler/token-penalty"), "`repetition-penalty` is missing");
    }
    let is = |key: &str, want: f64| sampler.get(key).and_then(Value::as_f64) == Some(want);
    let greedy = sampler.get("greedy").and_then(Value::as_bool) == Some(true);
    if greedy && !is("temp", 0.0) && !is("top-k", 1.0) {
        found.add(&GREEDY_RULE, config.at("/dialog/sampler/greedy"), "true, but neither `temp` is 0 nor `top-k` is 1");
    }
}
