//! Graphs with a batch dimension: every step computes as many rows as the batch has, each with a cache of its own.
//!
//! All rows of a batch share slots: a step appends one block of them to every row's cache. Sequence `b` is row `b`. Inputs of different
//! lengths are padded on the left with id 0 to the longest; a padded slot is hidden from its row from then on, and positions count
//! the row's own tokens. A row without input is padded throughout. One dialog alone (sequence 0, nothing beside it) needs none of
//! this: the other rows are padding.
//!
//! *By libGenie's rules* (policy `genie`) the padding of a later input is not hidden: it is tokens of id 0, with positions. That is
//! what libGenie 1.21 was recorded to do; the first input's is hidden there too.
//!
//! *Invariant*: each row of `real` has a flag for every slot of the cache, and as many of them set as the sequence has tokens.

use genie_types::TokenId;
use kvmanager::{LogitsRequest, Plan, SeqId};

use crate::graphs::StepRun;
use crate::run::SeqTokens;
use crate::{Engine, EngineError, Executor, TokenModel};

/// The id that padding on the left has.
const PAD: TokenId = TokenId(0);

/// What the slots hold, row by row of the batch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lockstep {
    /// By row and slot: whether it is the row's own token.
    real: Vec<Vec<bool>>,
}

/// What one step is fed, row by row of the batch.
#[derive(Clone, Debug, Default)]
pub(crate) struct BatchStep {
    pub(crate) rows: Vec<BatchRow>,
}

/// One row of a batch in a step.
#[derive(Clone, Debug, Default)]
pub(crate) struct BatchRow {
    /// By column.
    pub(crate) tokens: Vec<TokenId>,
    /// By column; 0 for padding.
    pub(crate) positions: Vec<usize>,
    /// By slot, those of the columns included: what the row may see.
    pub(crate) real: Vec<bool>,
}

/// An input of a row, padded.
struct Padded {
    tokens: Vec<TokenId>,
    real: Vec<bool>,
}

impl Padded {
    fn new(tokens: &[TokenId], longest: usize, hides_padding: bool) -> Self {
        let n = longest - tokens.len();
        let padding = std::iter::repeat_n(PAD, n);
        let real = (0..longest).map(|i| i >= n || !(hides_padding || tokens.is_empty())).collect();
        Self { tokens: padding.chain(tokens.iter().copied()).collect(), real }
    }
}

