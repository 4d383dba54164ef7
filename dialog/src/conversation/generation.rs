//! One step of a reply: what all dialog kinds share.

use std::time::Instant;

use engine::{EngineError, PrefixCache, TokenModel};
use genie_types::TokenId;

use super::codes::StopReason;
use super::error::DialogError;
use super::history::History;
use super::query_plan::QueryPlan;
use super::reply_writer::ReplyWriter;

/// A reply while it is made, lent to a [`DialogKind`](crate::kinds::DialogKind) for one step:
/// [`start`](Self::start) once per query, then [`advance`](Self::advance) or [`verify`](Self::verify) until a step returns
/// a [`StopReason`].
///
/// *Invariant*: after each call the model has processed the whole history except its last token, or all of it after a stop
/// sequence.
pub struct Generation<'a> {
    pub(super) model: &'a mut dyn TokenModel,
    pub(super) prefix_cache: Option<&'a PrefixCache>,
    pub(super) plan: &'a mut QueryPlan,
    /// Most tokens in the cache.
    pub(super) limit: usize,
    pub(super) reply: ReplyWriter<'a>,
}

/// What became of a draft.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// How many tokens of the draft were the ones that the sampler drew.
    pub n_accepted: usize,
    /// Why the reply is over, if it is.
    pub stop: Option<StopReason>,
}

impl Generation<'_> {
    /// Processes the input of the query, draws the first token of the reply and delivers it.
    ///
    /// # Errors
    /// The model, the sampler or the tokenizer refuses.
    pub fn start(&mut self) -> Result<Option<StopReason>, DialogError> {
        let input = std::mem::take(&mut self.plan.input);
        let token = match (self.plan.replay.take(), self.prefix_cache) {
            (Some(token), _) => token,
            (None, Some(cache)) => self.reply.sample(&input, &cache.process(self.model, &input)?)?,
            (None, None) => self.reply.sample(&input, self.model.process(&input)?)?,
        };
        self.reply.state.set_first_token(Instant::now());
        let stop = self.reply.deliver(token)?;
        self.agree()?;
        Ok(stop)
    }

    /// Processes the token delivered last, draws the next one and delivers it.
    ///
    /// # Errors
    /// The model, the sampler or the tokenizer refuses.
    pub fn advance(&mut self) -> Result<Option<StopReason>, DialogError> {
        let Some(last) = self.reply.history.unprocessed().filter(|_| self.n_left() > 0) else {
            return Ok(Some(StopReason::ContextLimit));
        };
        let token = match self.model.process(&[last]) {
            Ok(logits) => self.reply.sample(&[last], logits)?,
            Err(e) if is_overflow(&e) => return Ok(Some(StopReason::ContextLimit)),
            Err(e) => return Err(e.into()),
        };
        let stop = self.reply.deliver(token)?;
        self.agree()?;
        Ok(stop)
    }

    /// Processes the token delivered last and a draft of what follows in one go. Delivers the tokens that the sampler
    /// draws from their logits, up to and with the first that differs from the draft: the reply is the same as with
    /// [`advance`](Self::advance), token by token and draw by draw. A draft that does not fit is cut.
    ///
    /// # Errors
    /// The model, the sampler or the tokenizer refuses.
    pub fn verify(&mut self, draft: &[TokenId]) -> Result<Verified, DialogError> {
        let draft = &draft[..draft.len().min(self.n_left().saturating_sub(1))];
        let last = self.reply.history.unprocessed().filter(|_| !draft.is_empty());
        let Some(last) = last else { return Ok(Verified { n_accepted: 0, stop: self.advance()? }) };
        let tokens: Vec<TokenId> = std::iter::once(last).chain(draft.iter().copied()).collect();
        let (mut n_accepted, mut over, reply) = (0, None, &mut self.reply);
        let ran = self.model.process_rows(&tokens, &mut |row, logits| {
            if over.is_none() && n_accepted == row {
                let drawn = reply.sample(&tokens[row..=row], logits);
                match drawn.and_then(|token| Ok((token, reply.deliver(token)?))) {
                    Ok((token, None)) => n_accepted += usize::from(tokens.get(row + 1) == Some(&token)),
                    Ok((token, stop)) => {
                        n_accepted += usize::from(tokens.get(row + 1) == Some(&token));
                        over = Some(Ok(stop));
                    }
                    Err(e) => over = Some(Err(e)),
                }
            }
        });
        match ran {
            // A wide step may not fit where a narrow one does.
            Err(e) if is_overflow(&e) => return Ok(Verified { n_accepted: 0, stop: self.advance()? }),
            ran => ran?,
        }
        self.agree()?;
        Ok(Verified { n_accepted, stop: over.transpose()?.flatten() })
    }

    /// The conversation so far, the reply included; the last token is not processed yet.
    pub fn history(&self) -> &[TokenId] {
        self.reply.history.tokens()
    }

    /// Tokens that the model can still process.
    pub fn n_left(&self) -> usize {
        self.limit.saturating_sub(self.reply.history.n_past())
    }

    /// The model, for kinds that keep branches beside the dialog in other sequences. Sequence 0 is the dialog's: between two
    /// steps it must hold what it held.
    pub fn model(&mut self) -> &mut dyn TokenModel {
        self.model
    }

    /// Rewinds the model to the history, which a stop or a rejected draft made shorter.
    fn agree(&mut self) -> Result<(), DialogError> {
        agree(self.model, self.reply.history)
    }
}

/// Rewinds the model to what the history has as processed.
fn agree(model: &mut dyn TokenModel, history: &History) -> Result<(), DialogError> {
    if model.n_past() > history.n_past() { Ok(model.rewind(history.n_past())?) } else { Ok(()) }
}

/// Whether the model has no place for the tokens.
fn is_overflow(e: &EngineError) -> bool {
    matches!(e, EngineError::ContextExceeded { .. } | EngineError::GenieGivesUp { .. })
}
