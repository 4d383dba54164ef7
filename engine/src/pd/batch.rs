//! New tokens of any number of sequences through steps of two: prompts in the order given, decode rows in turn.

use genie_types::TokenId;
use kvmanager::{LogitsRequest, Overflow, PlanError, SeqId};

use super::plan::{PairStep, next_step};
use super::runner::{PairRunner, no_sequence};
use crate::{EngineError, Executor, SeqRows, SeqTokens};

/// One input, or what is left of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending<'a> {
    pub(super) seq: SeqId,
    pub(super) rest: &'a [TokenId],
    /// A decode row, not a prompt.
    pub(super) decodes: bool,
}

impl<'a> From<&SeqTokens<'a>> for Pending<'a> {
    /// One token is a decode row.
    fn from(input: &SeqTokens<'a>) -> Self {
        Self { seq: input.seq, rest: input.tokens, decodes: input.tokens.len() == 1 }
    }
}

impl<'a> From<&SeqRows<'a>> for Pending<'a> {
    fn from(input: &SeqRows<'a>) -> Self {
        Self { seq: input.seq, rest: input.tokens, decodes: !input.prompt && input.tokens.len() == 1 }
    }
}

/// The first input with tokens left that is a prompt, or a decode row.
fn first_of(pending: &[Pending<'_>], decodes: bool) -> Option<usize> {
    pending.iter().position(|p| p.decodes == decodes && !p.rest.is_empty())
}

/// Tokens that a step takes of a prompt and of a decode row, in this order.
const fn tokens_of(step: PairStep) -> (usize, usize) {
    match step {
        PairStep::Fused { chunk, decodes, .. } => (chunk, decodes as usize),
        PairStep::Decode => (0, 1),
        PairStep::PromptToken => (1, 0),
    }
}

impl<X: Executor> PairRunner<X> {
    /// Processes new tokens of some sequences and hands out the logits of each one's last. Every step carries a chunk of the first unfinished
    /// prompt and one of the decode rows that are left. After a failure every sequence is as before; a stop keeps what was
    /// processed.
    pub(super) fn run_batch<'a, I>(
        &mut self,
        inputs: &'a [I],
        each: &mut dyn FnMut(usize, &[f32]),
    ) -> Result<(), EngineError>
    where
        Pending<'a>: From<&'a I>,
    {
        let mut pending = [const { Pending { seq: SeqId(0), rest: &[], decodes: false } }; SeqId::COUNT];
        pending.iter_mut().zip(inputs).for_each(|(to, input)| *to = Pending::from(input));
        let Some(pending) = pending.get_mut(..inputs.len()) else {
            let (expected, found) = ("one for each sequence at most", inputs.len().to_string());
            return Err(EngineError::Config { what: "the number of inputs of a step", expected, found });
        };
        self.check_inputs(pending)?;
        let mut marks = std::mem::take(&mut self.marks);
        marks.clear();
        marks.extend(pending.iter().map(|input| (input.seq, self.n_past_of(input.seq))));
        let done = self.run_pending(pending, each);
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
        pending: &mut [Pending<'_>],
        each: &mut dyn FnMut(usize, &[f32]),
    ) -> Result<(), EngineError> {
        let n_new: usize = pending.iter().map(|input| input.rest.len()).sum();
        let mut n_processed = 0;
        while let Some((step, prompt, decode)) = self.first_step(pending) {
            if self.stop.is_set() {
                return Err(EngineError::Stopped { n_processed, n_new });
            }
            let of = |at: Option<usize>| at.map(|at| (pending[at].seq, pending[at].rest));
            self.run_step(step, of(prompt), of(decode))?;
            let (n_prompt, n_decode) = tokens_of(step);
            n_processed += n_prompt + n_decode;
            let alone = step == PairStep::PromptToken;
            for (at, n, row) in [(decode, n_decode, true), (prompt, n_prompt, alone)] {
                let Some(at) = at.filter(|_| n > 0) else { continue };
                let input = &mut pending[at];
                input.rest = &input.rest[n..];
                if input.rest.is_empty() {
                    self.last_was_decode = row;
                    each(at, self.logits(row));
                }
            }
        }
        Ok(())
    }

    /// The next step for what is left, and the places of its prompt and its decode row.
    fn first_step(&self, pending: &[Pending<'_>]) -> Option<(PairStep, Option<usize>, Option<usize>)> {
        let (prompt, decode) = (first_of(pending, false), first_of(pending, true));
        let step = next_step(
            &self.limits,
            prompt.map(|at| (self.n_past_of(pending[at].seq), pending[at].rest.len())),
            decode.map(|at| self.n_past_of(pending[at].seq)),
        )?;
        Some((step, prompt, decode))
    }

    /// How many tokens of each input the first step takes. Rows of which all logits are wanted are steps of their own.
    pub(super) fn n_of_first_step(&self, inputs: &[SeqRows<'_>]) -> Vec<usize> {
        let mut pending: Vec<Pending<'_>> = inputs.iter().map(Pending::from).collect();
        for (pending, input) in pending.iter_mut().zip(inputs).filter(|(_, input)| input.wanted == LogitsRequest::Each)
        {
            pending.decodes = true;
            pending.rest = &input.tokens[..input.tokens.len().min(1)];
        }
        let mut counts = vec![0; inputs.len()];
        if let Some((step, prompt, decode)) = self.first_step(&pending) {
            let (n_prompt, n_decode) = tokens_of(step);
            prompt.into_iter().for_each(|at| counts[at] = n_prompt);
            decode.into_iter().for_each(|at| counts[at] = n_decode);
        }
        counts
    }

    /// Everything that can be refused is, before anything runs.
    pub(super) fn check_inputs(&self, inputs: &[Pending<'_>]) -> Result<(), EngineError> {
        for (i, &Pending { seq, rest: tokens, .. }) in inputs.iter().enumerate() {
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
