//! `--spec`, `--draft-len`, `--ngram`: how replies are sped up.

use anyhow::Result;
use open_genie::{Options, Speculation};

use super::number;
use crate::failure::UserError;

/// Speculation.
#[derive(clap::Args, Default, Clone)]
#[command(next_help_heading = "Speculation")]
pub struct SpeculationArgs {
    /// Draft tokens and verify them in one step [default: what the config's `type` says]. `lookup`: what followed the last
    /// tokens before, in the prompt or the reply; `draft:BUNDLE`: what a smaller model with the same vocabulary says;
    /// `eaglet:BUNDLE`: what a model says that works on the hidden states of this one;
    /// `lade[:WINDOW,NGRAM,GUESSES]`: n-grams that the model finds as it looks ahead; `ssd[:PREFIX_FOLDER]`: what forecast
    /// tokens say, for a model trained for them. Greedy replies stay the same, up to rounding.
    #[arg(long, value_name = "lookup|draft:BUNDLE|eaglet:BUNDLE|lade|ssd")]
    pub spec: Option<Speculation>,
    /// Most tokens of a draft [default: 7 for `lookup`, 4 for `draft`]; levels of the trees of `eaglet` and `ssd`, NGRAM - 1 for `lade`.
    #[arg(long, value_name = "TOKENS", value_parser = number::at_least_one, requires = "spec")]
    pub draft_len: Option<usize>,
    /// Most tokens that `lookup` compares, at least 2 [default: 4].
    #[arg(long, value_name = "TOKENS", value_parser = number::at_least_two, requires = "spec")]
    pub ngram: Option<usize>,
}

impl SpeculationArgs {
    /// Sets what the flags say.
    ///
    /// # Errors
    /// A flag that says nothing beside that `--spec`, or what it says already.
    pub fn apply(&self, options: Options) -> Result<Options> {
        let Some(mut speculation) = self.spec.clone() else { return Ok(options) };
        if self.ngram.is_some() && !matches!(speculation, Speculation::Lookup(_)) {
            let hint = "`--spec lade:WINDOW,NGRAM,GUESSES` has an NGRAM of its own";
            return Err(UserError::error("`--ngram` is of `--spec lookup` alone", hint));
        }
        let is_said = matches!(&speculation, Speculation::Lade(settings) if *settings != Default::default());
        if self.draft_len.is_some() && is_said {
            let hint = "leave one of them out: a draft of `lade` has NGRAM - 1 tokens";
            return Err(UserError::error("`--draft-len` beside the NGRAM of `--spec lade:WINDOW,NGRAM,GUESSES`", hint));
        }
        if let Some(n) = self.draft_len {
            speculation = speculation.with_draft_len(n);
        }
        if let Some(n) = self.ngram {
            speculation = speculation.with_longest_ngram(n);
        }
        Ok(options.speculation(speculation))
    }
}
