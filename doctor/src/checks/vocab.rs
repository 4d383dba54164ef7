//! Vocabulary sizes: config, logits and tokenizer.

use nsp_graph::names::LOGITS;

use super::facts;
use crate::{Case, Findings, Rule, Severity};

/// Config and logits.
pub const RULE: Rule = Rule {
    id: "n-vocab",
    severity: Severity::Warning,
    title: "`n-vocab` is not the width of the logits",
    why: "Genie does not check it; some dialog kinds count with it, and it often means that files of two models were mixed",
    cure: "write the last extent of `logits`",
};

/// Tokenizer and logits.
pub const TOKENIZER_RULE: Rule = Rule {
    id: "tokenizer-vocab",
    severity: Severity::Error,
    title: "a tokenizer with more entries than the model has tokens",
    why: "text then becomes token ids that no row of the embedding table has: the graph fails or reads beyond it",
    cure: "use the tokenizer that belongs to the model",
};

/// Both.
pub fn check(case: &Case, found: &mut Findings) {
    let Some(logits) = facts::outputs(case, |name| name == LOGITS).next() else { return };
    let Some(&width) = logits.tensor.dims.last() else { return };
    let Some(config) = case.config() else { return };
    if let Some(said) = config.number("/context/n-vocab")
        && said != width as i64
    {
        let what = format!("{said}, but {LOGITS} of {} is {width} wide", logits.at());
        found.add(&RULE, config.at("/dialog/context/n-vocab"), what).cure(format!("write {width}"));
    }
    let Some(tokenizer) = case.bundle.as_ref().and_then(|bundle| bundle.tokenizer.as_ref()) else { return };
    if let Some(Ok(vocabulary)) = &tokenizer.vocabulary
        && vocabulary.n_entries > width
    {
        let what = format!("has {} entries, but {LOGITS} of {} is {width} wide", vocabulary.n_entries, logits.at());
        found.add(&TOKENIZER_RULE, &tokenizer.written, what);
    }
}
