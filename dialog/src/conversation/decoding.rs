//! One step of a reply as a dialog kind sees it: what all kinds share.

use std::time::Instant;

use engine::{EngineError, PlanError, PrefixCache, SeqId, SequenceModel, TokenModel, TreeRow};
use genie_types::TokenId;
use grammar::{Allowed, Constraint};

use super::codes::StopReason;
use super::control::{Control, Signal};
use super::error::DialogError;
use super::history::History;
use super::lanes::Lane;
use super::query_state::QueryState;
use super::stop::Match;
use crate::config::ContextSettings;
use crate::sampler::{Sampler, SamplerRules, Window};

/// The state of a reply, lent to a [`DialogKind`](crate::kinds::DialogKind) for one step. [`advance`](Self::advance)
/// delivers one token, [`verify`](Self::verify) several.
///
/// *Invariant*: after each call the model has processed the whole history except its last token, or all of it after a stop
/// sequence.
pub struct Decoding<'a> {
    pub(crate) model: &'a mut (dyn TokenModel + 'static),
    /// The other model of two.
    pub(crate) second: Option<&'a mut (dyn TokenModel + 'static)>,
    /// The last token drawn, if the model has not processed it.
    pub(crate) unprocessed: &'a mut Option<TokenId>,
    pub(crate) prefix_cache: Option<&'a PrefixCache>,
    pub(crate) control: &'a Control,
    /// Most tokens in the cache.
    pub(crate) limit: usize,
    pub(crate) reply: ReplyWriter<'a>,
}

/// The parts that turn logits into a reply, apart from the model, which lends the logits.
pub(crate) struct ReplyWriter<'a> {
    pub(crate) sampler: &'a mut Sampler,
    pub(crate) context: &'a ContextSettings,
    pub(crate) query: &'a mut QueryState,
    /// What the reply must follow.
    pub(crate) grammar: Option<&'a mut Constraint>,
}

/// Why a reply ends.
pub(super) struct End {
    reason: StopReason,
    /// From which place of the history on everything is forgotten, after a stop sequence.
    cut: Option<usize>,
}

