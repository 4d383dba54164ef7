//! A request that is not over, and what the planner sees of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use dialog::RequestReply;
use engine::{SeqId, Snapshot};
use kvmanager::plan::serve::{Phase, ServeRequest};

use crate::draft::Draft;
use crate::{RequestId, RequestTimes};

/// *Invariant*: with a sequence, the first `n_done` tokens of the history are its rows.
#[derive(Debug)]
pub(crate) struct Active {
    pub(crate) id: RequestId,
    pub(crate) reply: RequestReply,
    pub(crate) priority: i32,
    pub(crate) arrived_us: u64,
    pub(crate) phase: Phase,
    pub(crate) seq: Option<SeqId>,
    pub(crate) n_done: usize,
    /// In which order it started.
    pub(crate) started: u64,
    pub(crate) last_us: u64,
    /// Rows that were there when it began.
    pub(crate) n_shared: usize,
    /// Of them those of the store of prefixes.
    pub(crate) n_stored: usize,
    pub(crate) n_parked: usize,
    came: Instant,
    pub(crate) started_at: Option<Instant>,
    pub(crate) first_token_at: Option<Instant>,
    /// Its rows while it is parked.
    pub(crate) snapshot: Option<Box<Snapshot>>,
    /// For its next step.
    pub(crate) draft: Draft,
    /// Set from any thread to end it.
    pub(crate) cancel: Arc<AtomicBool>,
}

impl Active {
    /// One that came at `arrived_us` of the caller's clock, which is `came`.
    pub(crate) fn new(id: RequestId, reply: RequestReply, priority: i32, (arrived_us, came): (u64, Instant)) -> Self {
        Self {
            id,
            reply,
            priority,
            arrived_us,
            phase: Phase::Waiting,
            seq: None,
            n_done: 0,
            started: 0,
            last_us: arrived_us,
            n_shared: 0,
            n_stored: 0,
            n_parked: 0,
            came,
            started_at: None,
            first_token_at: None,
            snapshot: None,
            draft: Draft::None,
            cancel: Arc::default(),
        }
    }

    /// Whether it has a sequence.
    pub(crate) fn runs(&self) -> bool {
        self.seq.is_some()
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancel.load(Ordering::Relaxed)
    }

    /// Tokens of the history that the model has not processed.
    pub(crate) fn n_todo(&self) -> usize {
        self.reply.history().len().saturating_sub(self.n_done)
    }

    /// Tokens of the reply so far.
    pub(crate) fn n_generated(&self) -> usize {
        self.reply.history().len() - self.reply.n_prompt()
    }

    /// Where its time went, if it ends now.
    pub(crate) fn times(&self) -> RequestTimes {
        let now = Instant::now();
        let started = self.started_at.unwrap_or(now);
        let first = self.first_token_at.unwrap_or(now);
        RequestTimes {
            waited: started.saturating_duration_since(self.came),
            prefill: first - started,
            decode: now - first,
        }
    }

    /// Brings the phase to what is to be done: more than the last token is a prompt.
    pub(crate) fn settle(&mut self) {
        if self.runs() {
            let is_reply = self.n_todo() == 1 && self.reply.history().len() > self.reply.n_prompt();
            self.phase = if is_reply { Phase::Decode } else { Phase::Prefill };
        }
    }

    /// For the planner. `own_rows`: rows that only this one has; `reserve`: rows set aside for a reply; `most`: rows there can be.
    pub(crate) fn view(&self, own_rows: usize, reserve: usize, most: usize) -> ServeRequest {
        let todo = self.n_todo();
        ServeRequest {
            id: self.id.0,
            phase: self.phase,
            arrived_us: self.arrived_us,
            priority: self.priority,
            todo,
            draft: self.draft.n_rows(),
            draft_is_whole: self.draft.is_tree(),
            own_rows,
            rows_ahead: todo.saturating_add(self.reply.n_wanted().min(reserve)).min(most),
            started: self.started,
            last_us: self.last_us,
        }
    }
}
