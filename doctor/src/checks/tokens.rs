//! The tokenizer, and the special tokens that the config names.

use nsp_graph::names::LOGITS;

use super::facts;
use crate::{Case, Findings, Rule, Severity};

/// Damaged.
pub const RULE: Rule = Rule {
    id: "tokenizer-unreadable",
    severity: Severity::Error,
    title: "a tokenizer that cannot be read",
    why: "the dialog cannot be created",
    cure: "copy the model's `tokenizer.json` again",
};

/// An EOS that never comes.
pub const EOS_RULE: Rule = Rule {
    id: "eos-token",
    severity: Severity::Error,
    title: "an `eos-token` that is not in the tokenizer",
    why: "the model never says it, so that answers do not end, or the ids belong to another model",
    cure: "write the id of the model's end-of-turn token, as its generation_config.json has it",
};

/// No EOS.
pub const UNSET_RULE: Rule = Rule {
    id: "eos-unset",
    severity: Severity::Warning,
    title: "no `eos-token`",
    why: "answers only end at a stop sequence, at `max-num-tokens` or when the context is full",
    cure: "write the id of the model's end-of-turn token",
};

/// Another special token.
pub const SPECIAL_RULE: Rule = Rule {
    id: "special-token",
    severity: Severity::Error,
    title: "a `bos-token`, `eot-token` or `pad-token` that is not in the tokenizer, or beyond the vocabulary",
    why: "it is fed to the graph, which has no such row: 1100, or nonsense",
    cure: "write the id of the model's token, or -1 for none",
};

/// The file, then each id.
pub fn check(case: &Case, found: &mut Findings) {
    let Some(bundle) = &case.bundle else { return };
    let known = match bundle.tokenizer.as_ref().map(|tokenizer| (&tokenizer.written, &tokenizer.vocabulary)) {
        Some((written, Some(Err(words)))) => {
            found.add(&RULE, written, words.clone());
            None
        }
        Some((_, Some(Ok(vocabulary)))) => Some(vocabulary),
        _ => None,
    };
    let Some(config) = &bundle.config else { return };
    if config.dialog("/context").is_none() {
        return;
    }
    let logits = facts::outputs(case, |name| name == LOGITS).next();
    let width = logits.and_then(|logits| logits.tensor.dims.last().copied());
    let tokens = config.special_tokens();
    if config.dialog("/context/eos-token").is_some() && !tokens.iter().any(|(key, _)| *key == "eos-token") {
        found.add(&UNSET_RULE, config.at("/dialog/context/eos-token"), "-1, which is unset");
    }
    for (key, id) in tokens {
        let unknown = known.is_some_and(|vocabulary| vocabulary.entries.get(&id).is_some_and(Option::is_none));
        let beyond = width.filter(|&width| id as usize >= width);
        let what = match (unknown, beyond) {
            (true, _) => format!("the tokenizer has no token {id}"),
            (false, Some(width)) => format!("token {id} is beyond the {width} logits"),
            (false, None) => continue,
        };
        let rule = if key == "eos-token" { &EOS_RULE } else { &SPECIAL_RULE };
        found.add(rule, config.at(&format!("/dialog/context/{key}")), what);
    }
}
