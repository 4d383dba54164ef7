//! Several prompts at once, each with a conversation of its own: Genie's batch query.
//!
//! A prompt is a sequence of the model, and one step takes tokens of all of them. *Invariant*: as long as batch queries follow each
//! other, sequence `i` holds the conversation of prompt `i`; any other query forgets them.

use std::time::Instant;

use engine::{EngineError, Overflow, SeqId, SeqTokens, Transcript};
use genie_types::TokenId;
use grammar::Constraint;

use super::codes::{SentenceCode, StopReason};
use super::decoding::Decoding;
use super::dialog::Dialog;
use super::error::DialogError;
use super::generation::Generation;
use super::history::History;
use super::lanes::{Lane, LaneRules, Lanes, several_sequences};
use super::query_plan::{self, QueryPlan};
use super::query_state::QueryState;
use super::reply_text::StopRules;
use crate::kinds::DialogKind;
use crate::sampler::{SamplerRules, Window};

/// What a dialog keeps between batch queries.
#[derive(Debug)]
pub(super) struct Batch {
    kept: Vec<Kept>,
    /// A `BEGIN` or `CONTINUE` was the last query.
    open: bool,
    lanes: Lanes,
}

/// What a prompt's conversation keeps between queries.
#[derive(Clone, Debug)]
struct Kept {
    /// The last token drawn, if the model has not processed it.
    unprocessed: Option<TokenId>,
    /// The window of the penalties.
    window: Window,
    /// How far its reply has come in what it must follow.
    grammar: Option<Box<Constraint>>,
}

impl Kept {
    /// The state of the dialog's grammar as a query with that code begins.
    fn grammar_for(&self, own: Option<&Constraint>, code: SentenceCode) -> Option<Box<Constraint>> {
        let own = own?;
        let goes_on = matches!(code, SentenceCode::Continue | SentenceCode::End);
        let same = |kept: &&Constraint| kept.grammar().fingerprint() == own.grammar().fingerprint();
        if let Some(kept) = self.grammar.as_deref().filter(|kept| goes_on && !kept.has_ended()).filter(same) {
            return Some(Box::new(kept.clone()));
        }
        let mut begun = Box::new(own.clone());
        begun.restart();
        Some(begun)
    }
}

impl DialogKind for Batch {
    fn name(&self) -> &'static str {
        "batch"
    }

    fn step(&mut self, decoding: &mut Decoding<'_>) -> Result<Option<StopReason>, DialogError> {
        self.lanes.step(decoding)
    }

    fn clean_up(&mut self, decoding: &mut Decoding<'_>) -> Result<(), DialogError> {
        let lanes = std::mem::take(&mut self.lanes);
        decoding.reply.query.set_streams(lanes.replies());
        let kept = |lane: &Lane| Kept {
            unprocessed: lane.unprocessed(),
            window: lane.window.clone(),
            grammar: lane.grammar.clone(),
        };
        self.kept = lanes.list.iter().map(kept).collect();
        let model = decoding.model.sequences().ok_or_else(several_sequences)?;
        for (lane, kept) in lanes.list.iter().zip(&mut self.kept) {
            let Some(cut) = lane.cut else { continue };
            model.remove(lane.seq, cut..usize::MAX)?;
            // As in a dialog of one: penalties look at what is left.
            let left = model.transcript_of(lane.seq).ok_or_else(several_sequences)?;
            decoding.reply.sampler.relearn_for(&mut kept.window, left.tokens().iter().copied());
        }
        Ok(())
    }
}

impl Dialog {
    /// Most prompts of a batch: each is a sequence of the cache.
    pub const MOST_PROMPTS: usize = SeqId::COUNT;

