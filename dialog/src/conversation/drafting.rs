//! Drafts of the other model, and the test by which they are accepted: the tokens of the reply are distributed as if the
//! first model had drawn each of them.
//!
//! *Acceptance* of a drafted token d with the draft's probability q(d), where the first model's is p(d): always if p(d) >=
//! q(d), else with probability p(d) / q(d). In place of a rejected token another is drawn from max(0, p - q), brought to sum 1.
//! A sampler that takes the most likely token accepts a d that is it, and draws nothing; a function of the program in its place chooses
//! each token, and a d that is its choice is accepted.
//!
//! *Order of draws*, libGenie's: those of the draft; the tests of its tokens up to the first rejected one; a last draw.

use engine::EngineError;
use genie_types::TokenId;

use super::decoding::{Decoding, Verified, constrained};
use super::error::DialogError;
use super::second::follow;
use crate::kinds::VocabularyMap;
use crate::sampler::{Chances, most_likely};

/// Tokens that the other model proposes, with the distributions that they were drawn from.
#[derive(Clone, Debug, Default)]
pub struct Draft {
    tokens: Vec<TokenId>,
    /// One for each token; none where the most likely one is taken.
    chances: Vec<Chances>,
}

impl Draft {
    /// The tokens.
    pub fn tokens(&self) -> &[TokenId] {
        &self.tokens
    }

    /// Forgets the tokens; the room for their distributions stays.
    fn clear(&mut self) {
        self.tokens.clear();
    }
}

/// Whether the other model has no draft to offer: no room for one, it was stopped, or a token is none of its own, such as the id of a row of embeddings.
pub(crate) fn is_no_draft(error: &EngineError) -> bool {
    matches!(error, EngineError::Overflow(_) | EngineError::Stopped { .. } | EngineError::TokenOutOfRange { .. })
}

impl Decoding<'_> {
    /// Has the other model propose `n` tokens, one after the other, drawn as the reply's are; `map`: its ids are others. Fewer, where it has no room left
    /// or is stopped; none without a token to go on from.
    ///
    /// # Errors
    /// There is no other model; it or the sampler refuses.
    pub fn draft(&mut self, n: usize, map: Option<&VocabularyMap>, draft: &mut Draft) -> Result<(), DialogError> {
        draft.clear();
        let mut tokens = self.history();
        if let Some(map) = map {
            // Nothing can be drafted behind a token that the draft model lacks.
            if tokens.last().is_none_or(|last| map.draft_id(*last).is_none()) {
                return Ok(());
            }
            tokens = map.draft_ids(&tokens);
        }
        let n_vocab = self.model.vocab_size();
        let second = self.second.as_deref_mut().ok_or_else(no_second_model)?;
        let sampler = &mut *self.reply.sampler;
        let window = sampler.mark_window();
        for i in 0..n {
            let ran = match i {
                0 => follow(&mut *second, &tokens),
                _ => second.process(&tokens[tokens.len() - 1..]),
            };
            let row = match ran {
                // A draft is no more than an offer.
                Err(error) if is_no_draft(&error) => break,
                ran => ran?,
            };
            // A row that is wider than the first model's vocabulary is cut to it.
            let mapped = map.map(|map| map.row(row, n_vocab));
            let row = mapped.as_deref().unwrap_or(&row[..row.len().min(n_vocab)]);
            if draft.chances.len() == i {
                draft.chances.push(Chances::default());
            }
            if sampler.accepts_by_chances() {
                sampler.chances(row, &mut draft.chances[i])?;
            }
            // A function of the program sees the logits of the reply's model alone.
            let token = if sampler.callback().is_some() { most_likely(row) } else { sampler.sample(row)? };
            sampler.accept(token);
            draft.tokens.push(token);
            tokens.push(map.and_then(|map| map.draft_id(token)).unwrap_or(token));
        }
        sampler.restore_window(window);
        Ok(())
    }

    /// Processes the token delivered last and a draft in one go; delivers the tokens of the draft up to the first that is
    /// rejected, and one more. A draft that does not fit the context is cut; before the first token, and with an empty draft,
    /// this is [`advance`](Self::advance).
    ///
    /// # Errors
    /// The model, the sampler or the tokenizer refuses.
    pub fn verify_draft(&mut self, draft: &Draft) -> Result<Verified, DialogError> {
        let n = draft.tokens.len();
        self.verify_by(&draft.tokens, |reply, row, logits| {
            if row == n || !reply.sampler.accepts_by_chances() {
                return reply.sample(logits);
            }
            let logits = constrained(&mut reply.grammar, reply.context, reply.sampler, logits)?;
            let token = reply.sampler.accept_or_replace(logits, draft.tokens[row], &draft.chances[row])?;
            reply.sampler.accept(token);
            Ok(token)
        })
    }
}

/// What a kind that needs two models says to a dialog of one.
pub(crate) fn no_second_model() -> DialogError {
    let (expected, found) = ("a second model".to_owned(), "one model".to_owned());
    DialogError::Kind { kind: "spd", expected, found }
}
