//! One step of a reply as a dialog kind sees it: what all kinds share.

use std::time::Instant;

use engine::{EngineError, PrefixCache, TokenModel};
use genie_types::TokenId;

use super::codes::StopReason;
use super::control::{Control, Signal};
use super::error::DialogError;
use super::history::History;
use super::query_state::QueryState;
use super::stop::Match;
use crate::config::ContextSettings;
use crate::sampler::Sampler;

/// The state of a reply, lent to a [`DialogKind`](crate::kinds::DialogKind) for one step. [`advance`](Self::advance)
/// delivers one token, [`verify`](Self::verify) several.
///
/// *Invariant*: after each call the model has processed the whole history except its last token, or all of it after a stop
/// sequence.
pub struct Decoding<'a> {
    pub(super) model: &'a mut dyn TokenModel,
    pub(super) prefix_cache: Option<&'a PrefixCache>,
    pub(super) control: &'a Control,
    /// Most tokens in the cache.
    pub(super) limit: usize,
    pub(super) reply: ReplyWriter<'a>,
}

/// The parts that turn logits into a reply, apart from the model, which lends the logits.
pub(super) struct ReplyWriter<'a> {
    pub(super) sampler: &'a mut Sampler,
    pub(super) history: &'a mut History,
    pub(super) context: &'a ContextSettings,
    pub(super) query: &'a mut QueryState,
}

/// What became of a draft.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// How many tokens of the draft were those that the sampler drew.
    pub n_accepted: usize,
    /// Why the reply is over, if it is.
    pub stop: Option<StopReason>,
}

impl Decoding<'_> {
    /// Whether the input of the query was processed and the reply has its first token.
    pub fn has_started(&self) -> bool {
        self.reply.query.first_token.is_some()
    }

    /// Processes the input of the query, later the token delivered last; draws the next token and delivers it.
    ///
    /// # Errors
    /// The model, the sampler or the tokenizer refuses.
    pub fn advance(&mut self) -> Result<Option<StopReason>, DialogError> {
        if !self.has_started() {
            return self.start();
        }
        let Some(last) = self.reply.history.unprocessed().filter(|_| self.n_left() > 0) else {
            return Ok(Some(StopReason::ContextLimit));
        };
        let token = match self.model.process(&[last]) {
            Ok(logits) => self.reply.sample(&[last], logits)?,
            Err(e) if is_overflow(&e) => return Ok(Some(StopReason::ContextLimit)),
            Err(e) => return Err(e.into()),
        };
        self.deliver(token)
    }

    fn start(&mut self) -> Result<Option<StopReason>, DialogError> {
        let input = std::mem::take(&mut self.reply.query.plan.input);
        let cache = self.prefix_cache.filter(|_| self.reply.history.n_past() == 0);
        let token = match (self.reply.query.plan.replay.take(), cache) {
            (Some(token), _) => token,
            (None, Some(cache)) => self.reply.sample(&input, &cache.process(self.model, &input)?)?,
            (None, None) => self.reply.sample(&input, self.model.process(&input)?)?,
        };
        let now = Instant::now();
        self.reply.query.first_token = Some(now);
        self.reply.query.kpis.time_to_first_token = Some(now - self.reply.query.began);
        self.deliver(token)
    }

    /// Processes the token delivered last and a draft of what follows in one go. Delivers the tokens that the sampler draws
    /// from their logits, up to and with the first that differs from the draft: the reply is the same as with
    /// [`advance`](Self::advance), token by token and draw by draw. A draft that does not fit is cut; before the first
    /// token, and with an empty draft, this is `advance`.
    ///
    /// # Errors
    /// The model, the sampler or the tokenizer refuses.
    pub fn verify(&mut self, draft: &[TokenId]) -> Result<Verified, DialogError> {
        let n_wanted = self.control.max_num_tokens().saturating_sub(self.reply.query.tokens.len());
        let n_most = n_wanted.min(self.n_left()).saturating_sub(1);
        let draft = &draft[..draft.len().min(n_most)];
        let last = self.reply.history.unprocessed().filter(|_| self.has_started() && !draft.is_empty());
        let Some(last) = last else { return Ok(Verified { n_accepted: 0, stop: self.advance()? }) };
        let tokens: Vec<TokenId> = std::iter::once(last).chain(draft.iter().copied()).collect();
        let (reply, mut n_accepted, mut over) = (&mut self.reply, 0, None);
        let ran = self.model.process_rows(&tokens, &mut |row, logits| {
            if over.is_some() || row != n_accepted {
                return; // behind a stop, or behind the first token that differs
            }
            let drawn = reply.sample(&tokens[row..=row], logits);
            match drawn.and_then(|token| Ok((token, reply.deliver(token)?))) {
                Ok((token, stop)) => {
                    n_accepted += usize::from(draft.get(row) == Some(&token));
                    over = stop.map(Ok);
                }
                Err(e) => over = Some(Err(e)),
            }
        });
        match ran {
            // A wide step may not fit where a narrow one does.
            Err(e) if is_overflow(&e) => return Ok(Verified { n_accepted: 0, stop: self.advance()? }),
            ran => ran?,
        }
        let stop = over.transpose()?;
        self.rewind_to_history()?;
        Ok(Verified { n_accepted, stop })
    }

    /// The conversation so far, the reply included; the last token is not processed yet.
    pub fn history(&self) -> &[TokenId] {
        self.reply.history.tokens()
    }

    /// Tokens that the model can still process.
    pub fn n_left(&self) -> usize {
        self.limit.saturating_sub(self.reply.history.n_past())
    }

    /// The model, for kinds that keep branches beside the dialog in other sequences. Sequence 0 is the dialog's: a kind
    /// leaves it as it was.
    pub fn model(&mut self) -> &mut dyn TokenModel {
        self.model
    }

    /// Whether a limit or a signal ends the reply before its next token. Asked after the last chunk was given out, so that
    /// a callback can stop the reply at its token.
    pub(super) fn interrupted(&self) -> Option<StopReason> {
        if self.reply.query.tokens.is_empty() {
            return None;
        }
        if self.reply.query.tokens.len() >= self.control.max_num_tokens() {
            return Some(StopReason::MaxTokens);
        }
        self.control.take().map(|signal| match signal {
            Signal::Abort => StopReason::Aborted,
            Signal::Pause => StopReason::Paused,
        })
    }

    fn deliver(&mut self, token: TokenId) -> Result<Option<StopReason>, DialogError> {
        let stop = self.reply.deliver(token)?;
        self.rewind_to_history()?;
        Ok(stop)
    }

    /// Rewinds the model to the history, which a stop sequence or a rejected draft made shorter.
    fn rewind_to_history(&mut self) -> Result<(), DialogError> {
        let n_past = self.reply.history.n_past();
        if self.model.n_past() > n_past { Ok(self.model.rewind(n_past)?) } else { Ok(()) }
    }
}

