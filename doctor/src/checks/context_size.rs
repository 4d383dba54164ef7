//! The config's context size against the longest compiled context.

use crate::{Case, Findings, Rule, Severity};

/// Longer than compiled.
pub const RULE: Rule = Rule {
    id: "context-size",
    severity: Severity::Error,
    title: "a context size beyond the longest compiled context",
    why: "Genie refuses it: `Config specifies context->size`; graphs have fixed shapes, it cannot be chosen freely",
    cure: "write at most the longest CL, or compile a longer one: `genie compile --cl`",
};

/// Unless old tokens are dropped, which makes longer dialogs possible.
pub fn check(case: &Case, found: &mut Findings) {
    let (Some(config), Some(Ok(layout))) = (case.config(), case.layout()) else { return };
    let drops = config.engine("/longcontext").is_some();
    let longest = layout.max_cl();
    if let Some(size) = config.number("/context/size")
        && !drops
        && size > longest as i64
    {
        let mut cls: Vec<usize> = layout.variants.iter().map(|v| v.cl().get()).collect();
        cls.dedup();
        let cls: Vec<String> = cls.iter().map(|cl| format!("CL-{cl}")).collect();
        let what = format!("{size} tokens, but the graphs have {}", cls.join(", "));
        found.add(&RULE, config.at("/dialog/context/size"), what);
    }
}
