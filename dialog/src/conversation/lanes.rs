//! Several replies at once: each is a lane with a sequence of its own in the model, and one step takes a token of each.
//!
//! Streams of one prompt and prompts of a batch are lanes alike. *Invariant*: between two steps a lane that goes on has
//! exactly its last token not processed; rows of lanes that are over stay in the cache until all are.

use engine::{EngineError, SeqId, SeqTokens};
use genie_types::TokenId;
use grammar::Constraint;

use super::codes::StopReason;
use super::decoding::{Decoding, ReplyWriter, is_overflow};
use super::error::DialogError;
use super::query_state::Pending;
use super::reply::StreamReply;
use super::reply_text::ReplyText;
use crate::sampler::Window;

/// What lanes do in the way of libGenie, where it differs from what is right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LaneRules {
    /// A text comes whole, when its lane is over, with the text of its end token and a line end; the limit on tokens is
    /// ignored.
    pub(crate) whole_texts: bool,
    /// Each lane has the context for itself; otherwise they share its rows.
    pub(crate) own_context: bool,
}

/// One of the replies.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) seq: SeqId,
    /// What the model takes next: an input, later the token drawn last. That stays here when the lane is over.
    pub(crate) next: Vec<TokenId>,
    pub(crate) tokens: Vec<TokenId>,
    text: String,
    /// What of tokens and text was given out.
    given: (usize, usize),
    reply_text: ReplyText,
    pub(crate) window: Window,
    /// What its reply must follow, as far as it has come.
    pub(crate) grammar: Option<Box<Constraint>>,
    pub(crate) stop: Option<StopReason>,
    /// From which place of its sequence on everything is forgotten, after a stop sequence.
    pub(crate) cut: Option<usize>,
    /// What is next was drawn, not given.
    drawn: bool,
}

impl Lane {
    pub(super) fn new(seq: SeqId, next: Vec<TokenId>, reply_text: ReplyText, window: Window) -> Self {
        let (tokens, text, grammar) = (Vec::new(), String::new(), None);
        Self {
            seq,
            next,
            tokens,
            text,
            given: (0, 0),
            reply_text,
            window,
            grammar,
            stop: None,
            cut: None,
            drawn: false,
        }
    }

    /// The same; its reply must follow this.
    pub(super) fn following(self, grammar: Option<Box<Constraint>>) -> Self {
        Self { grammar, ..self }
    }

    /// Draws its next token, and takes it at `place` of its sequence. A text that the grammar cannot add to is over.
    fn draw(
        &mut self,
        reply: &mut ReplyWriter<'_>,
        rules: LaneRules,
        place: usize,
        logits: &[f32],
    ) -> Result<(), DialogError> {
        match reply.sample_for(&mut self.window, self.grammar.as_deref_mut(), logits) {
            Ok(token) => self.take(reply, rules, place, token),
            Err(DialogError::GrammarComplete) => {
                (self.stop, self.drawn) = (Some(StopReason::GrammarEnd), false);
                Ok(())
            }
            Err(e) => Err(e),
        }
    }

    /// The token drawn last, if the model has not processed it.
    pub(crate) fn unprocessed(&self) -> Option<TokenId> {
        self.next.last().copied().filter(|_| self.drawn && self.cut.is_none())
    }

