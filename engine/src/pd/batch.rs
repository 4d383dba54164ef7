//! New tokens of any number of sequences through steps of two: prompts in the order given, decode rows in turn.

use genie_types::TokenId;
use kvmanager::{Overflow, PlanError, SeqId};

use super::plan::{PairStep, next_step};
use super::runner::{PairRunner, no_sequence};
use crate::{EngineError, Executor, SeqTokens};

/// Where one input stands.
#[derive(Clone, Copy, Debug)]
struct Pending<'a> {
    seq: SeqId,
    rest: &'a [TokenId],
    /// It came as one token: a decode row, not a prompt.
    decodes: bool,
}

impl<X: Executor> PairRunner<X> {
    /// Processes new tokens of some sequences and hands out the logits of each one's last. Every step carries a chunk of the first unfinished
    /// prompt and one of the decode rows that are left. After a failure every sequence is as before; a stop keeps what was
    /// processed.
    pub(super) fn run_batch(
        &mut self,
        inputs: &[SeqTokens<'_>],
        each: &mut dyn FnMut(usize, &[f32]),
    ) -> Result<(), EngineError> {
        self.check_inputs(inputs)?;
        let mut marks = std::mem::take(&mut self.marks);
        marks.clear();
        marks.extend(inputs.iter().map(|input| (input.seq, self.n_past_of(input.seq))));
        let done = self.run_pending(inputs, each);
        if let Err(error) = &done
            && !matches!(error, EngineError::Stopped { .. })
        {
            marks.iter().for_each(|&(seq, n)| self.cut(seq, n));
        }
        self.marks = marks;
        done
    }

    fn run_pending(
        &mut self,
        inputs: &[SeqTokens<'_>],
        each: &mut dyn FnMut(usize, &[f32]),
    ) -> Result<(), EngineError> {
        let n_new: usize = inputs.iter().map(|input| input.tokens.len()).sum();
        let mut pending: [Option<Pending<'_>>; SeqId::COUNT] = [None; SeqId::COUNT];
        for (to, input) in pending.iter_mut().zip(inputs) {
            *to = Some(Pending { seq: input.seq, rest: input.tokens, decodes: input.tokens.len() == 1 });
        }
        let first = |pending: &[Option<Pending<'_>>], decodes: bool| {
            pending.iter().position(|p| p.is_some_and(|p| p.decodes == decodes && !p.rest.is_empty()))
        };
        let mut n_processed = 0;
        loop {
            let (prompt, decode) = (first(&pending, false), first(&pending, true));
            let of = |i: Option<usize>| i.and_then(|i| pending[i]);
            let (p, d) = (of(prompt), of(decode));
            let step = next_step(
                &self.limits,
                p.map(|p| (self.n_past_of(p.seq), p.rest.len())),
                d.map(|d| self.n_past_of(d.seq)),
            );
            let Some(step) = step else { return Ok(()) };
            if self.stop.is_set() {
                return Err(EngineError::Stopped { n_processed, n_new });
            }
            self.run_step(step, p.map(|p| (p.seq, p.rest)), d.map(|d| (d.seq, d.rest)))?;
            let (n_prompt, n_decode, as_decode) = match step {
                PairStep::Fused { chunk, decodes, .. } => (chunk, usize::from(decodes), false),
                PairStep::Decode => (0, 1, false),
                PairStep::PromptToken => (1, 0, true),
            };
            n_processed += n_prompt + n_decode;
            for (i, n, row) in [(decode, n_decode, true), (prompt, n_prompt, as_decode)] {
                let Some((i, Some(input))) = i.map(|i| (i, &mut pending[i])) else { continue };
                input.rest = &input.rest[n..];
                if n > 0 && input.rest.is_empty() {
                    self.last_was_decode = row;
                    each(i, self.logits(row));
                }
            }
        }
    }

    /// Everything that can be refused is, before anything runs.
    pub(super) fn check_inputs(&self, inputs: &[SeqTokens<'_>]) -> Result<(), EngineError> {
        for (i, input) in inputs.iter().enumerate() {
            let SeqTokens { seq, tokens } = *input;
            if usize::from(seq.0) >= SeqId::COUNT {
                return Err(no_sequence(seq));
            }
            if let Some(first) = inputs[..i].iter().position(|other| other.seq == seq) {
                return Err(PlanError::SequenceTwice { seq, first, second: i }.into());
            }
            if tokens.is_empty() {
                return Err(EngineError::NoTokens);
            }
            self.check_tokens(tokens)?;
            let (n_past, n_new, limit) = (self.n_past_of(seq), tokens.len(), self.context_size);
            if n_past + n_new > limit {
                return Err(Overflow::ContextExceeded { n_past, n_new, limit }.into());
            }
        }
        Ok(())
    }

    pub(super) fn check_tokens(&self, tokens: &[TokenId]) -> Result<(), EngineError> {
        let vocab_size = self.vocab_size;
        match tokens.iter().position(|t| t.0 as usize >= vocab_size) {
            None => Ok(()),
            Some(place) => Err(EngineError::TokenOutOfRange { token: tokens[place], place, vocab_size }),
        }
    }
}
