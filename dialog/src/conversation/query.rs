//! A query that runs step by step.

use std::time::Instant;

use genie_types::TokenId;

use super::codes::{SentenceCode, StopReason};
use super::dialog::Dialog;
use super::error::DialogError;
use super::generation::Generation;
use super::query_plan::QueryPlan;
use super::reply::{Chunk, Reply};
use super::reply_text::{ReplyText, StopRules};
use super::reply_writer::{ReplyState, ReplyWriter};
use crate::kpi::QueryKpis;

/// A query under way. Nothing runs until [`step`](Self::step). A query that is dropped early leaves the dialog as after an
/// abort: what was delivered is part of the conversation.
#[derive(Debug)]
pub struct Query<'d> {
    dialog: &'d mut Dialog,
    code: SentenceCode,
    rules: StopRules,
    plan: QueryPlan,
    /// What the model is given, for the reply.
    input: Vec<TokenId>,
    state: ReplyState,
    started: bool,
    stop: Option<StopReason>,
}

impl<'d> Query<'d> {
    pub(super) fn new(
        dialog: &'d mut Dialog,
        new: &[TokenId],
        code: SentenceCode,
        rules: StopRules,
    ) -> Result<Self, DialogError> {
        let began = Instant::now();
        let plan = dialog.plan(new, code)?;
        let (n_past, n_new, limit) = (plan.keep.min(dialog.history.n_past()), plan.input.len(), dialog.limit());
        if n_past + n_new > limit {
            return Err(DialogError::ContextExceeded { n_past, n_new, limit });
        }
        dialog.control.take(); // a signal from before this query is stale
        let kpis = QueryKpis { n_prompt: n_new, ..QueryKpis::default() };
        let state = ReplyState::new(ReplyText::new(&dialog.tokenizer), kpis, began);
        let input = plan.input.clone();
        Ok(Self { dialog, code, rules, plan, input, state, started: false, stop: None })
    }

    /// Runs until at least one more token was delivered or the query is over; then and ever after returns why.
    ///
    /// # Errors
    /// See [`DialogError`]: the query is over, and history and cache are cut to what both hold.
    pub fn step(&mut self, callback: &mut dyn FnMut(Chunk<'_>)) -> Result<Option<StopReason>, DialogError> {
        if self.stop.is_none() {
            self.stop = self.run(callback).inspect_err(|_| self.stop = Some(StopReason::Aborted)).inspect_err(|_| ())?;
        }
        Ok(self.stop.clone())
    }

    /// Runs to the end.
    ///
    /// # Errors
    /// As [`step`](Self::step).
    pub fn finish(mut self, callback: &mut dyn FnMut(Chunk<'_>)) -> Result<Reply, DialogError> {
        let stop = loop {
            if let Some(stop) = self.step(callback)? {
                break stop;
            }
        };
        Ok(self.state.into_reply(stop, self.input))
    }

    /// The reply so far; complete once [`step`](Self::step) has returned a reason to stop.
    pub fn into_reply(self) -> Reply {
        self.state.into_reply(self.stop.unwrap_or(StopReason::Aborted), self.input)
    }
}
