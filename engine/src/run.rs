//! The run loop: plan, fill, execute split by split, keep the new rows, hand out logits; and the way back after a failure.
//!
//! While split `i + 1` executes, the KV manager's workers copy the new rows of split `i`; a split waits for its own rows
//! only. LM heads run only where logits are wanted, for the rows that are. A decode step allocates nothing here.

use core::ops::Range;

use genie_types::{SplitIdx, TokenId, Variant};
use kvmanager::{InferenceStep, KvError, MaskCol, PlanError, Policy, SeqId};
use nsp_graph::GraphKind;

use crate::codes::{self, Encoding};
use crate::feed::Fill;
use crate::io::Use;
use crate::{Engine, EngineError, Executor, SeqTokens, TokenModel};

/// Which logits a call wants.
pub(crate) enum Want<'a> {
    Nothing,
    Last,
    Each(&'a mut dyn FnMut(usize, &[f32])),
}

/// Where a sequence stood before a call.
#[derive(Clone, Copy)]
pub(crate) struct Mark {
    seq: SeqId,
    /// Tokens of the history.
    pub(crate) len: usize,
    /// Position of the next one.
    pub(crate) pos: usize,
}

impl<X: Executor> Engine<X> {
    /// Processes a whole dialog from nothing and answers the logits of its last token: the reference that cached
    /// generation is held against. Uses a graph without past (AR == CL) if one is wide enough, else replays by plan.
    ///
    /// # Errors
    ///
    /// As [`TokenModel::process`]; the state before the call is gone in any case.
    pub fn recompute(&mut self, tokens: &[TokenId]) -> Result<&[f32], EngineError> {
        self.reset()?;
        let fits = |spec: &&Variant| spec.is_full_context() && spec.ar().get() >= tokens.len();
        let limit = self.context_size();
        let whole = self.layout.variants.iter().find(fits).copied();
        let evicts = self.kv.variants().groups().iter().any(|g| g.evicts());
        match whole.filter(|_| !evicts && !tokens.is_empty() && tokens.len() <= limit) {
            None => self.process(tokens),
            Some(spec) => {
                self.check_tokens(tokens)?;
                let before = self.mark();
                self.books[0].extend(tokens, 0);
                let step = InferenceStep {
                    spec,
                    n_past: 0,
                    n_valid_kv: 0,
                    n_process: tokens.len(),
                    past_idx: MaskCol(0),
                    new_idx: MaskCol(0),
                };
                let last = tokens.len() - 1;
                let done = self.step(&step, 0, last..tokens.len(), None).and_then(|()| self.read_logits(&step, last));
                done.map_err(|e| self.repair(before, e))?;
                Ok(&self.logits)
            }
        }
    }

    pub(crate) fn mark(&self) -> Mark {
        self.mark_of(SeqId(0))
    }

    /// The cache knows the sequence.
    pub(crate) fn mark_of(&self, seq: SeqId) -> Mark {
        Mark { seq, len: self.books[usize::from(seq.0)].len(), pos: self.kv.next_pos(seq) }
    }

    pub(crate) fn check_tokens(&self, tokens: &[TokenId]) -> Result<(), EngineError> {
        match tokens.iter().position(|t| t.0 as usize >= self.vocab_size) {
            None => Ok(()),
            Some(place) => {
                Err(EngineError::TokenOutOfRange { token: tokens[place], place, vocab_size: self.vocab_size })
            }
        }
    }

    pub(crate) fn run(&mut self, tokens: &[TokenId], want: Want<'_>) -> Result<(), EngineError> {
        self.check_tokens(tokens)?;
        let before = self.mark();
        let mut strategy = std::mem::take(&mut self.strategy);
        let planned = self.kv.plan_into(tokens.len(), &self.policy, &mut strategy);
        // Processing the history again needs all of it, each token at its own position.
        let again = strategy.first() < before.pos;
        if let Err(PlanError::GenieGivesUp { n_past, n_piece }) = planned {
            self.strategy = strategy;
            return Err(self.give_up(tokens, n_past, n_piece));
        }
        if planned == Err(PlanError::Shared) {
            self.strategy = strategy;
            return self.run_beside(tokens, want, before);
        }
        if planned.is_err() || (again && !self.books[0].is_plain()) {
            self.strategy = strategy;
            return Err(match planned {
                Err(e) => e.into(),
                Ok(()) => EngineError::NotReproducible { n_past: before.pos, n_known: before.len },
            });
        }
        let first = if again { strategy.first() } else { before.len };
        self.books[0].extend(tokens, before.pos);
        let done = self.run_steps(strategy.steps(), first, before.len, want);
        self.strategy = strategy;
        done.map_err(|e| self.repair(before, e))
    }

