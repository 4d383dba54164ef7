//! The input of a query, which the model processes before the reply begins.
//!
//! *Invariant*: of an input that is stopped, what was processed stays, and query, history and sampler know no more of it.

use engine::EngineError;
use genie_types::TokenId;

use super::codes::StopReason;
use super::decoding::{Decoding, Drawn, ReplyWriter};
use super::error::DialogError;

/// Where the model has processed an input, or the rest of one behind what was processed while room was made.
struct Processed {
    n_past: usize,
    /// How many of its first tokens are of the reply before.
    n_generated: usize,
}

impl Decoding<'_> {
    /// Processes the input of the query, and draws and delivers the first token of the reply, or one that is known.
    pub(super) fn start(&mut self) -> Result<Option<StopReason>, DialogError> {
        let (input, mut drawn) = (self.take_input(), Drawn::default());
        let processed = match self.reply.query.plan.replay.take() {
            Some(token) => {
                let n_past = self.model.n_past();
                drawn.deliver(&mut self.reply, n_past, token);
                Processed { n_past, n_generated: 0 }
            }
            None => match self.process_for_logits(&input, |reply, place, logits| drawn.draw(reply, place, logits))? {
                Ok(processed) => processed,
                Err(stop) => return Ok(Some(stop)),
            },
        };
        self.reply.began_to_reply();
        self.apply(processed.n_past, processed.n_generated, drawn)
    }

    /// Processes the input of the query and returns the logits of its last token, or why it was stopped.
    pub(crate) fn process_input(&mut self) -> Result<Result<Vec<f32>, StopReason>, DialogError> {
        let mut input = self.take_input();
        if input.is_empty() && self.reply.query.plan.replay.take().is_some() {
            // The reply was known, but its logits are not.
            let last = self.model.n_past().saturating_sub(1);
            input.extend(self.model.transcript().tokens().get(last));
            self.rewind(last)?;
            self.relearn_history();
        }
        let mut last = Vec::new();
        match self.process_for_logits(&input, |_, _, logits| last = logits.to_vec())? {
            Ok(processed) => self.mark_last_drawn(&processed),
            Err(stop) => return Ok(Err(stop)),
        }
        self.reply.began_to_reply();
        Ok(Ok(last))
    }

    /// Processes the input of a query that wants no reply. Returns why it was stopped, if it was.
    pub(super) fn prefill_input(&mut self) -> Result<Option<StopReason>, DialogError> {
        let input = self.take_input();
        if input.is_empty() {
            return Ok(None);
        }
        let processed = self.process_by(&input, |this, rest| {
            match this.prefix_cache {
                Some(cache) => this.reply.query.kpis.n_restored = cache.prefill(this.model, rest)?.n_restored,
                None => this.model.prefill(rest)?,
            }
            Ok(())
        })?;
        Ok(processed.map(|processed| self.mark_last_drawn(&processed)).err())
    }

    /// The input of the plan, shown to the sampler. The last token of the reply before was observed when it was drawn.
    fn take_input(&mut self) -> Vec<TokenId> {
        let input = std::mem::take(&mut self.reply.query.plan.input);
        self.reply.sampler.observe(&input[usize::from(self.unprocessed.is_some()).min(input.len())..]);
        input
    }

    /// `take` gets the place behind the input, and the logits of its last token.
    fn process_for_logits(
        &mut self,
        input: &[TokenId],
        take: impl FnOnce(&mut ReplyWriter<'_>, usize, &[f32]),
    ) -> Result<Result<Processed, StopReason>, DialogError> {
        self.process_by(input, |this, rest| {
            let n_past = this.model.n_past();
            let place = n_past + rest.len();
            match this.prefix_cache.filter(|_| n_past == 0) {
                Some(cache) => {
                    let logits = cache.process(this.model, rest)?;
                    this.reply.query.kpis.n_restored = logits.n_restored;
                    take(&mut this.reply, place, &logits.value);
                }
                None => take(&mut this.reply, place, this.model.process(rest)?),
            }
            Ok(())
        })
    }

    /// Makes room for the input; `run` has the model process what is left of it then.
    fn process_by(
        &mut self,
        input: &[TokenId],
        run: impl FnOnce(&mut Self, &[TokenId]) -> Result<(), EngineError>,
    ) -> Result<Result<Processed, StopReason>, DialogError> {
        let n_done = match self.model.make_room(input) {
            Err(EngineError::Stopped { n_processed, .. }) => {
                return Ok(Err(self.stopped_in_input(n_processed, self.model.n_past())));
            }
            done => done?,
        };
        let n_past = self.model.n_past();
        match run(self, &input[n_done..]) {
            Err(EngineError::Stopped { .. }) => return Ok(Err(self.stopped_in_input(n_done, n_past))),
            done => done?,
        }
        Ok(Ok(self.processed_from(n_done, n_past)))
    }

    /// As [`Processed`], behind `n_done` tokens that were processed while room was made.
    fn processed_from(&self, n_done: usize, n_past: usize) -> Processed {
        Processed { n_past, n_generated: usize::from(self.unprocessed.is_some() && n_done == 0) }
    }

    /// The last token of the reply before is processed: it is the first of the input.
    fn mark_last_drawn(&mut self, processed: &Processed) {
        *self.unprocessed = None;
        (0..processed.n_generated).for_each(|index| self.model.mark_generated(processed.n_past + index));
    }

    /// The model was stopped within the input, of which `n_done` tokens were processed while room was made and the rest began at
    /// `n_past`: what it has processed stays.
    fn stopped_in_input(&mut self, n_done: usize, n_past: usize) -> StopReason {
        let n_processed = n_done + self.model.n_past().saturating_sub(n_past);
        self.reply.query.keep_input(n_processed);
        if n_processed > 0 {
            self.mark_last_drawn(&self.processed_from(n_done, n_past));
        }
        self.relearn_history();
        self.aborted()
    }
}