impl ReplyWriter<'_> {
    /// Draws a token from the logits of `input`'s last token; the model has processed `input`.
    fn sample(&mut self, input: &[TokenId], logits: &[f32]) -> Result<TokenId, DialogError> {
        let token = self.sampler.sample(logits)?;
        self.history.processed(input);
        self.sampler.accept(token);
        Ok(token)
    }

    /// Takes a token as the next of the reply, and checks whether it ends it. A stop sequence cuts the history; the model
    /// may then hold more than that.
    fn deliver(&mut self, token: TokenId) -> Result<Option<StopReason>, DialogError> {
        let place = self.history.len();
        self.history.push_generated(token);
        if self.context.eos.contains(&token) {
            return Ok(Some(StopReason::Eos));
        }
        if self.context.eot == Some(token) {
            return Ok(Some(StopReason::Eot));
        }
        let query = &mut *self.query;
        query.tokens.push(token);
        query.kpis.n_generated += 1;
        query.before_last = Some(query.reply_text.clone());
        let found = query.reply_text.push(&query.rules, token, place, &mut query.text)?;
        Ok(found.map(|m| self.stop_at(m)))
    }

    /// Everything from the token that the match began in is forgotten.
    ///
    /// libGenie also forgets the token before it (`n_past=12 -> 11` for a match in the unprocessed 13th token).
    fn stop_at(&mut self, m: Match) -> StopReason {
        self.history.truncate(m.token);
        StopReason::StopSequence(self.query.rules.sequences.get(m.sequence).cloned().unwrap_or_default())
    }
}

/// Whether the model has no place for the tokens.
fn is_overflow(e: &EngineError) -> bool {
    matches!(e, EngineError::Overflow(_))
}