    /// The dialog's tokens as batches: the plan for one alone does not keep the rows of the sequences beside it.
    fn run_beside(&mut self, tokens: &[TokenId], want: Want<'_>, before: Mark) -> Result<(), EngineError> {
        let seq = SeqId(0);
        match want {
            Want::Nothing | Want::Last => self.process_batch(&[SeqTokens { seq, tokens }], &mut |_, _| ()),
            Want::Each(each) => {
                for (place, token) in tokens.iter().enumerate() {
                    let tokens = std::slice::from_ref(token);
                    let done = self.process_batch(&[SeqTokens { seq, tokens }], &mut |_, logits| each(place, logits));
                    done.map_err(|e| if place > 0 { self.repair(before, e) } else { e })?;
                }
                Ok(())
            }
        }
    }

    /// `first`: place in the history of the steps' first token; `before`: tokens of the history that are not new.
    pub(crate) fn run_steps(
        &mut self,
        steps: &[InferenceStep],
        first: usize,
        before: usize,
        mut want: Want<'_>,
    ) -> Result<(), EngineError> {
        let mut at = first;
        for (i, step) in steps.iter().enumerate() {
            let last = i + 1 == steps.len();
            let wanted = match want {
                Want::Last if last => step.n_process - 1..step.n_process,
                Want::Nothing | Want::Last => 0..0,
                Want::Each(_) => before.saturating_sub(at).min(step.n_process)..step.n_process,
            };
            self.step(step, at, wanted.clone(), steps.get(i + 1).map(|next| next.spec))?;
            match &mut want {
                Want::Nothing => {}
                Want::Last if last => self.read_logits(step, step.n_process - 1)?,
                Want::Last => {}
                Want::Each(each) => {
                    for row in wanted {
                        self.read_logits(step, row)?;
                        each(at + row - before, &self.logits);
                    }
                }
            }
            at += step.n_process;
        }
        Ok(())
    }

    /// One step of the dialog through all splits; its tokens are `history[at..at + n_process]`, and `rows` of them are
    /// asked for logits.
    pub(crate) fn step(
        &mut self,
        step: &InferenceStep,
        at: usize,
        rows: Range<usize>,
        next: Option<Variant>,
    ) -> Result<(), EngineError> {
        tracing::trace!(%step, ?rows, "step");
        let variant = self.variant_of(step);
        self.kv.prepare(step)?;
        let tokens = &self.books[0].tokens()[at..at + step.n_process];
        let fill = Fill { variant, step, tokens, positions: None, plain: self.is_plain() };
        self.feeds.fill(&mut self.io, &self.kv, &fill)?;
        self.head.ask(rows);
        for s in 0..self.layout.splits.len() {
            if !self.execute(s, variant)? {
                continue;
            }
            match next.filter(|next| *next != step.spec) {
                Some(next) => self.kv.commit_and_set(SplitIdx(s), step, next)?,
                None => self.kv.commit(SplitIdx(s), step)?,
            }
        }
        self.kv.advance(step)?;
        Ok(())
    }

    pub(crate) fn variant_of(&self, step: &InferenceStep) -> usize {
        self.layout.variant_index(step.spec).expect("the planner picks from the layout's variants")
    }

    /// Runs a split's graph, unless it is an LM head that is asked for nothing; says whether there are rows to keep.
    pub(crate) fn execute(&mut self, s: usize, variant: usize) -> Result<bool, EngineError> {
        let split = &self.layout.splits[s];
        if split.kind == GraphKind::LmHead && !self.head.is_asked() {
            return Ok(false);
        }
        let mut g = split.by_variant[variant];
        if s + 1 == self.layout.splits.len() {
            // The real Genie runs the head of the step's own width.
            let narrow = !matches!(self.policy, Policy::Genie);
            g = self.head.choose(g, narrow, &mut self.io);
        }
        let mut guard = self.kv.split(SplitIdx(s))?;
        let ran = self.executor.execute(s, g, &mut self.io.bind(s, g, guard.views()));
        ran.map_err(|source| EngineError::Execute { graph: split.graphs[g].info.name.clone(), source })?;
        self.log.push(self.log_base[s] + g);
        Ok(!split.kv.is_empty())
    }

