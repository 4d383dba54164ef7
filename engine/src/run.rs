//! The run loop: tokens of one or more sequences become a plan, its steps run, wanted rows of logits are handed out.

use genie_types::{TokenId, Variant};
use kvmanager::{Columns, InferenceStep, LogitsRequest, Overflow, Plan, PlanError, Policy, SeqId};

use crate::graphs::{Graphs, StepRun};
use crate::rollback::Mark;
use crate::{Engine, EngineError, Executor, TokenModel};

/// New tokens of one sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeqTokens<'a> {
    /// The sequence.
    pub seq: SeqId,
    /// Its tokens, from its next position on.
    pub tokens: &'a [TokenId],
}

/// New tokens of one sequence in a step that others share, and which of their logits are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeqRows<'a> {
    /// The sequence.
    pub seq: SeqId,
    /// Its tokens, from its next position on.
    pub tokens: &'a [TokenId],
    /// [`Nothing`](LogitsRequest::Nothing) for a piece of a prompt, [`Last`](LogitsRequest::Last) for its end and for a token that was
    /// generated, [`Each`](LogitsRequest::Each) for a draft.
    pub wanted: LogitsRequest,
    /// They are of a prompt: where graphs have rows for a prompt and one for a reply, in the former, one token too.
    pub prompt: bool,
}

/// The logits that are wanted, of the same kind for all inputs or by input.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Asked<'a> {
    All(LogitsRequest),
    ByInput(&'a [LogitsRequest]),
}

impl From<LogitsRequest> for Asked<'_> {
    fn from(request: LogitsRequest) -> Self {
        Self::All(request)
    }
}

impl Asked<'_> {
    fn of(self, input: usize) -> LogitsRequest {
        match self {
            Self::All(request) => request,
            Self::ByInput(list) => list.get(input).copied().unwrap_or(LogitsRequest::Nothing),
        }
    }

    /// What a plan for all inputs must be able to give.
    fn most(self) -> LogitsRequest {
        match self {
            Self::All(request) => request,
            Self::ByInput(list) if list.contains(&LogitsRequest::Each) => LogitsRequest::Each,
            Self::ByInput(list) if list.contains(&LogitsRequest::Last) => LogitsRequest::Last,
            Self::ByInput(_) => LogitsRequest::Nothing,
        }
    }
}

/// How steps relate to what the cache holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stepping {
    /// They go on where the sequences stand.
    GoOn,
    /// They take their sequences from the beginning again.
    Reprocess,
    /// They bring back what a failure has lost.
    Restore,
}

/// A row of logits: the input it belongs to, the place of its token there, and the row.
pub(crate) type OnLogits<'a> = &'a mut dyn FnMut(usize, usize, &[f32]);

/// A column whose logits are wanted.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    column: usize,
    input: usize,
    place: usize,
    position: usize,
}

/// Lists that a step writes and the next one reuses.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// The last plan, whose list the next one is written to.
    plan: Plan,
    pub(crate) marks: Vec<Mark>,
    tokens: Vec<TokenId>,
    /// By column, where the graphs take another model's hidden states.
    features: Vec<f32>,
    wanted: Vec<Wanted>,
}

impl Scratch {
    pub(crate) fn with_capacity(ar_max: usize) -> Self {
        let (tokens, wanted) = (Vec::with_capacity(ar_max), Vec::with_capacity(ar_max));
        Self { plan: Plan::default(), marks: Vec::with_capacity(SeqId::COUNT), tokens, features: Vec::new(), wanted }
    }
}