    /// Takes a token as the next of the lane, at `place` of its sequence.
    fn take(
        &mut self,
        reply: &mut ReplyWriter<'_>,
        rules: LaneRules,
        place: usize,
        token: TokenId,
    ) -> Result<(), DialogError> {
        self.next.clear();
        self.next.push(token);
        self.drawn = true;
        let query = &mut *reply.query;
        let ended = if reply.context.eos.contains(&token) {
            Some(StopReason::Eos)
        } else {
            (reply.context.eot == Some(token)).then_some(StopReason::Eot)
        };
        if let Some(grammar) = &mut self.grammar {
            grammar.accept(token, ended.is_some())?;
        }
        if ended.is_some() && !rules.whole_texts {
            self.stop = ended;
            return Ok(());
        }
        query.kpis.n_generated += 1;
        if ended.is_some() {
            if !self.tokens.is_empty() {
                self.reply_text.push(&query.rules, token, place, &mut self.text)?;
            }
            self.stop = ended;
            return Ok(());
        }
        self.tokens.push(token);
        if let Some(found) = self.reply_text.push(&query.rules, token, place, &mut self.text)? {
            self.stop =
                Some(StopReason::StopSequence(query.rules.sequences.get(found.sequence).cloned().unwrap_or_default()));
            self.cut = Some(found.token);
            if let Some(grammar) = &mut self.grammar {
                grammar.forget((place + 1).saturating_sub(found.token));
            }
        } else if query.stop_callback.as_ref().is_some_and(|callback| callback.stops(&self.text, &self.tokens)) {
            self.stop = Some(StopReason::StopCallback);
        }
        Ok(())
    }

    /// What is to be given out now, of the lane with that number.
    fn pending(&mut self, number: usize, rules: LaneRules) -> Result<Option<Pending>, DialogError> {
        if self.stop.is_some() && self.cut.is_none() {
            self.reply_text.finish(&mut self.text)?;
        }
        if rules.whole_texts {
            if self.stop.is_none() || self.given.0 == usize::MAX {
                return Ok(None);
            }
            self.given.0 = usize::MAX;
            let text = if self.text.is_empty() { String::new() } else { format!("{}\n", self.text) };
            return Ok(Some(Pending { stream: number, tokens: self.tokens.clone(), text }));
        }
        let (n_tokens, n_text) = std::mem::replace(&mut self.given, (self.tokens.len(), self.text.len()));
        let (tokens, text) = (self.tokens[n_tokens..].to_vec(), self.text[n_text..].to_owned());
        Ok((!tokens.is_empty() || !text.is_empty()).then_some(Pending { stream: number, tokens, text }))
    }

    fn reply(&self) -> StreamReply {
        let stop = self.stop.clone().unwrap_or(StopReason::Aborted);
        StreamReply { stop, tokens: self.tokens.clone(), text: self.text.clone() }
    }
}

/// The lanes of a query.
#[derive(Debug, Default)]
pub(crate) struct Lanes {
    pub(crate) list: Vec<Lane>,
    pub(crate) rules: LaneRules,
    /// Rows of the cache that all of them have.
    pub(crate) n_rows: usize,
}

impl Lanes {
    /// One step of all lanes that go on: their next tokens are processed, one more is drawn for each, in their order.
    pub(crate) fn step(&mut self, decoding: &mut Decoding<'_>) -> Result<Option<StopReason>, DialogError> {
        let Decoding { model, control, limit, reply, .. } = decoding;
        let has_started = reply.query.first_token.is_some();
        // A lane cannot be paused: it would have to be resumed beside the others.
        if has_started && control.take().is_some() {
            return Ok(Some(self.end_all(StopReason::Aborted)));
        }
        if self.rules.own_context {
            let model = model.sequences().ok_or_else(several_sequences)?;
            for lane in self.list.iter_mut().filter(|lane| lane.stop.is_none()) {
                let n_past = model.transcript_of(lane.seq).map_or(0, |t| t.len());
                if n_past + lane.next.len() > *limit {
                    lane.stop = Some(StopReason::ContextLimit);
                }
            }
            if self.list.iter().all(|lane| lane.stop.is_some()) {
                return self.give_out(decoding);
            }
        }
        let live: Vec<usize> = (0..self.list.len()).filter(|&i| self.list[i].stop.is_none()).collect();
        let tokens: Vec<Vec<TokenId>> = live.iter().map(|&i| self.list[i].next.clone()).collect();
        let n_new: usize = tokens.iter().map(Vec::len).sum();
        if has_started && !self.rules.own_context && self.n_rows + n_new > *limit {
            return self.full(reply, self.rules.whole_texts).map(Some);
        }
        let model = model.sequences().ok_or_else(several_sequences)?;
        let inputs: Vec<SeqTokens<'_>> =
            live.iter().zip(&tokens).map(|(&i, tokens)| SeqTokens { seq: self.list[i].seq, tokens }).collect();
        let places: Vec<usize> = inputs
            .iter()
            .map(|input| model.transcript_of(input.seq).map_or(0, |t| t.len()) + input.tokens.len())
            .collect();
        let (mut drawn, rules) = (Ok(()), self.rules);
        let list = &mut self.list;
        let ran = model.process_batch(&inputs, &mut |i, logits| {
            if drawn.is_ok() {
                drawn = list[live[i]].draw(reply, rules, places[i], logits);
            }
        });
        match ran {
            Err(e) if has_started && is_overflow(&e) => return self.full(reply, false).map(Some),
            Err(EngineError::Stopped { .. }) => {
                control.take();
                return Ok(Some(self.end_all(StopReason::Aborted)));
            }
            ran => ran?,
        }
        drawn?;
        self.n_rows += n_new;
        if !has_started {
            reply.began_to_reply();
        } else {
            self.mark_processed(decoding, &live, &places);
        }
        self.give_out(decoding)
    }