/// What was drawn and delivered from the logits of one call of the model, to be applied to it once it has returned.
#[derive(Default)]
pub(super) struct Drawn {
    /// The last token, and its place in the history: what stands before it was processed.
    pub(super) last: Option<(usize, TokenId)>,
    /// Nothing more is drawn.
    pub(super) over: Option<Result<End, DialogError>>,
    /// How many tokens stay processed, where that is more than those before the last one drawn.
    processed: Option<usize>,
    /// What a stop sequence forgets is forgotten at the end of the reply.
    cuts_late: bool,
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
        if let Some(last) = *self.unprocessed {
            self.model.make_room(&[last])?;
        }
        let Some(last) = self.unprocessed.filter(|_| self.n_left() > 0) else {
            return Ok(Some(StopReason::ContextLimit));
        };
        if self.reply.grammar.is_some()
            && let Some(stop) = self.jump(last)?
        {
            return Ok(stop);
        }
        let (n_past, mut drawn) = (self.model.n_past(), Drawn::default());
        match self.model.process(&[last]) {
            Ok(logits) => drawn.draw(&mut self.reply, n_past + 1, logits),
            Err(e) if is_overflow(&e) => return Ok(Some(StopReason::ContextLimit)),
            Err(EngineError::Stopped { .. }) => return Ok(Some(self.aborted())),
            Err(e) => return Err(e.into()),
        }
        self.apply(n_past, 1, drawn)
    }

    /// Processes the token delivered last and a draft of what follows in one go. Delivers the tokens that the sampler draws
    /// from their logits, up to and with the first that differs from the draft: the reply is the same as with
    /// [`advance`](Self::advance), token by token and draw by draw. A draft that does not fit is cut; before the first
    /// token, and with an empty draft, this is `advance`.
    ///
    /// # Errors
    /// The model, the sampler or the tokenizer refuses.
    pub fn verify(&mut self, draft: &[TokenId]) -> Result<Verified, DialogError> {
        let draft = &draft[..draft.len().min(self.n_wanted().saturating_sub(1))];
        self.verify_by(draft, |reply, _, logits| reply.sample(logits))
    }

    /// Tokens of this reply so far.
    pub fn n_delivered(&self) -> usize {
        self.reply.query.tokens.len()
    }

    /// How many tokens the reply may still get: up to its limit, or until the context is full.
    pub fn n_wanted(&self) -> usize {
        self.max_tokens().saturating_sub(self.reply.query.n_counted()).min(self.n_left())
    }

    /// Processes the token delivered last and a draft, has a token chosen from the logits of each row, and delivers those up to
    /// and with the first that differs from the draft.
    pub(super) fn verify_by(
        &mut self,
        draft: &[TokenId],
        mut choose: impl FnMut(&mut ReplyWriter<'_>, usize, &[f32]) -> Result<TokenId, DialogError>,
    ) -> Result<Verified, DialogError> {
        let mut draft = &draft[..draft.len().min(self.n_left().saturating_sub(1))];
        if let Some(grammar) = &mut self.reply.grammar {
            draft = &draft[..grammar.n_valid(draft)];
        }
        let max_tokens = self.max_tokens();
        let last = self.unprocessed.filter(|_| self.has_started() && !draft.is_empty());
        let Some(last) = last else { return Ok(Verified { n_accepted: 0, stop: self.advance()? }) };
        let tokens: Vec<TokenId> = std::iter::once(last).chain(draft.iter().copied()).collect();
        let (n_past, mut n_accepted, mut drawn) = (self.model.n_past(), 0, Drawn::default());
        let mut take = |row: usize, logits: &[f32]| {
            // Behind a stop, a limit, or the first token that differs, nothing is drawn.
            if drawn.over.is_none() && row == n_accepted && self.reply.query.n_counted() < max_tokens {
                let place = n_past + row + 1;
                match choose(&mut self.reply, row, logits) {
                    Ok(token) => {
                        drawn.deliver(&mut self.reply, place, token);
                        n_accepted += usize::from(drawn.last == draft.get(row).map(|token| (place, *token)));
                    }
                    Err(e) => drawn.refuse(place, e),
                }
            }
            drawn.place().unwrap_or(n_past) - n_past
        };
        let ran = match self.model.sequences().filter(|sequences| !sequences.takes_back()) {
            Some(sequences) => keep_what_holds(sequences, &tokens, &mut take),
            None => self.model.process_rows(&tokens, &mut |row, logits| {
                take(row, logits);
            }),
        };
        if let Some(counts) = self.reply.query.kpis.speculation.as_mut().filter(|_| ran.is_ok()) {
            counts.n_rounds += 1;
            counts.n_drafted += draft.len();
            counts.n_accepted += n_accepted;
        }
        match ran {
            // A wide step may not fit where a narrow one does.
            Err(e) if e.does_not_fit() => {
                return Ok(Verified { n_accepted: 0, stop: self.advance()? });
            }
            // Rows of the steps before the stop may have given tokens.
            Err(EngineError::Stopped { .. }) => {
                let aborted = self.aborted();
                if drawn.last.is_none() && drawn.over.is_none() {
                    return Ok(Verified { n_accepted: 0, stop: Some(aborted) });
                }
                let stop = self.apply(n_past, tokens.len(), drawn)?.or(Some(aborted));
                return Ok(Verified { stop, n_accepted });
            }
            ran => ran?,
        }
        Ok(Verified { stop: self.apply(n_past, tokens.len(), drawn)?, n_accepted })
    }

    /// The conversation so far, the reply included; the last token is not processed yet.
    pub fn history(&self) -> Vec<TokenId> {
        History::new(self.model.transcript(), *self.unprocessed).to_vec()
    }

    /// Tokens that the model can still process.
    pub fn n_left(&self) -> usize {
        self.limit.saturating_sub(self.model.n_past())
    }

    /// The model, for kinds that keep branches beside the dialog in other sequences. Sequence 0 is the dialog's: a kind
    /// leaves it as it was.
    pub fn model(&mut self) -> &mut dyn TokenModel {
        self.model
    }

    /// The other model of two, if the dialog has one. A kind leaves it with whatever tokens it likes: who uses it next finds
    /// out what it has in common with the dialog ([`follow`](super::second::follow)).
    pub fn second(&mut self) -> Option<&mut (dyn TokenModel + 'static)> {
        self.second.as_deref_mut()
    }

    /// The tokens that the model has processed.
    pub fn processed(&self) -> &[TokenId] {
        self.model.transcript().tokens()
    }

    /// Whose rules the sampler follows.
    pub fn rules(&self) -> SamplerRules {
        self.reply.sampler.settings().rules()
    }

    /// What the query will have the model process before its first token: nothing once it has.
    pub fn input(&self) -> &[TokenId] {
        &self.reply.query.plan.input
    }

    /// Whether a limit or a signal ends the reply before its next token. Asked after the last chunk was given out, so that
    /// a callback can stop the reply at its token.
    pub(super) fn interrupted(&self) -> Option<StopReason> {
        // Before the first token an abort ends the prompt, in the model; anything else waits for that token.
        if self.reply.query.tokens.is_empty() {
            return None;
        }
        if self.reply.query.n_counted() >= self.max_tokens() {
            return Some(StopReason::MaxTokens);
        }
        self.control.take().map(|signal| match signal {
            Signal::Abort => StopReason::Aborted,
            Signal::Pause => StopReason::Paused,
        })
    }

    /// Whether what libGenie does is done, where it differs from what is right.
    pub(crate) fn as_genie(&self) -> bool {
        self.reply.sampler.settings().rules() == SamplerRules::Genie
    }

    /// A reply beside others, in a sequence of its own.
    pub(crate) fn lane(&self, seq: SeqId, next: Vec<TokenId>) -> Lane {
        let lane = Lane::new(seq, next, self.reply.query.reply_text.clone(), self.reply.sampler.window().clone());
        lane.following(self.reply.grammar.as_deref().cloned().map(Box::new))
    }

    /// Most tokens of this reply.
    pub(super) fn max_tokens(&self) -> usize {
        self.control.max_num_tokens().min(self.reply.query.max_tokens)
    }

    /// The model was stopped; its next call runs.
    pub(super) fn aborted(&self) -> StopReason {
        self.control.take();
        StopReason::Aborted
    }

    /// Brings the model to what was drawn after a call at `n_past`, whose first `n_generated` tokens are of the reply: a
    /// rejected draft, what a stop sequence forgets, and input from whose logits no token could be drawn are taken back.
    pub(super) fn apply(
        &mut self,
        n_past: usize,
        n_generated: usize,
        drawn: Drawn,
    ) -> Result<Option<StopReason>, DialogError> {
        let kept = drawn.place().unwrap_or(n_past);
        (n_past..kept.min(n_past + n_generated)).for_each(|index| self.model.mark_generated(index));
        let end = drawn.over.transpose();
        let cut = end.as_ref().ok().and_then(|end| end.as_ref()?.cut);
        let (cut, late) = if drawn.cuts_late { (None, cut) } else { (cut, None) };
        self.reply.query.late_cut = late;
        *self.unprocessed = drawn.last.map(|(_, token)| token).filter(|_| cut.is_none() && drawn.processed.is_none());
        if let (Some(cut), Some((place, _)), Some(grammar)) = (cut, drawn.last, &mut self.reply.grammar) {
            grammar.forget((place + 1).saturating_sub(cut));
        }
        let rewound = self.rewind(cut.unwrap_or(kept));
        if cut.is_some() {
            self.relearn_history();
        }
        match (end, rewound) {
            (Err(e), Err(error)) => {
                tracing::error!(%error, "the cache cannot be brought back after a failed query");
                Err(e)
            }
            (end, rewound) => end.and_then(|end| rewound.map(|()| end.map(|end| end.reason))),
        }
    }

    /// Forgets what a stop sequence has left to be forgotten at the end.
    pub(super) fn cut_late(&mut self) -> Result<(), DialogError> {
        match self.reply.query.late_cut.take() {
            Some(n_past) => {
                self.rewind(n_past)?;
                self.relearn_history();
                Ok(())
            }
            None => Ok(()),
        }
    }
}