impl<X: Executor> Engine<X> {
    /// Whether inputs are rows of a batch, rather than one dialog or sequences of one cache.
    pub(crate) fn is_lockstep(&self, inputs: &[SeqTokens<'_>]) -> bool {
        self.graphs.layout.batch > 1 && (self.lockstep.is_some() || inputs.iter().any(|input| input.seq != SeqId(0)))
    }

    /// Refuses what has no meaning where slots are those of several rows.
    pub(crate) fn check_no_batch(&self, what: &str) -> Result<(), EngineError> {
        if self.graphs.layout.batch == 1 {
            return Ok(());
        }
        let what = format!("{what} where graphs have a batch dimension");
        Err(EngineError::Unsupported { what, hint: "" })
    }

    /// Processes an input of each of some rows, and hands out the logits of each one's last token.
    pub(crate) fn run_lockstep(
        &mut self,
        inputs: &[SeqTokens<'_>],
        request: LogitsRequest,
        each: &mut dyn FnMut(usize, usize, &[f32]),
    ) -> Result<(), EngineError> {
        let batch = self.graphs.layout.batch;
        inputs.iter().try_for_each(|input| self.check_tokens(input.tokens))?;
        inputs.iter().try_for_each(|input| self.check_row(input.seq))?;
        if request == LogitsRequest::Each || self.kv.variants().groups().iter().any(|group| group.evicts()) {
            return Err(self.check_no_batch("drafts and long context").err().unwrap_or(EngineError::NoTokens));
        }
        let longest = inputs.iter().map(|input| input.tokens.len()).max().unwrap_or(0);
        if inputs.iter().any(|input| input.tokens.is_empty()) || longest == 0 {
            return Err(EngineError::NoTokens);
        }
        let n_slots = self.kv.next_pos(SeqId(0));
        let mut plan = Plan::default();
        self.kv.plan_into(&[(SeqId(0), longest)], &self.policy, request, &mut plan)?;
        if plan.is_reprocess() {
            return Err(self
                .check_no_batch("several prompts with graphs of AR == CL")
                .err()
                .unwrap_or(EngineError::NoTokens));
        }
        self.begin_lockstep(n_slots);
        let hides = n_slots == 0 || !self.as_genie();
        let padded: Vec<Padded> = (0..batch)
            .map(|row| {
                let own = inputs.iter().find(|input| usize::from(input.seq.0) == row);
                Padded::new(own.map_or(&[], |input| input.tokens), longest, hides)
            })
            .collect();
        let before: Vec<usize> = (0..batch).map(|row| self.sequences.of(SeqId(row as u8)).len()).collect();
        let done = self.run_padded(&plan, &padded, inputs, request, each);
        if let Err(EngineError::Stopped { .. }) | Ok(()) = done {
            return done;
        }
        // Rows of the steps before the failing one are given up.
        if let Some(lockstep) = &mut self.lockstep {
            lockstep.real.iter_mut().for_each(|real| real.truncate(n_slots));
        }
        for (row, n) in before.into_iter().enumerate() {
            self.sequences.of_mut(SeqId(row as u8)).truncate(n);
        }
        match self.kv.rewind(SeqId(0), n_slots) {
            Ok(()) => done,
            Err(_) => {
                self.reset()?;
                done.map_err(|error| EngineError::StateLost { source: Box::new(error) })
            }
        }
    }

    /// From here on sequences are rows; row 0 has what the dialog had.
    fn begin_lockstep(&mut self, n_slots: usize) {
        let batch = self.graphs.layout.batch;
        self.lockstep.get_or_insert_with(|| Lockstep { real: (0..batch).map(|row| vec![row == 0; n_slots]).collect() });
    }

    fn run_padded(
        &mut self,
        plan: &Plan,
        padded: &[Padded],
        inputs: &[SeqTokens<'_>],
        request: LogitsRequest,
        each: &mut dyn FnMut(usize, usize, &[f32]),
    ) -> Result<(), EngineError> {
        let n_new: usize = plan.steps().iter().map(|step| step.n_process()).sum();
        let mut first = 0;
        for (i, planned) in plan.steps().iter().enumerate() {
            if self.stop.is_set() {
                return Err(EngineError::Stopped { n_processed: first, n_new });
            }
            let columns = first..first + planned.n_process();
            let step = self.batch_step(padded, columns.clone());
            let is_last = i + 1 == plan.steps().len();
            let last_column = planned.n_process() - 1;
            let wanted = is_last && request == LogitsRequest::Last;
            let run = StepRun {
                planned,
                tokens: &step.rows[0].tokens,
                features: &[],
                next: plan.steps().get(i + 1).map(|next| next.variant),
                narrow_head: false,
                as_genie: self.as_genie(),
                tree: None,
                batch: Some(&step),
            };
            self.graphs.run_step(&mut self.kv, run, wanted.then_some(last_column).into_iter(), None)?;
            let real = self.lockstep.iter_mut().flat_map(|lockstep| &mut lockstep.real);
            for (row, (real, (fed, padded))) in real.zip(step.rows.iter().zip(padded)).enumerate() {
                let transcript = self.sequences.of_mut(SeqId(row as u8));
                let fed = fed.tokens.iter().zip(&fed.positions).zip(&padded.real[columns.clone()]);
                fed.filter(|(_, real)| **real).for_each(|((token, pos), _)| transcript.push(*token, *pos));
                real.extend_from_slice(&padded.real[columns.clone()]);
            }
            first = columns.end;
            if wanted {
                for (number, input) in inputs.iter().enumerate() {
                    let row = usize::from(input.seq.0);
                    let position = step.rows[row].positions[last_column];
                    self.graphs.read_logits(row * planned.ar() + last_column, position)?;
                    each(number, input.tokens.len() - 1, &self.graphs.logits);
                }
            }
        }
        Ok(())
    }

    /// The rows of a step over some columns of the padded inputs.
    fn batch_step(&self, padded: &[Padded], columns: std::ops::Range<usize>) -> BatchStep {
        let seen = self.lockstep.as_ref().map_or(&[][..], |lockstep| &lockstep.real);
        let rows = padded.iter().zip(seen).enumerate().map(|(row, (input, seen))| {
            let mut next = self.sequences.of(SeqId(row as u8)).len();
            let new = &input.real[columns.clone()];
            let mut position = |real: &bool| {
                let own = if *real { next } else { 0 };
                next += usize::from(*real);
                own
            };
            BatchRow {
                tokens: input.tokens[columns.clone()].to_vec(),
                positions: new.iter().map(&mut position).collect(),
                real: seen.iter().chain(new).copied().collect(),
            }
        });
        BatchStep { rows: rows.collect() }
    }

    /// Refuses a sequence that is no row of the batch.
    pub(crate) fn check_row(&self, seq: SeqId) -> Result<(), EngineError> {
        let batch = self.graphs.layout.batch;
        if usize::from(seq.0) < batch {
            return Ok(());
        }
        Err(EngineError::Unsupported { what: format!("sequence {} of a batch of {batch}", seq.0), hint: "" })
    }

    /// Forgets a row's tokens from position `first` on: its slots stay, hidden.
    pub(crate) fn cut_row(&mut self, seq: SeqId, first: usize) -> usize {
        let Some(lockstep) = &mut self.lockstep else { return 0 };
        let real = lockstep.real[usize::from(seq.0)].iter_mut().filter(|real| **real);
        real.skip(first).for_each(|real| *real = false);
        self.sequences.of_mut(seq).truncate(first);
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_are_padded_on_the_left() {
        let ids = |raw: &[u32]| raw.iter().copied().map(TokenId).collect::<Vec<_>>();
        let first = Padded::new(&ids(&[256, 9]), 4, true);
        assert_eq!((first.tokens, first.real), (ids(&[0, 0, 256, 9]), vec![false, false, true, true]));
        let later = Padded::new(&ids(&[9]), 3, false);
        assert_eq!((later.tokens, later.real), (ids(&[0, 0, 9]), vec![true; 3]));
        let none = Padded::new(&[], 2, false);
        assert_eq!((none.tokens, none.real), (ids(&[0, 0]), vec![false; 2]));
    }
}
