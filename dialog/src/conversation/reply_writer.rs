//! Tokens become a reply: drawn, checked against the stop rules, given to the callback, counted.

use std::time::{Duration, Instant};

use genie_types::TokenId;

use super::codes::{SentenceCode, StopReason};
use super::control::{Control, Signal};
use super::error::DialogError;
use super::history::History;
use super::reply::{Chunk, Reply};
use super::reply_text::{ReplyText, StopRules};
use super::stop::Match;
use crate::config::ContextSettings;
use crate::kpi::QueryKpis;
use crate::sampler::Sampler;

/// What a reply has come to so far; lives as long as its query.
#[derive(Debug)]
pub(super) struct ReplyState {
    pub(super) text: ReplyText,
    /// The text side as it was before the last token, to deliver that token again after a pause.
    pub(super) before_last: Option<ReplyText>,
    pub(super) kpis: QueryKpis,
    began: Instant,
    first_token: Option<Instant>,
    tokens: Vec<TokenId>,
    delivered: String,
    /// Chunks given out so far: the first is `BEGIN`.
    n_chunks: usize,
}

impl ReplyState {
    pub(super) fn new(text: ReplyText, kpis: QueryKpis, began: Instant) -> Self {
        Self {
            text,
            before_last: None,
            kpis,
            began,
            first_token: None,
            tokens: Vec::new(),
            delivered: String::new(),
            n_chunks: 0,
        }
    }

    pub(super) fn began(&self) -> Instant {
        self.began
    }

    pub(super) fn set_first_token(&mut self, now: Instant) {
        self.first_token = Some(now);
        self.kpis.time_to_first_token = Some(now - self.began);
    }

    /// Ends the clocks: a reply generated, or only prefilled.
    pub(super) fn stop_clocks(&mut self, stop: &StopReason) {
        if *stop == StopReason::Prefilled {
            self.kpis.prefill_time = Some(self.began.elapsed());
        } else {
            self.kpis.generation_time = self.first_token.map_or(Duration::ZERO, |t| t.elapsed());
        }
    }

    pub(super) fn into_reply(self, stop: StopReason, input: Vec<TokenId>) -> Reply {
        Reply { stop, tokens: self.tokens, text: self.delivered, input, kpis: self.kpis }
    }
}

/// Writes a reply: the parts of a dialog that this takes, and the callback.
pub(super) struct ReplyWriter<'a> {
    pub(super) sampler: &'a mut Sampler,
    pub(super) history: &'a mut History,
    pub(super) context: &'a ContextSettings,
    pub(super) control: &'a Control,
    pub(super) rules: &'a StopRules,
    pub(super) state: &'a mut ReplyState,
    pub(super) callback: &'a mut dyn FnMut(Chunk<'_>),
}

impl ReplyWriter<'_> {
    /// Draws a token from the logits of `input`'s last token, which the model has just processed.
    pub(super) fn sample(&mut self, input: &[TokenId], logits: &[f32]) -> Result<TokenId, DialogError> {
        let token = self.sampler.sample(logits)?;
        self.history.processed(input);
        self.sampler.accept(token);
        Ok(token)
    }

    /// Takes a token as the next of the reply: checks whether it ends it, and gives it to the callback. A stop sequence
    /// cuts the history; the model may then hold more than that.
    pub(super) fn deliver(&mut self, token: TokenId) -> Result<Option<StopReason>, DialogError> {
        let place = self.history.len();
        self.history.push_generated(token);
        if self.context.eos.contains(&token) {
            return Ok(Some(StopReason::Eos));
        }
        if self.context.eot == Some(token) {
            return Ok(Some(StopReason::Eot));
        }
        self.state.tokens.push(token);
        self.state.kpis.n_generated += 1;
        let mut text = String::new();
        self.state.before_last = Some(self.state.text.clone());
        let found = self.state.text.push(self.rules, token, place, &mut text)?;
        self.give(&[token], &text);
        if let Some(m) = found {
            return Ok(Some(self.stop_at(m)));
        }
        if self.state.tokens.len() >= self.control.max_num_tokens() {
            return Ok(Some(StopReason::MaxTokens));
        }
        Ok(self.control.take().map(|signal| match signal {
            Signal::Abort => StopReason::Aborted,
            Signal::Pause => StopReason::Paused,
        }))
    }

    /// Everything from the token that the match began in is forgotten.
    ///
    /// libGenie also forgets the token before it (`n_past=12 -> 11` for a match in the unprocessed 13th token).
    fn stop_at(&mut self, m: Match) -> StopReason {
        self.history.truncate(m.token);
        StopReason::StopSequence(self.rules.sequences.get(m.sequence).cloned().unwrap_or_default())
    }

    fn give(&mut self, tokens: &[TokenId], text: &str) {
        let code = if self.state.n_chunks == 0 { SentenceCode::Begin } else { SentenceCode::Continue };
        self.state.n_chunks += 1;
        self.state.delivered.push_str(text);
        (self.callback)(Chunk { code, tokens, text });
    }

    /// The last chunks: text that was held back, if any, then `END` with nothing.
    pub(super) fn close(&mut self) -> Result<(), DialogError> {
        let mut text = String::new();
        self.state.text.finish(&mut text)?;
        if !text.is_empty() {
            self.give(&[], &text);
        }
        (self.callback)(Chunk { code: SentenceCode::End, tokens: &[], text: "" });
        Ok(())
    }
}