/// Processes a token and a draft behind it in one step, of which only the rows that `take` counts stay in the cache.
fn keep_what_holds(
    sequences: &mut dyn SequenceModel,
    tokens: &[TokenId],
    take: &mut dyn FnMut(usize, &[f32]) -> usize,
) -> Result<(), EngineError> {
    let rows: Vec<TreeRow> = TreeRow::chain(tokens).collect();
    let ran = sequences.process_tree(SeqId(0), &rows, &mut |logits| {
        let n_kept = logits.iter().enumerate().fold(0, |_, (row, logits)| take(row, logits));
        (0..n_kept).collect()
    });
    ran.map(drop)
}

impl Drawn {
    /// Where the next token to be processed stands; none where nothing was drawn.
    fn place(&self) -> Option<usize> {
        self.processed.or(self.last.map(|(place, _)| place))
    }

    /// Draws the token at `place` from the logits of the one before it, and delivers it.
    pub(super) fn draw(&mut self, reply: &mut ReplyWriter<'_>, place: usize, logits: &[f32]) {
        match reply.sample(logits) {
            Ok(token) => self.deliver(reply, place, token),
            Err(e) => self.refuse(place, e),
        }
    }

    /// No token could be drawn at `place`: the reply is over.
    fn refuse(&mut self, place: usize, error: DialogError) {
        if matches!(error, DialogError::GrammarComplete) {
            self.processed = Some(place);
            self.over = Some(Ok(End { reason: StopReason::GrammarEnd, cut: None }));
        } else {
            self.over = Some(Err(error));
        }
    }

