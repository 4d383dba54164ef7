//! How long a step of each fused graph takes, for a scheduler that chooses how wide steps are.
//!
//! *Units*: microseconds. A step is a whole one: inputs, graph, new rows kept; the caches of both requests are as full as the graph allows, or empty.

use std::time::Instant;

use genie_types::TokenId;
use kvmanager::SeqId;

use super::plan::PairStep;
use super::runner::PairRunner;
use crate::calibrate::{ServingStep, timed};
use crate::{EngineError, Executor, TokenModel};

impl<X: Executor> PairRunner<X> {
    /// Runs a step of each width `reps` times, with full caches and with empty ones: a decode row alone, then each fused graph with a
    /// chunk and a decode row. All sequences are forgotten.
    ///
    /// # Errors
    /// A graph fails, or there is too little memory; [`EngineError::Stopped`].
    pub fn time_steps(&mut self, reps: usize) -> Result<Vec<ServingStep>, EngineError> {
        let mut steps = vec![(1, PairStep::Decode, [0, self.limits.limit() - 1])];
        for (graph, &total) in self.limits.totals.iter().enumerate() {
            let capacity = self.limits.capacity(total);
            let chunk = self.limits.prefill_len.min(total - 1).min(capacity);
            if chunk > 0 {
                let pasts = [capacity - chunk, capacity - 1];
                steps.push((total, PairStep::Fused { graph, chunk, decodes: true }, pasts));
            }
        }
        let mut times = Vec::with_capacity(steps.len());
        for (width, step, pasts) in steps {
            let us = timed(reps, || self.time_step(width, step, pasts))?;
            let us_empty = timed(reps, || self.time_step(width, step, [0, 0]))?;
            times.push(ServingStep { width, us, us_empty });
        }
        self.reset()?;
        Ok(times)
    }

    fn time_step(&mut self, width: usize, step: PairStep, pasts: [usize; 2]) -> Result<f64, EngineError> {
        if self.stop.is_set() {
            return Err(EngineError::Stopped { n_processed: 0, n_new: width });
        }
        let [prefill, decode] = [SeqId(0), SeqId(1)];
        self.fill(prefill, pasts[0], width)?;
        self.fill(decode, pasts[1], width)?;
        let chunk = vec![TokenId(0); if let PairStep::Fused { chunk, .. } = step { chunk } else { 0 }];
        let prompt = (!chunk.is_empty()).then_some((prefill, &chunk[..]));
        let began = Instant::now();
        self.run_step(step, prompt, Some((decode, &[TokenId(0)])))?;
        Ok(began.elapsed().as_secs_f64() * 1e6)
    }

    /// Takes the first `n` rows of a sequence's store as they are, in the form that the graph of `width` rows reads: moving them there
    /// is no part of a step among others of that width.
    fn fill(&mut self, seq: SeqId, n: usize, width: usize) -> Result<(), EngineError> {
        self.cut(seq, 0);
        if n == 0 {
            return Ok(());
        }
        self.give_store(seq)?;
        let sequence = &mut self.sequences[usize::from(seq.0)];
        let store = sequence.store.as_mut().expect("just given");
        store.set_past(self.graphs.layout.past_of(width))?;
        store.advance(n)?;
        sequence.transcript.extend(&vec![TokenId(0); n], 0);
        Ok(())
    }
}