    /// Turns a row of the last step's logits, one that was asked for, into numbers.
    pub(crate) fn read_logits(&mut self, step: &InferenceStep, row: usize) -> Result<(), EngineError> {
        self.read_logits_at(row, step.n_past + row)
    }

    /// The same for a row whose token stands elsewhere.
    pub(crate) fn read_logits_at(&mut self, row: usize, position: usize) -> Result<(), EngineError> {
        let last = self.layout.splits.len() - 1;
        let (g, row) = self.head.place_of(row);
        let buffer = self.io.logits(last, g).expect("the layout's last split has logits");
        let Use::Logits(dtype, quant) = &self.io.uses()[buffer] else { unreachable!("asked for logits") };
        let encoding = Encoding::of(*dtype, quant).expect("checked when the engine was made");
        let row_bytes = self.layout.vocab_size * encoding.size_bytes();
        encoding.decode(&self.io.buffers[buffer].bytes()[row * row_bytes..(row + 1) * row_bytes], &mut self.logits);
        match codes::not_finite(&self.logits) {
            None => Ok(()),
            Some((index, what)) => Err(EngineError::NotFinite {
                graph: self.layout.splits[last].graphs[g].info.name.clone(),
                what,
                index,
                position,
            }),
        }
    }

    /// After a failure: back to where the call began, by processing the dialog again if its rows cannot be had cheaper.
    pub(crate) fn repair(&mut self, before: Mark, e: EngineError) -> EngineError {
        let back = self.take_back(before).and_then(|()| Ok(self.kv.settle()?));
        // Rows of nonsense must not even stay hidden: a share of zero times NaN is NaN.
        let scrub = matches!(e, EngineError::NotFinite { .. });
        if back.is_ok() && (!scrub || self.scrub().is_ok()) { e } else { self.rebuild(e) }
    }

    /// Brings a sequence back to where it stood, and abandons a step under way.
    pub(crate) fn take_back(&mut self, before: Mark) -> Result<(), EngineError> {
        let Mark { seq, len, pos } = before;
        let book = &mut self.books[usize::from(seq.0)];
        book.truncate(len);
        self.kv.cancel()?;
        if self.kv.next_pos(seq) == pos {
            return Ok(());
        }
        // Rows that a shift has moved ahead cannot be told from those that came after.
        if book.entries().any(|(_, at)| at >= pos) {
            return Err(EngineError::NotReproducible { n_past: pos, n_known: len });
        }
        if seq == SeqId(0) {
            self.kv.rewind(pos)?;
        } else {
            self.kv.remove(seq, pos..usize::MAX)?;
        }
        Ok(())
    }

    pub(crate) fn has_moved(&self, before: &Mark) -> bool {
        self.kv.next_pos(before.seq) != before.pos
    }

    /// Fills everything but the valid rows with the pad value.
    pub(crate) fn scrub(&mut self) -> Result<(), KvError> {
        let rows = self.kv.export()?;
        self.kv.clear()?;
        self.kv.import(&rows)
    }

    /// The last resort after a failure: the dialog is processed again, or all is cleared and the error says so.
    pub(crate) fn rebuild(&mut self, e: EngineError) -> EngineError {
        match self.replay() {
            Ok(()) => e,
            Err(lost) => {
                tracing::warn!(%lost, "the cache could not be put back");
                match self.reset() {
                    Ok(()) => EngineError::StateLost { source: Box::new(e) },
                    Err(worse) => worse,
                }
            }
        }
    }

    /// Fills a cleared cache from the history.
    fn replay(&mut self) -> Result<(), EngineError> {
        let (n, n_past) = (self.books[0].len(), self.kv.next_pos(SeqId(0)));
        if !self.books[0].is_plain() || self.books[1..].iter().any(|book| !book.is_empty()) {
            return Err(EngineError::NotReproducible { n_past, n_known: n });
        }
        self.kv.clear()?;
        self.plain = true;
        let strategy = self.kv.plan(n, &self.policy)?;
        self.run_steps(strategy.steps(), strategy.first(), n, Want::Nothing)
    }
}