    /// Delivers tokens that are certain, from `place` on; all of them, and what they end, stay processed.
    pub(super) fn inject(&mut self, reply: &mut ReplyWriter<'_>, place: usize, tokens: &[TokenId]) {
        for (place, token) in (place..).zip(tokens) {
            reply.sampler.accept(*token);
            self.deliver(reply, place, *token);
            if self.over.is_some() {
                return;
            }
        }
        self.processed = Some(place + tokens.len());
    }

    /// All before that place stays processed, whatever was delivered. What a stop sequence forgets goes once the kind is done
    /// with it.
    pub(super) fn keep_whole(&mut self, place: usize) {
        if !matches!(&self.over, Some(Err(_))) {
            (self.processed, self.cuts_late) = (Some(place), true);
        }
    }

    /// The token that was drawn, and why the reply is over, for a request that has no model of its own to be brought to them.
    pub(super) fn into_parts(self) -> (Option<TokenId>, Option<Result<StopReason, DialogError>>) {
        (self.last.map(|(_, token)| token), self.over.map(|over| over.map(|end| end.reason)))
    }

    /// Whether nothing more is drawn.
    pub(super) fn is_over(&self) -> bool {
        self.over.is_some()
    }

    pub(super) fn deliver(&mut self, reply: &mut ReplyWriter<'_>, place: usize, token: TokenId) {
        self.last = Some((place, token));
        self.processed = None;
        self.over = reply.deliver(place, token).transpose();
    }
}

