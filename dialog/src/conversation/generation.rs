//! A reply, step by step: what a query loops over, and what an iterator of tokens holds.

use std::time::Duration;

use super::codes::{SentenceCode, StopReason};
use super::dialog::Dialog;
use super::error::DialogError;
use super::query_state::QueryState;
use super::reply::{Chunk, Reply};

#[derive(Debug)]
enum Stage {
    Generating,
    /// Held-back text may be left to give out.
    Stopping(StopReason),
    /// The `END` chunk is left to give out.
    Closing(StopReason),
    Over(StopReason),
    Failed,
}

/// A reply in the making. Each [`step`](Self::step) generates the next piece; dropping it stops the reply there, as
/// [`Signal::Abort`](super::Signal) does.
#[derive(Debug)]
pub struct Generation<'d> {
    dialog: &'d mut Dialog,
    query: QueryState,
    stage: Stage,
}

impl<'d> Generation<'d> {
    pub(super) fn new(dialog: &'d mut Dialog, query: QueryState) -> Self {
        Self { dialog, query, stage: Stage::Generating }
    }

    /// A query that wants no reply and has been processed, or was stopped.
    pub(super) fn over(dialog: &'d mut Dialog, query: QueryState, stop: StopReason) -> Self {
        dialog.forget_unreached_grids();
        Self { dialog, query, stage: Stage::Over(stop) }
    }

    /// Generates until there is something to give out; `None` once the reply is over.
    ///
    /// # Errors
    /// The model, the sampler or the tokenizer refuses. The reply is over then, and the dialog has forgotten what it could
    /// not complete.
    pub fn step(&mut self) -> Result<Option<Chunk<'_>>, DialogError> {
        match self.advance() {
            Ok(Some(SentenceCode::End)) => Ok(Some(self.query.last_chunk())),
            Ok(Some(_)) => Ok(Some(self.query.chunk())),
            Ok(None) => Ok(None),
            Err(error) => {
                self.stage = Stage::Failed;
                self.finish_kind();
                self.dialog.abandon_query();
                Err(error)
            }
        }
    }

    /// Moves on to the next chunk; `END` for the last one, which is empty as a rule, anything else for one with content.
    fn advance(&mut self) -> Result<Option<SentenceCode>, DialogError> {
        loop {
            if !self.query.pending.is_empty() && !matches!(self.stage, Stage::Over(_) | Stage::Failed) {
                return Ok(Some(SentenceCode::Continue));
            }
            match &self.stage {
                // A step may have delivered several tokens.
                Stage::Generating | Stage::Stopping(_) if !self.query.ends.is_empty() => {
                    return Ok(Some(SentenceCode::Continue));
                }
                Stage::Generating => {
                    let (kind, mut decoding) = self.dialog.decoding(&mut self.query);
                    let stop = match decoding.interrupted() {
                        Some(stop) => Some(stop),
                        None => kind.step(&mut decoding)?,
                    };
                    if let Some(stop) = stop {
                        kind.finished(&mut decoding)?;
                        decoding.cut_late()?;
                        self.query.kpis.generation_time =
                            self.query.first_token.map_or(Duration::ZERO, |t| t.elapsed());
                        self.stage = Stage::Stopping(stop);
                    }
                    if self.query.has_chunk() {
                        return Ok(Some(SentenceCode::Continue));
                    }
                }
                Stage::Stopping(StopReason::Paused) => {
                    self.dialog.paused = self.query.before_last.take();
                    self.end(StopReason::Paused);
                }
                Stage::Stopping(stop) => {
                    self.query.end_text(stop)?;
                    self.stage = Stage::Closing(stop.clone());
                    if self.query.has_chunk() {
                        return Ok(Some(SentenceCode::Continue));
                    }
                }
                Stage::Closing(stop) => {
                    let stop = stop.clone();
                    if let Some(token) = self.query.last_delivered.take() {
                        self.query.tokens.push(token);
                        let text = self.dialog.tokenizer().id_to_token(token).unwrap_or_default();
                        self.query.text.push_str(&text);
                    }
                    self.end(stop);
                    return Ok(Some(SentenceCode::End));
                }
                Stage::Over(_) | Stage::Failed => return Ok(None),
            }
        }
    }

    /// The kind keeps and forgets what the end of a reply asks for.
    fn finish_kind(&mut self) {
        let (kind, mut decoding) = self.dialog.decoding(&mut self.query);
        if let Err(error) = kind.clean_up(&mut decoding) {
            tracing::error!(%error, "the sequences of a reply cannot be brought together");
        }
    }

    fn end(&mut self, stop: StopReason) {
        self.finish_kind();
        self.dialog.forget_unreached_grids();
        let kpis = &self.query.kpis;
        self.dialog.profile.queried(self.query.began, kpis);
        tracing::debug!(%stop, n_prompt = kpis.n_prompt, n_generated = kpis.n_generated, "query done");
        self.stage = Stage::Over(stop);
    }

    /// Why the reply is over; `None` while it is not, and after an error.
    pub fn stop(&self) -> Option<&StopReason> {
        match &self.stage {
            Stage::Over(stop) => Some(stop),
            _ => None,
        }
    }

    /// Leaves room for a next turn: this reply takes at most half of the tokens that the context holds beside the prompt, and
    /// at least one. Asked before the first step; returns the limit, unless a lower one is in force.
    pub fn keep_room(&mut self) -> Option<usize> {
        if self.dialog.model().shifts_context() {
            return None;
        }
        let taken = self.dialog.n_past() + self.query.plan.input.len();
        let half = self.dialog.limit().saturating_sub(taken).div_ceil(2).max(1);
        self.query.max_tokens = half;
        (half < self.dialog.max_num_tokens()).then_some(half)
    }

    /// Gives every chunk to the callback until the reply is over.
    ///
    /// # Errors
    /// Those of [`Self::step`].
    pub fn run(mut self, mut callback: impl FnMut(Chunk<'_>)) -> Result<Reply, DialogError> {
        while let Some(chunk) = self.step()? {
            callback(chunk);
        }
        Ok(self.finish())
    }

    /// The reply; one that is not over is stopped here.
    pub fn finish(mut self) -> Reply {
        self.stop_here();
        let stop = self.stop().cloned().unwrap_or(StopReason::Aborted);
        let query = &mut self.query;
        Reply {
            stop,
            tokens: std::mem::take(&mut query.tokens),
            logprobs: std::mem::take(&mut query.logprobs),
            text: std::mem::take(&mut query.text),
            input: std::mem::take(&mut query.input),
            streams: std::mem::take(&mut query.streams),
            messages: query.reply_text.messages().to_vec(),
            kpis: std::mem::take(&mut query.kpis),
        }
    }

    /// Ends a reply that nothing else has ended.
    fn stop_here(&mut self) {
        match &self.stage {
            Stage::Generating => {
                self.query.kpis.generation_time = self.query.first_token.map_or(Duration::ZERO, |t| t.elapsed());
                self.end(StopReason::Aborted);
            }
            Stage::Stopping(stop) | Stage::Closing(stop) => {
                let stop = stop.clone();
                self.end(stop);
            }
            Stage::Over(_) | Stage::Failed => {}
        }
    }
}

impl Drop for Generation<'_> {
    fn drop(&mut self) {
        self.stop_here();
    }
}
