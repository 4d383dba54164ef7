//! One query while it runs: what all dialog kinds share.

use std::time::Instant;

use engine::TokenModel;
use genie_types::TokenId;

use super::codes::{SentenceCode, StopReason};
use super::control::{Control, Signal};
use super::error::DialogError;
use super::history::History;
use super::input::Start;
use super::reply::Chunk;
use super::stop::Match;
use super::stream::{StopRules, Stream};
use crate::config::ContextSettings;
use crate::kpi::QueryKpis;
use crate::sampler::Sampler;

/// A reply in the making. A [`DialogKind`](super::DialogKind) drives it: [`start`](Turn::start) once, then
/// [`deliver`](Turn::deliver) and [`advance`](Turn::advance) in turns until one of them says stop.
pub struct Turn<'a> {
    pub(super) model: &'a mut dyn TokenModel,
    pub(super) sampler: &'a mut Sampler,
    pub(super) history: &'a mut History,
    pub(super) context: &'a ContextSettings,
    pub(super) limit: usize,
    pub(super) control: &'a Control,
    pub(super) rules: &'a StopRules,
    pub(super) stream: Stream,
    /// The stream as it was before the last token, to say that token again after a pause.
    pub(super) before_last: Option<Stream>,
    pub(super) callback: &'a mut dyn FnMut(Chunk<'_>),
    pub(super) start: Start,
    pub(super) began: Instant,
    pub(super) first_token: Option<Instant>,
    pub(super) kpis: QueryKpis,
    pub(super) tokens: Vec<TokenId>,
    pub(super) text: String,
    /// Chunks given out so far: the first is `BEGIN`.
    pub(super) n_chunks: usize,
}

impl Turn<'_> {
    /// Processes the input of the query and draws the first token of the reply.
    ///
    /// # Errors
    /// The model or the sampler refuses.
    pub fn start(&mut self) -> Result<TokenId, DialogError> {
        let input = std::mem::take(&mut self.start.input);
        let token = match self.start.replay.take() {
            Some(token) => token,
            None => self.process(&input)?,
        };
        let now = Instant::now();
        self.first_token = Some(now);
        self.kpis.time_to_first_token = Some(now - self.began);
        Ok(token)
    }

    /// Takes a token as the next of the reply: checks whether it ends it, and gives it to the callback.
    ///
    /// # Errors
    /// The tokenizer cannot turn it into text, or the model cannot be rewound to before a stop sequence.
    pub fn deliver(&mut self, token: TokenId) -> Result<Option<StopReason>, DialogError> {
        let place = self.history.len();
        self.history.said(token);
        if self.context.eos.contains(&token) {
            return Ok(Some(StopReason::Eos));
        }
        if self.context.eot == Some(token) {
            return Ok(Some(StopReason::Eot));
        }
        self.tokens.push(token);
        self.kpis.n_generated += 1;
        let mut text = String::new();
        self.before_last = Some(self.stream.clone());
        let found = self.stream.push(self.rules, token, place, &mut text)?;
        self.give(&[token], &text);
        if let Some(m) = found {
            return self.stop_at(m).map(Some);
        }
        if self.tokens.len() >= self.control.max_num_tokens() {
            return Ok(Some(StopReason::MaxTokens));
        }
        Ok(self.control.take().map(|signal| match signal {
            Signal::Abort => StopReason::Aborted,
            Signal::Pause => StopReason::Paused,
        }))
    }

    /// Processes the token delivered last and draws the next one; `None` if the context is full.
    ///
    /// # Errors
    /// The model or the sampler refuses.
    pub fn advance(&mut self) -> Result<Option<TokenId>, DialogError> {
        let Some(last) = self.history.unprocessed() else { return Ok(None) };
        if self.history.n_past() >= self.limit {
            return Ok(None);
        }
        match self.process(&[last]) {
            Ok(token) => Ok(Some(token)),
            Err(DialogError::Overflow(_)) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// The conversation so far, the reply included.
    pub fn history(&self) -> &[TokenId] {
        self.history.tokens()
    }

    fn process(&mut self, input: &[TokenId]) -> Result<TokenId, DialogError> {
        let logits = self.model.process(input)?;
        let token = self.sampler.sample(logits)?;
        self.history.processed(input);
        self.sampler.accept(token);
        Ok(token)
    }

    /// Everything from the token that the match began in is forgotten, in the cache as well.
    ///
    /// The real one also forgets the token before it (`n_past=12 -> 11` for a match in the unprocessed 13th token).
    fn stop_at(&mut self, m: Match) -> Result<StopReason, DialogError> {
        if m.token < self.history.n_past() {
            self.model.rewind(m.token)?;
        }
        self.history.truncate(m.token);
        Ok(StopReason::StopSequence(self.rules.sequences.get(m.sequence).cloned().unwrap_or_default()))
    }

    fn give(&mut self, tokens: &[TokenId], text: &str) {
        let code = if self.n_chunks == 0 { SentenceCode::Begin } else { SentenceCode::Continue };
        self.n_chunks += 1;
        self.text.push_str(text);
        (self.callback)(Chunk { code, tokens, text });
    }

    /// The last chunks: text that was held back, if any, then `END` with nothing.
    pub(super) fn close(&mut self) -> Result<(), DialogError> {
        let mut text = String::new();
        self.stream.finish(&mut text)?;
        if !text.is_empty() {
            self.give(&[], &text);
        }
        (self.callback)(Chunk { code: SentenceCode::End, tokens: &[], text: "" });
        Ok(())
    }
}