    /// Replies to several prompts at once; [`Chunk::stream`](super::Chunk) says which one a piece belongs to, and
    /// [`Reply::streams`](super::Reply) has all replies. Each prompt has a conversation of its own, which goes on with the next
    /// batch of as many prompts; any other query starts from nothing. All of them share the context. Chunks have no `BEGIN`.
    ///
    /// # Errors
    /// See [`DialogError`]; no prompts, too many, or another number than before.
    pub fn start_batch(
        &mut self,
        texts: &[impl AsRef<str>],
        code: SentenceCode,
    ) -> Result<Generation<'_>, DialogError> {
        use SentenceCode::{Begin, Complete, Continue, End};
        if !matches!(code, Begin | Complete | Continue | End) {
            return Err(DialogError::NotAQuery { code });
        }
        let most = self.model.sequences().ok_or_else(several_sequences)?.most_sequences();
        let (began, found) = (Instant::now(), texts.len());
        if !(1..=most).contains(&found) {
            return Err(DialogError::BatchSize { found, most });
        }
        if let Some(expected) = self.batch.as_ref().map(|batch| batch.kept.len()).filter(|n| *n != found) {
            return Err(DialogError::BatchCount { expected, found });
        }
        let reply_text = self.new_reply_text()?;
        let open = self.batch.as_ref().is_some_and(|batch| batch.open);
        let encode = |text: &_| self.encode(&self.framed(AsRef::as_ref(text), code, open));
        let encoded = texts.iter().map(encode).collect::<Result<Vec<_>, _>>()?;
        let fresh = self.batch.is_none().then(|| {
            let mut window = self.sampler.window().clone();
            window.clear();
            let kept = vec![Kept { unprocessed: None, window, grammar: None }; found];
            Batch { kept, open: false, lanes: Lanes::default() }
        });
        let limit = self.limit();
        let as_genie = self.sampler.settings().rules() == SamplerRules::Genie;
        let Self { model, context, batch, rules, grammar, .. } = self;
        let batch = batch.as_ref().or(fresh.as_ref()).expect("one of them is there");
        let model = model.sequences().ok_or_else(several_sequences)?;
        // libGenie has no stop sequences here.
        let rules = if as_genie { StopRules::default() } else { rules.clone() };
        let mut lanes =
            Lanes { list: Vec::new(), rules: LaneRules { own_context: true, ..LaneRules::default() }, n_rows: 0 };
        let mut input = Vec::new();
        for (number, (new, kept)) in encoded.iter().zip(&batch.kept).enumerate() {
            let seq = SeqId(number as u8);
            // The conversation before the first batch is forgotten once all prompts are known to fit.
            let transcript = match fresh {
                Some(_) => &Transcript::default(),
                None => model.transcript_of(seq).ok_or_else(several_sequences)?,
            };
            // libGenie begins a turn with the end token in place of the last one drawn.
            let is_stop = |token: &TokenId| context.eos.contains(token) || context.eot == Some(*token);
            let unprocessed = kept.unprocessed.filter(|token| !as_genie || is_stop(token));
            let plan = query_plan::of_turn(code, batch.open, History::new(transcript, unprocessed), context, new);
            let (n_past, n_new) = (transcript.len(), plan.input.len());
            if n_new == 0 {
                return Err(DialogError::Empty);
            }
            if n_past + n_new > limit {
                return Err(Overflow::ContextExceeded { n_past, n_new, limit }.into());
            }
            let mut window = kept.window.clone();
            let grammar = kept.grammar_for(grammar.as_deref(), code);
            plan.input.iter().for_each(|token| window.accept(*token));
            input.extend_from_slice(&plan.input);
            lanes.list.push(Lane::new(seq, plan.input, reply_text.clone(), window).following(grammar));
        }
        if fresh.is_some() {
            self.reset()?;
            self.batch = fresh;
        }
        let plan = QueryPlan { keep: 0, input, replay: None };
        let mut query = QueryState::new(plan, rules, reply_text, began);
        query.batch = true;
        query.stop_callback.clone_from(&self.stop_callback);
        self.control().take();
        if !matches!(code, Begin | Continue) && self.max_num_tokens() > 0 {
            let batch = self.batch.as_mut().expect("made above");
            (batch.lanes, batch.open) = (lanes, false);
            return Ok(Generation::new(self, query));
        }
        let stop = self.prefill_batch(lanes, code)?;
        query.kpis.prefill_time = Some(query.began.elapsed());
        self.profile.queried(query.began, &query.kpis);
        Ok(Generation::over(self, query, stop))
    }

    /// Processes the inputs of prompts that want no reply.
    fn prefill_batch(&mut self, lanes: Lanes, code: SentenceCode) -> Result<StopReason, DialogError> {
        let inputs: Vec<SeqTokens<'_>> =
            lanes.list.iter().map(|lane| SeqTokens { seq: lane.seq, tokens: &lane.next }).collect();
        let model = self.model.sequences().ok_or_else(several_sequences)?;
        let stopped = match model.process_batch(&inputs, &mut |_, _| ()) {
            Err(EngineError::Stopped { .. }) => true,
            done => done.map(|()| false)?,
        };
        if stopped {
            self.control().take();
        }
        let batch = self.batch.as_mut().expect("a batch is under way");
        batch.open = !stopped && code != SentenceCode::Complete && code != SentenceCode::End;
        let kept = |lane: Lane| Kept { unprocessed: None, window: lane.window, grammar: lane.grammar };
        batch.kept = lanes.list.into_iter().map(kept).collect();
        Ok(if stopped { StopReason::Aborted } else { StopReason::Prefilled })
    }

    /// Forgets the conversations of a batch, before any other query.
    pub(super) fn leave_batch(&mut self) -> Result<(), DialogError> {
        if self.batch.is_some() { self.reset() } else { Ok(()) }
    }
}
