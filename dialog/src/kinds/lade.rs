//! `lade`, lookahead decoding: the model guesses ahead for itself, without a draft model.
//!
//! A window of W columns and N-1 levels runs beside each token: every step advances all columns by one token, as if the
//! columns were right. What they pass through are n-grams; those that begin with the newest token are offered as drafts.
//!
//! *Rows* of a step: the newest token (column 0 of level 0), the other columns of level 0, the levels behind it, then
//! the guesses. Column `i` of level `j` follows column `i` of level `j - 1`; on level 0 it follows the column before it.
//!
//! *Text*: what stands in the dialog goes into the pool as well, so a text that repeats itself is guessed without the window having passed
//! through it. Not by libGenie's rules.
//!
//! *Difference from libGenie 1.21*: there the first steps of an N above 2 leave their rows in the cache and a limit or a stop
//! sequence does not end the reply; here replies are those of `basic`.
//!
//! *Source*: libGenie 1.21, docs/speculation.md; the method is that of Fu et al., "Break the sequential dependency of LLM
//! inference using lookahead decoding" (2024).

mod lookahead;
mod pool;
mod random;
mod served;
mod settings;
mod window;

use std::time::Instant;

use genie_types::TokenId;

use super::time_budget::TimeBudget;
use super::{DialogKind, Models};
use crate::conversation::codes::StopReason;
use crate::conversation::decoding::Decoding;
use crate::conversation::error::DialogError;
use crate::kpi::Speculation;
use crate::sampler::{SamplerRules, most_likely};

pub(crate) use served::LadeTrees;
pub use settings::LadeSettings;
pub use window::UpdateMode;

use lookahead::Lookahead;

/// Genie's `lade` dialog.
#[derive(Debug)]
pub struct Lade {
    ahead: Lookahead,
    /// The query's window stands.
    is_set: bool,
    budget: TimeBudget,
}

impl Lade {
    /// A dialog kind with these settings; fewer than 1 column or n-grams of less than 2 tokens are raised to that.
    pub fn new(settings: LadeSettings) -> Self {
        let ahead = Lookahead::new(settings);
        let budget = TimeBudget::of_rows(ahead.settings().n_rows()).learning();
        Self { ahead, is_set: false, budget }
    }

    /// The same without a back-off: it looks ahead with every step, whatever that costs.
    #[must_use]
    pub fn always(self) -> Self {
        Self { budget: self.budget.free(), ..self }
    }

    /// Fills the levels behind the first, one after the other, from what the model makes of those before.
    fn set_up(&mut self, decoding: &mut Decoding<'_>, last: TokenId) -> Result<(), DialogError> {
        let history = decoding.history();
        let n_vocab = decoding.model().vocab_size();
        self.ahead.begin(&history, n_vocab);
        let n_levels = self.ahead.n_levels();
        for level in 0..n_levels - 1 {
            let (tree, levels) = self.ahead.rows(last, n_levels);
            let tree = tree.with_logits_of(&levels[level]);
            let mut next = Vec::new();
            let ran = decoding.try_tree(&tree, &mut |logits| {
                next = levels[level].iter().map(|&row| most_likely(logits[row])).collect()
            })?;
            if ran {
                self.ahead.set_level(level + 1, next);
            }
        }
        if n_levels > 1 {
            self.ahead.set_first(last);
        }
        self.is_set = true;
        Ok(())
    }
}

impl DialogKind for Lade {
    fn name(&self) -> &'static str {
        "lade"
    }

    fn check(&self, models: &Models<'_>) -> Result<(), DialogError> {
        let n_rows = self.ahead.settings().n_rows();
        match models.main.widest_step().filter(|widest| n_rows > *widest) {
            None => Ok(()),
            Some(widest) => Err(DialogError::Kind {
                kind: "lade",
                expected: format!(
                    "graphs that give logits for {n_rows} rows at once: (`window` + `gcap`) * (`ngram` - 1)"
                ),
                found: format!("at most {widest}: smaller numbers fit"),
            }),
        }
    }

    fn speculation(&self) -> Option<Speculation> {
        Some(Speculation::default())
    }

    fn forget(&mut self) {
        let mut budget = self.budget.clone();
        budget.forget_gains();
        *self = Self { budget, ..Self::new(self.ahead.settings()) };
    }

    fn step(&mut self, decoding: &mut Decoding<'_>) -> Result<Option<StopReason>, DialogError> {
        // libGenie samples by its own rules, sets up a window for each reply, and never rests.
        let draws = decoding.rules() == SamplerRules::Genie;
        if !decoding.has_started() {
            self.is_set &= !draws;
        }
        let last = decoding.last().filter(|_| decoding.has_started());
        let Some(last) = last else { return decoding.advance() };
        let began = Instant::now();
        if !draws && !self.budget.may_draft() {
            return self.budget.plain_step(began, decoding);
        }
        if !self.is_set {
            self.set_up(decoding, last)?;
            self.budget.spent(began.elapsed());
        }
        let began = Instant::now();
        if !draws {
            self.ahead.pool_text(&decoding.history());
        }
        let (tree, last_level) = self.ahead.tree(last, self.ahead.n_levels());
        // libGenie draws the window's tokens too, between the reply's first and second.
        let (mut outputs, mut n_drawn) = (Vec::new(), 0_usize);
        let ahead = &mut self.ahead;
        let verified = decoding.verify_tree(&tree, &mut |draw| {
            ahead.drew(draw.token);
            n_drawn += 1;
            if draw.n_before == 0 {
                for &row in &last_level {
                    let logits = draw.logits[row];
                    outputs.push(if draws { draw.sampler.sample(logits)? } else { most_likely(logits) });
                }
            }
            Ok(())
        })?;
        if outputs.is_empty() {
            // The tree did not fit: by libGenie's rules the window no longer goes on from the newest token.
            self.is_set &= !draws;
            self.budget.plain(began.elapsed());
            return Ok(verified.stop);
        }
        self.budget.round(began.elapsed(), tree.n_rows() - 1, verified.n_accepted);
        self.ahead.advance(outputs, n_drawn.saturating_sub(1));
        Ok(verified.stop)
    }
}
