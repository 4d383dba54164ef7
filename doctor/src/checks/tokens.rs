//! Checks of the tokenizer, the special tokens and the vocabulary sizes.

use nsp_graph::names::LOGITS;

use super::{Check, tensors};
use crate::{Facts, Findings, Fix, Rule, Severity};

/// The checks, in the order of the report.
pub(super) const CHECKS: &[Check] = &[
    Check { rules: &[&TOKENIZER_UNREADABLE, &EOS_TOKEN, &EOS_UNSET, &SPECIAL_TOKEN], run: special_tokens },
    Check { rules: &[&N_VOCAB, &TOKENIZER_VOCAB, &TOKENIZER_UNFIT], run: vocabulary },
];

const TOKENIZER_UNREADABLE: Rule = Rule {
    id: "tokenizer-unreadable",
    severity: Severity::Error,
    title: "a tokenizer that cannot be read",
    why: "the dialog cannot be created",
    fix: Fix::Text("copy the model's `tokenizer.json` again"),
};

const EOS_TOKEN: Rule = Rule {
    id: "eos-token",
    severity: Severity::Error,
    title: "an `eos-token` that is not in the tokenizer",
    why: "the model never generates it, so replies do not end; or the ids belong to another model",
    fix: Fix::Text("set it to the id of the model's end-of-turn token, as in its `generation_config.json`"),
};

const EOS_UNSET: Rule = Rule {
    id: "eos-unset",
    severity: Severity::Warning,
    title: "no `eos-token`",
    why: "replies end only at a stop sequence, at `max-num-tokens` or when the context is full",
    fix: Fix::Text("set it to the id of the model's end-of-turn token"),
};

const SPECIAL_TOKEN: Rule = Rule {
    id: "special-token",
    severity: Severity::Error,
    title: "a `bos-token`, `eot-token` or `pad-token` that is not in the tokenizer, or beyond the vocabulary",
    why: "it is fed to the graph, which has no such row: 1100, or wrong text",
    fix: Fix::Text("set it to the id of the model's token, or to -1 for none"),
};

/// The tokenizer, then each token id of the config.
fn special_tokens(facts: &Facts, found: &mut Findings) {
    let Some(bundle) = &facts.bundle else { return };
    let known = match bundle.tokenizer.as_ref().map(|tokenizer| (&tokenizer.written, &tokenizer.vocabulary)) {
        Some((written, Some(Err(error)))) => {
            found.add(&TOKENIZER_UNREADABLE, written, error.clone());
            None
        }
        Some((_, Some(Ok(vocabulary)))) => Some(vocabulary),
        _ => None,
    };
    let Some(config) = &bundle.config else { return };
    if config.dialog("/context").is_none() {
        return;
    }
    let logits = tensors::outputs(facts, |name| name == LOGITS).next();
    let width = logits.and_then(|logits| logits.tensor.dims.last().copied());
    let tokens = config.special_tokens();
    if config.dialog("/context/eos-token").is_some() && !tokens.iter().any(|(key, _)| *key == "eos-token") {
        found.add(&EOS_UNSET, config.at("/dialog/context/eos-token"), "-1, which means none");
    }
    for (key, id) in tokens {
        let unknown = known.is_some_and(|vocabulary| vocabulary.entries.get(&id).is_some_and(Option::is_none));
        let beyond = width.filter(|&width| id as usize >= width);
        let what = match (unknown, beyond) {
            (true, _) => format!("the tokenizer has no token {id}"),
            (false, Some(width)) => format!("token {id} is beyond the {width} logits"),
            (false, None) => continue,
        };
        let rule = if key == "eos-token" { &EOS_TOKEN } else { &SPECIAL_TOKEN };
        found.add(rule, config.at(&format!("/dialog/context/{key}")), what);
    }
}

const N_VOCAB: Rule = Rule {
    id: "n-vocab",
    severity: Severity::Warning,
    title: "`n-vocab` is not the width of the logits",
    why: "libGenie does not check it; some dialog types use it, and it often means that files of two models were mixed",
    fix: Fix::Text("set it to the last dimension of `logits`"),
};

const TOKENIZER_VOCAB: Rule = Rule {
    id: "tokenizer-vocab",
    severity: Severity::Error,
    title: "a tokenizer with more entries than the model has tokens",
    why: "text then becomes token ids without a row in the embedding table: the graph fails or reads beyond it",
    fix: Fix::Text("use the model's own tokenizer"),
};

const TOKENIZER_UNFIT: Rule = Rule {
    id: "tokenizer-unfit",
    severity: Severity::Error,
    title: "a tokenizer that loads but does not work with the model",
    why: "prompts become other tokens than the model was trained with, or lose characters",
    fix: Fix::Text("use the model's own tokenizer"),
};

/// The config and the tokenizer against the logits.
fn vocabulary(facts: &Facts, found: &mut Findings) {
    let Some(logits) = tensors::outputs(facts, |name| name == LOGITS).next() else { return };
    let Some(&width) = logits.tensor.dims.last() else { return };
    let Some(config) = facts.config() else { return };
    if let Some(n_vocab) = config.number("/context/n-vocab")
        && n_vocab != width as i64
    {
        let what = format!("{n_vocab}, but {LOGITS} of {} is {width} wide", logits.at());
        found.add(&N_VOCAB, config.at("/dialog/context/n-vocab"), what).fix(format!("set it to {width}"));
    }
    let Some(tokenizer) = facts.bundle.as_ref().and_then(|bundle| bundle.tokenizer.as_ref()) else { return };
    let Some(Ok(vocabulary)) = &tokenizer.vocabulary else { return };
    if vocabulary.n_entries > width {
        let what = format!("has {} entries, but {LOGITS} of {} is {width} wide", vocabulary.n_entries, logits.at());
        found.add(&TOKENIZER_VOCAB, &tokenizer.written, what);
    } else if let Some(why) = &vocabulary.unfit {
        found.add(&TOKENIZER_UNFIT, &tokenizer.written, why.clone());
    }
}
