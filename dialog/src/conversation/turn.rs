//! One step of a reply: what all dialog kinds share.

use std::time::Instant;

use engine::{PrefixCache, TokenModel};
use genie_types::TokenId;

use super::codes::StopReason;
use super::control::{Control, Signal};
use super::error::DialogError;
use super::generation::QueryState;
use super::history::History;
use super::stop::Match;
use crate::config::ContextSettings;
use crate::sampler::{Sampler, SamplerError};

/// One step of a reply. A [`DialogKind`](super::DialogKind) drives it: [`next_token`](Turn::next_token), then
/// [`deliver`](Turn::deliver).
pub struct Turn<'a> {
    pub(super) model: &'a mut dyn TokenModel,
    pub(super) sampler: &'a mut Sampler,
    /// The last sampled token, if the model has not processed it.
    pub(super) unprocessed: &'a mut Option<TokenId>,
    pub(super) context: &'a ContextSettings,
    pub(super) limit: usize,
    pub(super) control: &'a Control,
    pub(super) prefix_cache: Option<&'a PrefixCache>,
    pub(super) query: &'a mut QueryState,
}

impl Turn<'_> {
    /// Processes the input of the query, later the token delivered last, and draws the next token; `None` if the context is
    /// full.
    ///
    /// # Errors
    /// The model or the sampler refuses.
    pub fn next_token(&mut self) -> Result<Option<TokenId>, DialogError> {
        if self.query.first_token.is_some() { self.advance() } else { self.start().map(Some) }
    }

    fn start(&mut self) -> Result<TokenId, DialogError> {
        let input = std::mem::take(&mut self.query.start.input);
        let token = match self.query.start.replay.take() {
            Some(token) => token,
            None => match self.prefix_cache.filter(|_| self.model.n_past() == 0) {
                Some(cache) => {
                    let logits = cache.process(self.model, &input)?;
                    let sampled = self.sampler.sample(&logits);
                    self.accept(0, sampled)?
                }
                None => self.process(&input)?,
            },
        };
        let now = Instant::now();
        self.query.first_token = Some(now);
        self.query.kpis.time_to_first_token = Some(now - self.query.began);
        Ok(token)
    }

    /// Takes a token as the next of the reply, and checks whether it ends it.
    ///
    /// # Errors
    /// The tokenizer cannot turn it into text, or the model cannot be rewound to before a stop sequence.
    pub fn deliver(&mut self, token: TokenId) -> Result<Option<StopReason>, DialogError> {
        let place = self.view().len();
        *self.unprocessed = Some(token);
        if self.context.eos.contains(&token) {
            return Ok(Some(StopReason::Eos));
        }
        if self.context.eot == Some(token) {
            return Ok(Some(StopReason::Eot));
        }
        let query = &mut *self.query;
        query.tokens.push(token);
        query.kpis.n_generated += 1;
        query.before_last = Some(query.stream.clone());
        match query.stream.push(&query.rules, token, place, &mut query.text)? {
            Some(m) => self.stop_at(m).map(Some),
            None => Ok(None),
        }
    }

    /// Whether a limit or a signal ends the reply before its next token. Asked after the last chunk was given out, so that
    /// a callback can stop the reply at its token.
    pub(super) fn interrupted(&self) -> Option<StopReason> {
        if self.query.tokens.is_empty() {
            return None;
        }
        if self.query.tokens.len() >= self.control.max_num_tokens() {
            return Some(StopReason::MaxTokens);
        }
        self.control.take().map(|signal| match signal {
            Signal::Abort => StopReason::Aborted,
            Signal::Pause => StopReason::Paused,
        })
    }

    fn advance(&mut self) -> Result<Option<TokenId>, DialogError> {
        let Some(last) = *self.unprocessed else { return Ok(None) };
        if self.model.n_past() >= self.limit {
            return Ok(None);
        }
        match self.process(&[last]) {
            Ok(token) => Ok(Some(token)),
            Err(DialogError::Overflow(_)) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// The conversation so far, the reply included.
    pub fn history(&self) -> Vec<TokenId> {
        self.view().to_vec()
    }

    fn view(&self) -> History<'_> {
        History::new(self.model.transcript(), *self.unprocessed)
    }

    fn process(&mut self, input: &[TokenId]) -> Result<TokenId, DialogError> {
        let before = self.model.n_past();
        let sampled = self.sampler.sample(self.model.process(input)?);
        self.accept(before, sampled)
    }

    /// Takes the token that was drawn after an input; `before`: tokens processed before that input. Input from whose logits no
    /// token can be drawn is taken back.
    fn accept(&mut self, before: usize, sampled: Result<TokenId, SamplerError>) -> Result<TokenId, DialogError> {
        match sampled {
            Ok(token) => {
                if self.unprocessed.take().is_some() {
                    self.model.mark_generated(before);
                }
                self.sampler.accept(token);
                Ok(token)
            }
            Err(e) => {
                if let Err(error) = self.model.rewind(before).or_else(|_| self.model.reset()) {
                    tracing::error!(%error, "the cache cannot be restored after a failed query");
                }
                Err(e.into())
            }
        }
    }

    /// Everything from the token that the match began in is forgotten, in the cache as well.
    ///
    /// libGenie also forgets the token before it (`n_past=12 -> 11` for a match in the unprocessed 13th token).
    fn stop_at(&mut self, m: Match) -> Result<StopReason, DialogError> {
        if m.token <= self.model.n_past() {
            *self.unprocessed = None;
        }
        if m.token < self.model.n_past() {
            self.model.rewind(m.token)?;
        }
        Ok(StopReason::StopSequence(self.query.rules.sequences.get(m.sequence).cloned().unwrap_or_default()))
    }
}
