//! Steps that are more than the dialog's next tokens: several sequences at once, and drafts that are judged before they are kept.
//!
//! Sequences share the cache; the mask shows each its own rows (a block mask, from the cache's cells). A draft's rows stay
//! out of the cache until its judge has seen their logits.

use genie_types::{SplitIdx, TokenId};
use kvmanager::{BatchStep, BatchToken, SeqId, plan_batch};

use crate::feed::Fill;
use crate::run::Mark;
use crate::{Engine, EngineError, Executor};

/// New tokens of one sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeqTokens<'a> {
    /// The sequence.
    pub seq: SeqId,
    /// Its tokens, from its next position on.
    pub tokens: &'a [TokenId],
}

/// A step's tokens and their positions, by column.
struct Columns {
    tokens: Vec<TokenId>,
    at: Vec<BatchToken>,
    positions: Vec<usize>,
}

impl<X: Executor> Engine<X> {
    /// Processes new tokens of several sequences, prefill and decode mixed, in as few steps as the graphs' AR allows. Hands
    /// out the logits of each sequence's last token, by its place in `inputs`, in order.
    ///
    /// # Errors
    ///
    /// As [`process`](crate::TokenModel::process); [`EngineError::SequenceTwice`]. A batch that fails leaves every sequence
    /// as it was, unless the error is [`EngineError::StateLost`].
    pub fn process_batch(
        &mut self,
        inputs: &[SeqTokens<'_>],
        each: &mut dyn FnMut(usize, &[f32]),
    ) -> Result<(), EngineError> {
        for (second, input) in inputs.iter().enumerate() {
            self.check_tokens(input.tokens)?;
            if let Some(first) = inputs[..second].iter().position(|other| other.seq == input.seq) {
                return Err(EngineError::SequenceTwice { seq: input.seq, first, second });
            }
        }
        let steps = self.plan_batch(inputs)?;
        let before: Vec<Mark> = inputs.iter().map(|i| self.mark_of(i.seq)).collect();
        let mut taken = vec![0; inputs.len()];
        for step in &steps {
            if let Err(e) = self.batch_step(step, inputs, &mut taken, each) {
                return Err(self.undo_batch(&before, e));
            }
        }
        Ok(())
    }

    /// Processes a draft of a sequence in one step, shows its logits row by row to `judge`, and keeps the tokens that it
    /// answers `true` for. The sequence then goes on behind the last token kept; tokens kept behind a dropped one leave a gap.
    /// Returns how many were kept.
    ///
    /// # Errors
    ///
    /// [`EngineError::DraftTooLong`], and as [`process`](crate::TokenModel::process); nothing has changed then.
    pub fn process_selected(
        &mut self,
        draft: SeqTokens<'_>,
        judge: &mut dyn FnMut(&[&[f32]]) -> Vec<bool>,
    ) -> Result<usize, EngineError> {
        self.check_tokens(draft.tokens)?;
        let (widest, found) = (self.kv.variants().ar_max(), draft.tokens.len());
        if found == 0 || found > widest {
            return Err(EngineError::DraftTooLong { expected: widest, found });
        }
        let steps = self.plan_batch(&[draft])?;
        let [only] = steps.as_slice() else {
            return Err(EngineError::DraftTooLong { expected: steps.first().map_or(0, |s| s.step.n_process), found });
        };
        let before = [self.mark_of(draft.seq)];
        match self.judged_step(only, draft, judge) {
            Ok(n) => Ok(n),
            Err(e) => Err(self.undo_batch(&before, e)),
        }
    }

    fn plan_batch(&self, inputs: &[SeqTokens<'_>]) -> Result<Vec<BatchStep>, EngineError> {
        let known = |seq: SeqId| if usize::from(seq.0) < SeqId::COUNT { Ok(self.kv.next_pos(seq)) } else { Err(seq) };
        let sequences = inputs.iter().map(|i| Ok((known(i.seq)?, i.tokens.len()))).collect::<Result<Vec<_>, SeqId>>();
        let sequences = sequences.map_err(|seq| EngineError::Config {
            what: "sequence",
            expected: "a number from 0 to 63",
            found: seq.0.to_string(),
        })?;
        Ok(plan_batch(self.kv.state().n_valid_kv, &sequences, self.kv.variants(), &self.policy)?)
    }

    /// Columns of a step; `taken` says how many tokens of each input earlier steps took.
    fn columns(&self, step: &BatchStep, inputs: &[SeqTokens<'_>], taken: &[usize]) -> Columns {
        let mut columns = Columns { tokens: Vec::new(), at: Vec::new(), positions: Vec::new() };
        for span in &step.spans {
            let SeqTokens { seq, tokens } = inputs[span.index];
            let (from, first) = (taken[span.index], self.kv.next_pos(seq));
            columns.tokens.extend_from_slice(&tokens[from..from + span.n]);
            columns.at.extend((0..span.n).map(|i| BatchToken { seq, pos: first + i }));
            columns.positions.extend(first..first + span.n);
        }
        columns
    }

    fn prepare_columns(&mut self, step: &BatchStep, columns: &Columns) -> Result<usize, EngineError> {
        let variant = self.variant_of(&step.step);
        self.plain = false;
        self.kv.prepare_batch(step.step.spec, &columns.at)?;
        let fill = Fill {
            variant,
            step: &step.step,
            tokens: &columns.tokens,
            positions: Some(&columns.positions),
            plain: false,
        };
        self.feeds.fill(&mut self.io, &self.kv, &fill)?;
        Ok(variant)
    }

    fn batch_step(
        &mut self,
        step: &BatchStep,
        inputs: &[SeqTokens<'_>],
        taken: &mut [usize],
        each: &mut dyn FnMut(usize, &[f32]),
    ) -> Result<(), EngineError> {
        tracing::trace!(step = %step.step, n_sequences = step.spans.len(), "batch step");
        let ends = |taken: &[usize], index: usize, n: usize| taken[index] + n == inputs[index].tokens.len();
        let columns = self.columns(step, inputs, taken);
        let variant = self.prepare_columns(step, &columns)?;
        let lasts = step.spans.iter().scan(0, |column, span| {
            *column += span.n;
            Some((*column - 1, ends(taken, span.index, span.n)))
        });
        self.head.ask(lasts.filter(|(_, ends)| *ends).map(|(row, _)| row));
        for s in 0..self.layout.splits.len() {
            if self.execute(s, variant)? {
                self.kv.commit(SplitIdx(s), &step.step)?;
            }
        }
        self.kv.advance_by(columns.tokens.len())?;
        for (token, at) in columns.tokens.iter().zip(&columns.at) {
            self.touched(at.seq).push(*token, at.pos);
        }
        let mut column = 0;
        for span in &step.spans {
            column += span.n;
            if ends(taken, span.index, span.n) {
                self.read_logits_at(column - 1, columns.positions[column - 1])?;
                each(span.index, &self.logits);
            }
            taken[span.index] += span.n;
        }
        Ok(())
    }

    fn judged_step(
        &mut self,
        step: &BatchStep,
        draft: SeqTokens<'_>,
        judge: &mut dyn FnMut(&[&[f32]]) -> Vec<bool>,
    ) -> Result<usize, EngineError> {
        let columns = self.columns(step, &[draft], &[0]);
        let variant = self.prepare_columns(step, &columns)?;
        self.head.ask(0..columns.tokens.len());
        let mut with_rows = Vec::new();
        for s in 0..self.layout.splits.len() {
            if self.execute(s, variant)? {
                with_rows.push(SplitIdx(s));
            }
        }
        let mut rows = Vec::with_capacity(columns.tokens.len() * self.logits.len());
        for row in 0..columns.tokens.len() {
            self.read_logits_at(row, columns.positions[row])?;
            rows.extend_from_slice(&self.logits);
        }
        let rows: Vec<&[f32]> = rows.chunks_exact(self.logits.len()).collect();
        let mut selected = judge(&rows);
        selected.resize(columns.tokens.len(), false);
        let n_kept = selected.iter().filter(|kept| **kept).count();
        for split in with_rows {
            self.kv.commit_selected(split, &step.step, &selected)?;
        }
        self.kv.advance_by(n_kept)?;
        for ((token, at), _) in columns.tokens.iter().zip(&columns.at).zip(&selected).filter(|(_, kept)| **kept) {
            self.touched(at.seq).push(*token, at.pos);
        }
        Ok(n_kept)
    }

    /// After a failure: every sequence back to where it stood.
    fn undo_batch(&mut self, before: &[Mark], e: EngineError) -> EngineError {
        // A group that drops rows by itself may have dropped some for the tokens that are now taken back.
        let evicts = self.kv.variants().groups().iter().any(|g| g.evicts());
        let moved = before.iter().any(|mark| self.has_moved(mark));
        let back = before.iter().try_for_each(|mark| self.take_back(*mark)).and_then(|()| Ok(self.kv.settle()?));
        let scrub = matches!(e, EngineError::NotFinite { .. });
        if back.is_ok() && !(evicts && moved) && (!scrub || self.scrub().is_ok()) {
            return e;
        }
        self.rebuild(e)
    }
}