    /// The first token of a lane, which was not drawn.
    pub(crate) fn take_first(
        &mut self,
        decoding: &mut Decoding<'_>,
        number: usize,
        place: usize,
        token: TokenId,
    ) -> Result<(), DialogError> {
        let lane = &mut self.list[number];
        lane.window.accept(token);
        lane.take(&mut decoding.reply, self.rules, place, token)
    }

    /// The tokens that were processed are of the replies.
    fn mark_processed(&self, decoding: &mut Decoding<'_>, live: &[usize], places: &[usize]) {
        for (&lane, &place) in live.iter().zip(places).filter(|(lane, _)| self.list[**lane].seq == SeqId(0)) {
            debug_assert!(lane < self.list.len());
            decoding.model.mark_generated(place - 1);
        }
    }

    /// Ends lanes that have all their tokens, gives out what there is; returns why the reply is over once all lanes are.
    pub(crate) fn give_out(&mut self, decoding: &mut Decoding<'_>) -> Result<Option<StopReason>, DialogError> {
        let (most, rules) = (decoding.max_tokens(), self.rules);
        for (number, lane) in self.list.iter_mut().enumerate() {
            if lane.stop.is_none() && !rules.whole_texts && lane.tokens.len() >= most {
                lane.stop = Some(StopReason::MaxTokens);
            }
            let pending = lane.pending(number, rules)?;
            decoding.reply.query.pending.extend(pending);
        }
        let over = self.list.iter().all(|lane| lane.stop.is_some());
        Ok(over.then(|| self.list.first().and_then(|lane| lane.stop.clone()).unwrap_or(StopReason::Prefilled)))
    }

    /// No row is left: every lane ends here. libGenie gives the texts as they are where the config's size is reached, and
    /// nothing where the graphs' is.
    fn full(&mut self, reply: &mut ReplyWriter<'_>, by_size: bool) -> Result<StopReason, DialogError> {
        let stop = if by_size { StopReason::MaxTokens } else { StopReason::ContextLimit };
        self.end_all(stop.clone());
        if by_size || !self.rules.whole_texts {
            for (number, lane) in self.list.iter_mut().enumerate() {
                let pending = lane.pending(number, self.rules)?;
                reply.query.pending.extend(pending);
            }
        }
        Ok(stop)
    }

    fn end_all(&mut self, stop: StopReason) -> StopReason {
        for lane in self.list.iter_mut().filter(|lane| lane.stop.is_none()) {
            lane.stop = Some(stop.clone());
        }
        stop
    }

    /// The replies of all lanes.
    pub(crate) fn replies(&self) -> Vec<StreamReply> {
        self.list.iter().map(Lane::reply).collect()
    }
}

/// What a model without several sequences is refused with.
pub(crate) fn several_sequences() -> DialogError {
    let what = "several sequences with this model".to_owned();
    DialogError::Engine(EngineError::Unsupported { what, hint: "" })
}
