//! Checks of the config's LoRA adapters against the graphs.

use serde_json::Value;

use super::Check;
use crate::{Facts, Findings, Fix, Rule, Severity};

/// The checks, in the order of the report.
pub(super) const CHECKS: &[Check] =
    &[Check { rules: &[&LORA_ALPHA, &LORA_UNNAMED], run: alphas }, Check { rules: &[&LORA_SECTIONS], run: sections }];

const LORA_ALPHA: Rule = Rule {
    id: "lora-alpha",
    severity: Severity::Error,
    title: "a LoRA adapter has a strength that no graph takes",
    why: "libGenie takes it without a word, and the adapter does nothing; this engine does not open the bundle",
    fix: Fix::Text("name an input of the graphs in `alphas`, or compile the model with the adapter"),
};

const LORA_UNNAMED: Rule = Rule {
    id: "lora-unnamed",
    severity: Severity::Warning,
    title: "the graphs take the strength of a LoRA adapter that the config does not have",
    why: "it stays 0: that adapter cannot be applied by name",
    fix: Fix::Text("add an adapter with that input in its `alphas`"),
};

const LORA_SECTIONS: Rule = Rule {
    id: "lora-sections",
    severity: Severity::Error,
    title: "a LoRA adapter has not one section file for each context binary",
    why: "sections are applied to the binaries in their order: applying the adapter fails, or changes the wrong binary",
    fix: Fix::Text("list one file for each of `ctx-bins`, in the same order"),
};

const AT: &str = "/dialog/engine/model/binary/lora";

/// Strengths on both sides.
fn alphas(facts: &Facts, found: &mut Findings) {
    let (Some(config), Some(Ok(layout))) = (facts.config(), facts.layout()) else { return };
    let configured = config.lora_alphas();
    for alpha in configured.iter().filter(|alpha| !layout.alphas.contains(alpha)) {
        let known = layout.alphas.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        let known = if known.is_empty() { "none".into() } else { known };
        found.add(&LORA_ALPHA, config.at(AT), format!("`{alpha}`; the graphs have {known}"));
    }
    for alpha in layout.alphas.iter().filter(|alpha| !configured.contains(alpha)) {
        found.add(&LORA_UNNAMED, config.at(AT), format!("`{alpha}`"));
    }
}

/// Section files against binaries.
fn sections(facts: &Facts, found: &mut Findings) {
    let Some(config) = facts.config() else { return };
    let expected = ["ctx-bins", "fcb"].iter().find_map(|key| config.engine(&format!("/model/binary/{key}")));
    let expected = expected.and_then(Value::as_array).map_or(0, Vec::len);
    for (list, key) in [("adapters", "bin-sections"), ("groups", "quant-bin-sections")] {
        let items = config.engine(&format!("/model/binary/lora/{list}")).and_then(Value::as_array);
        for (i, item) in items.into_iter().flatten().enumerate() {
            let n = item.get(key).and_then(Value::as_array).map_or(0, Vec::len);
            if n > 0 && n != expected {
                let what = format!("{n} files for {expected} context binaries");
                found.add(&LORA_SECTIONS, config.at(&format!("{AT}/{list}/{i}/{key}")), what);
            }
        }
    }
}