impl ReplyWriter<'_> {
    /// The first token is there.
    pub(super) fn began_to_reply(&mut self) {
        let now = Instant::now();
        self.query.first_token = Some(now);
        self.query.kpis.time_to_first_token = Some(now - self.query.began);
    }

    /// Draws a token of a reply with a window of penalties and a grammar of its own.
    pub(super) fn sample_for(
        &mut self,
        window: &mut Window,
        mut grammar: Option<&mut Constraint>,
        logits: &[f32],
    ) -> Result<TokenId, DialogError> {
        let logits = constrained(&mut grammar, self.context, self.sampler, logits)?;
        self.sampler.exchange_window(window);
        let token = self.sampler.sample(logits);
        if let Ok(token) = &token {
            self.sampler.accept(*token);
        }
        self.sampler.exchange_window(window);
        Ok(token?)
    }

    pub(super) fn sample(&mut self, logits: &[f32]) -> Result<TokenId, DialogError> {
        let logits = constrained(&mut self.grammar, self.context, self.sampler, logits)?;
        let token = self.sampler.sample(logits)?;
        self.sampler.accept(token);
        Ok(token)
    }

    /// Takes a token as the next of the reply, at `place` in the history, and checks whether it ends it.
    fn deliver(&mut self, place: usize, token: TokenId) -> Result<Option<End>, DialogError> {
        self.query.kpis.n_drawn += 1;
        let is_eos = self.context.eos.contains(&token);
        let is_stop = is_eos || self.context.eot == Some(token);
        if let Some(grammar) = &mut self.grammar {
            grammar.accept(token, is_stop)?;
            if is_stop && !self.query.tokens.is_empty() && self.sampler.settings().rules() == SamplerRules::Genie {
                self.query.last_delivered = Some(token);
            }
        }
        if is_stop {
            let reason = if is_eos { StopReason::Eos } else { StopReason::Eot };
            return Ok(Some(End { reason, cut: None }));
        }
        let query = &mut *self.query;
        query.tokens.push(token);
        query.logprobs.extend(self.sampler.take_logprobs(token));
        query.kpis.n_generated += 1;
        query.before_last = Some(query.reply_text.clone());
        let found = query.reply_text.push(&query.rules, token, place, &mut query.text)?;
        query.end_chunk();
        let stops =
            found.is_none() && query.stop_callback.as_ref().is_some_and(|c| c.stops(&query.text, &query.tokens));
        if stops {
            return Ok(Some(End { reason: StopReason::StopCallback, cut: None }));
        }
        Ok(found.map(|m| self.stop_at(m)))
    }

    /// Everything from the token that the match began in is forgotten.
    ///
    /// libGenie also forgets the token before it (`n_past=12 -> 11` for a match in the unprocessed 13th token).
    fn stop_at(&self, m: Match) -> End {
        let sequence = self.query.rules.sequences.get(m.sequence).cloned().unwrap_or_default();
        End { reason: StopReason::StopSequence(sequence), cut: Some(m.token) }
    }
}

/// The logits of the tokens that the grammar allows, all of them without one. libGenie's stop tokens are those of `eos-token`; one that the
/// sampler's bias forbids ends nothing.
pub(crate) fn constrained<'r>(
    grammar: &'r mut Option<&mut Constraint>,
    context: &ContextSettings,
    sampler: &Sampler,
    logits: &'r [f32],
) -> Result<&'r [f32], DialogError> {
    let Some(grammar) = grammar else { return Ok(logits) };
    let genie = sampler.settings().rules() == SamplerRules::Genie;
    let stops = context.eos.iter().copied().chain(context.eot.filter(|_| !genie));
    let stops: Vec<TokenId> = stops.filter(|stop| !sampler.settings().chain().forbids(*stop)).collect();
    match grammar.allow(logits, &stops)? {
        Allowed::Row(row) => Ok(row),
        Allowed::Complete => Err(DialogError::GrammarComplete),
    }
}

/// Whether the model has no place for the tokens: the context is full, or none of the graphs has a past that holds its rows, as
/// where the narrowest one is wide.
pub(super) fn is_overflow(e: &EngineError) -> bool {
    matches!(e, EngineError::Overflow(_) | EngineError::Plan(PlanError::NoRoom { .. }))
}