impl<X: Executor> Engine<X> {
    /// Processes new tokens of several sequences, prefill and decode mixed, in as few steps as the graphs' AR allows. Hands
    /// out the logits of each sequence's last token, by its place in `inputs`, in the order the steps compute them. Put
    /// sequences that decode before those that prefill.
    ///
    /// # Errors
    ///
    /// As [`process`](crate::TokenModel::process); [`PlanError::SequenceTwice`]. A batch that fails leaves every sequence
    /// as it was, unless the error is [`EngineError::StateLost`].
    pub fn process_batch(
        &mut self,
        inputs: &[SeqTokens<'_>],
        each: &mut dyn FnMut(usize, &[f32]),
    ) -> Result<(), EngineError> {
        self.run(inputs, LogitsRequest::Last.into(), &mut |input, _, logits| each(input, logits))
    }

    /// As [`process_batch`](Self::process_batch), each input with its own wish for logits; `each` gets the input, the place of
    /// the token in it, and the row.
    ///
    /// # Errors
    ///
    /// As [`process_batch`](Self::process_batch).
    pub fn process_mixed(
        &mut self,
        inputs: &[SeqRows<'_>],
        each: &mut dyn FnMut(usize, usize, &[f32]),
    ) -> Result<(), EngineError> {
        let tokens: Vec<_> = inputs.iter().map(|&SeqRows { seq, tokens, .. }| SeqTokens { seq, tokens }).collect();
        let wanted: Vec<_> = inputs.iter().map(|input| input.wanted).collect();
        self.run(&tokens, Asked::ByInput(&wanted), each)
    }

    /// Processes a draft of a sequence in one step, shows its logits row by row to `judge`, and keeps the tokens that it
    /// returns `true` for. The sequence then goes on behind the last token kept; tokens kept behind a dropped one leave a
    /// gap. Returns how many were kept.
    ///
    /// # Errors
    ///
    /// [`EngineError::DraftTooLong`], and as [`process`](crate::TokenModel::process); nothing has changed then.
    pub fn verify_draft(
        &mut self,
        draft: SeqTokens<'_>,
        judge: &mut dyn FnMut(&[&[f32]]) -> Vec<bool>,
    ) -> Result<usize, EngineError> {
        self.check_tokens(draft.tokens)?;
        let found = draft.tokens.len();
        let plan = self.plan_of_draft(draft.seq, found)?;
        let planned = &plan.steps()[0];
        let before = [self.mark(draft.seq)];
        let first = planned.n_past();
        let mut kept = Vec::new();
        let mut select = |graphs: &mut Graphs<X>| {
            let mut rows = Vec::with_capacity(found * graphs.logits.len());
            for row in 0..found {
                graphs.read_logits(row, first + row)?;
                rows.extend_from_slice(&graphs.logits);
            }
            let rows: Vec<&[f32]> = rows.chunks_exact(graphs.logits.len()).collect();
            kept = judge(&rows);
            kept.resize(found, false);
            Ok(kept.clone())
        };
        let run = StepRun {
            planned,
            tokens: draft.tokens,
            features: &[],
            next: None,
            narrow_head: self.narrow_head(),
            as_genie: self.as_genie(),
            tree: None,
            batch: None,
        };
        let done = self.graphs.run_step(&mut self.kv, run, 0..found, Some(&mut select));
        done.map_err(|e| self.rollback(&before, e))?;
        let transcript = self.sequences.of_mut(draft.seq);
        let selected = draft.tokens.iter().enumerate().filter(|(i, _)| kept[*i]);
        selected.clone().for_each(|(i, token)| transcript.push(*token, first + i));
        Ok(selected.count())
    }

    /// Processes a whole dialog from nothing and returns the logits of its last token: the reference that cached
    /// generation is held against. Uses a graph without past (AR == CL) if one is wide enough, else replays by plan.
    ///
    /// # Errors
    ///
    /// As [`TokenModel::process`]; the state before the call is gone in any case.
    pub fn recompute(&mut self, tokens: &[TokenId]) -> Result<&[f32], EngineError> {
        self.reset()?;
        let with_logits = self.kv.variants().with_logits();
        let fits =
            |spec: &&Variant| spec.is_full_context() && spec.ar().get() >= tokens.len() && with_logits.contains(**spec);
        let whole = self.graphs.layout.variants.iter().find(fits).copied();
        let evicts = self.kv.variants().groups().iter().any(|g| g.evicts());
        let Some(variant) = whole.filter(|_| !evicts && !tokens.is_empty() && tokens.len() <= self.context_size())
        else {
            return self.process(tokens);
        };
        self.check_tokens(tokens)?;
        let seq = SeqId(0);
        let step = self.kv.step(variant, Columns::of(seq, 0, tokens.len()));
        let before = [self.mark(seq)];
        self.sequences.of_mut(seq).extend(tokens, 0);
        let done = self.run_steps(&[step], &before, Stepping::GoOn, LogitsRequest::Last.into(), &mut |_, _, _| ());
        done.map_err(|e| self.rollback(&before, e))?;
        Ok(&self.graphs.logits)
    }

    pub(crate) fn check_tokens(&self, tokens: &[TokenId]) -> Result<(), EngineError> {
        let rows = self.graphs.writers.extra.as_ref();
        let has_row = |token: TokenId| rows.is_some_and(|rows| rows.row(token).is_some());
        match tokens.iter().position(|t| t.0 as usize >= self.vocab_size && !has_row(*t)) {
            None => Ok(()),
            Some(place) => {
                Err(EngineError::TokenOutOfRange { token: tokens[place], place, vocab_size: self.vocab_size })
            }
        }
    }

    /// libGenie runs the head of the step's own width.
    pub(crate) fn narrow_head(&self) -> bool {
        !self.as_genie()
    }

    /// What libGenie does is done, where it differs from what is right.
    pub(crate) fn as_genie(&self) -> bool {
        matches!(self.policy, Policy::Genie)
    }

    /// Processes new tokens of some sequences and hands out the logits that are wanted. After a failure every sequence is
    /// as before.
    pub(crate) fn run(
        &mut self,
        inputs: &[SeqTokens<'_>],
        asked: Asked<'_>,
        each: OnLogits<'_>,
    ) -> Result<(), EngineError> {
        if self.is_lockstep(inputs) {
            let mut wanted = |input: usize, place: usize, logits: &[f32]| {
                if asked.of(input) != LogitsRequest::Nothing {
                    each(input, place, logits);
                }
            };
            return self.run_lockstep(inputs, asked.most(), &mut wanted);
        }
        inputs.iter().try_for_each(|input| self.check_tokens(input.tokens))?;
        let mut plan = std::mem::take(&mut self.scratch.plan);
        let planned = match inputs {
            [only] => self.kv.plan_into(&[(only.seq, only.tokens.len())], &self.policy, asked.most(), &mut plan),
            several => {
                let wanted: Vec<_> = several.iter().map(|input| (input.seq, input.tokens.len())).collect();
                self.kv.plan_into(&wanted, &self.policy, asked.most(), &mut plan)
            }
        };
        let done = match (planned, inputs) {
            (Ok(()), _) => self.run_plan(&plan, inputs, asked, each),
            (Err(PlanError::Overflow(Overflow::GenieGivesUp { n_past, n_piece })), [only]) => {
                Err(self.genie_overflow(*only, n_past, n_piece))
            }
            (Err(e), _) => Err(e.into()),
        };
        self.scratch.plan = plan;
        done
    }

    fn run_plan(
        &mut self,
        plan: &Plan,
        inputs: &[SeqTokens<'_>],
        asked: Asked<'_>,
        each: OnLogits<'_>,
    ) -> Result<(), EngineError> {
        let mut before = std::mem::take(&mut self.scratch.marks);
        before.clear();
        before.extend(inputs.iter().map(|input| self.mark(input.seq)));
        // Processing a sequence again needs all of it, each token at its own position.
        let broken = before.iter().find(|mark| plan.is_reprocess() && !self.sequences.of(mark.seq).is_plain());
        let done = match broken {
            Some(mark) => Err(EngineError::NotReproducible { n_past: mark.pos, n_known: mark.len }),
            None => {
                for (input, mark) in inputs.iter().zip(&before) {
                    self.sequences.of_mut(input.seq).extend(input.tokens, mark.pos);
                }
                let stepping = if plan.is_reprocess() { Stepping::Reprocess } else { Stepping::GoOn };
                let done = self.run_steps(plan.steps(), &before, stepping, asked, each);
                done.map_err(|e| match e {
                    EngineError::Stopped { .. } => self.keep_processed(&before, e),
                    e => self.rollback(&before, e),
                })
            }
        };
        self.scratch.marks = before;
        done
    }

    /// After a stop: the transcripts keep the tokens of the steps that ran, which is what the cache holds.
    fn keep_processed(&mut self, before: &[Mark], stopped: EngineError) -> EngineError {
        for &Mark { seq, len, pos, .. } in before {
            let processed = self.kv.next_pos(seq) - pos;
            self.sequences.of_mut(seq).truncate(len + processed);
        }
        stopped
    }

    /// Runs steps over tokens that are in the transcripts already, until the stop flag is set. `before`: where the
    /// sequences stood before their new tokens.
    pub(crate) fn run_steps(
        &mut self,
        steps: &[InferenceStep],
        before: &[Mark],
        stepping: Stepping,
        asked: Asked<'_>,
        each: OnLogits<'_>,
    ) -> Result<(), EngineError> {
        for (i, planned) in steps.iter().enumerate() {
            // Halfway through its own tokens a sequence that is processed again would be shorter than before.
            let stoppable = stepping == Stepping::GoOn || (stepping == Stepping::Reprocess && i == 0);
            if stoppable && self.stop.is_set() {
                let count = |steps: &[InferenceStep]| steps.iter().map(InferenceStep::n_process).sum();
                return Err(EngineError::Stopped { n_processed: count(&steps[..i]), n_new: count(steps) });
            }
            self.gather(planned, before, stepping == Stepping::Reprocess, asked);
            let Scratch { tokens, features, .. } = &self.scratch;
            let next = steps.get(i + 1).map(|next| next.variant);
            let (narrow_head, as_genie) = (self.narrow_head(), self.as_genie());
            let run = StepRun { planned, tokens, features, next, narrow_head, as_genie, tree: None, batch: None };
            let wanted = &self.scratch.wanted;
            self.graphs.run_step(&mut self.kv, run, wanted.iter().map(|row| row.column), None)?;
            self.graphs.keep_features(planned, |_| true);
            for &Wanted { column, input, place, position } in &self.scratch.wanted {
                self.graphs.note_feature(planned, column);
                self.graphs.read_logits(column, position)?;
                each(input, place, &self.graphs.logits);
            }
        }
        Ok(())
    }

    /// The tokens of a step's columns, and which of them are asked for logits.
    fn gather(&mut self, planned: &InferenceStep, before: &[Mark], again: bool, asked: Asked<'_>) {
        let Scratch { tokens, features, wanted, .. } = &mut self.scratch;
        tokens.clear();
        features.clear();
        wanted.clear();
        let width = self.graphs.features.width_in();
        for slice in planned.columns.slices() {
            let input = before.iter().position(|mark| mark.seq == slice.seq).expect("a plan is over its inputs");
            let known = self.sequences.of(slice.seq).tokens();
            let Mark { len, pos, .. } = before[input];
            let first = if again { slice.first } else { len + (slice.first - pos) };
            let request = asked.of(input);
            for (k, position) in (slice.first..slice.first + slice.n).enumerate() {
                let index = first + k;
                let is_wanted = match request {
                    LogitsRequest::Nothing => false,
                    LogitsRequest::Last => index + 1 == known.len(),
                    LogitsRequest::Each => index >= len,
                };
                if is_wanted {
                    wanted.push(Wanted { column: tokens.len(), input, place: index - len, position });
                }
                tokens.push(known[index]);
                if width > 0 {
                    let new = |mark: &Mark| self.sequences.of(mark.seq).len() - mark.len;
                    let place = before[..input].iter().map(new).sum::<usize>() + index.wrapping_sub(len);
                    let given = &self.graphs.features.given;
                    features.extend_from_slice(given.chunks_exact(width).nth(place).unwrap_or_default());
                }
            }
        }
    }
}
