//! The rows of a tick as a step of the model, and what becomes of a step that fails.

use std::time::Instant;

use dialog::StopReason;
use engine::EngineError;
use kvmanager::plan::serve::{Phase, TickRows};

use super::{Scheduler, sequences};
use crate::draft::Draft;
use crate::step::{self, Failed, StepRows};
use crate::{Event, RequestId, ServeError};

impl Scheduler {
    /// Runs the rows; where that fails, each request's alone, so that only those fail that must.
    pub(super) fn run(&mut self, planned: &[TickRows], now_us: u64) -> Result<Vec<TickRows>, ServeError> {
        let (mut ran, mut rows) = self.step_of(planned);
        if self.pairs {
            ran = self.fitting_one_execution(ran, &rows);
            (ran, rows) = self.step_of(&ran);
        }
        // A step begins with room for all its rows, empty ones too; with less it would be several narrow ones.
        let n_rows: usize = ran.iter().map(|rows| rows.n).sum();
        let width = self.times.width_for(n_rows).max(n_rows);
        while self.together && self.rows().free() < width && self.forget_idle() {}
        if rows.is_empty() {
            return Ok(ran);
        }
        self.had_prefill = ran.iter().any(|rows| rows.prefill);
        self.n_steps += 1;
        // Steps of prompts do not count: where rows are computed again, each turn comes to a token.
        self.turn += usize::from(!self.had_prefill);
        let mut failed: Vec<(RequestId, ServeError)> = Vec::new();
        let model = sequences(&mut *self.model)?;
        match step::run(model, &mut self.active, &mut rows) {
            Ok(()) => {
                // Drafts that did not fit had none.
                ran.iter_mut().zip(&rows).for_each(|(ran, row)| ran.n = row.n_rows());
                self.apply(rows, now_us, &mut failed);
            }
            Err(error @ EngineError::Stopped { .. }) => {
                self.follow_model();
                return Err(error.into());
            }
            Err(error) => {
                let places: Vec<usize> = rows.iter().map(|row| row.at).collect();
                self.follow_model();
                if let [only] = places.as_slice() {
                    if error.does_not_fit() && self.is_alone(*only) {
                        // No graph goes on behind what it has.
                        self.end(*only, StopReason::ContextLimit);
                    } else {
                        failed.push((self.active[*only].id, error.into()));
                    }
                } else {
                    tracing::warn!(%error, n_requests = places.len(), "a step failed: its requests run one by one");
                    self.run_one_by_one(&ran, now_us, &mut failed)?;
                }
            }
        }
        for (id, error) in failed {
            if let Some(at) = self.active.iter().position(|request| request.id == id) {
                self.fail(at, error);
            }
        }
        self.hand_out();
        Ok(ran)
    }

    /// A reply beside which there are no rows that could be given up.
    fn is_alone(&self, at: usize) -> bool {
        self.active[at].phase == Phase::Decode && self.n_running() == 1 && self.idle.is_empty()
    }

    /// The planned rows as far as their requests still want them.
    fn step_of(&self, planned: &[TickRows]) -> (Vec<TickRows>, Vec<StepRows>) {
        let wanted = |planned: &TickRows| {
            let at = self.active.iter().position(|request| request.id.0 == planned.id && request.runs())?;
            let request = &self.active[at];
            let most = if planned.prefill { request.n_todo() } else { request.n_todo() + request.draft.n_rows() };
            // What was restored or shared meanwhile need not be processed.
            let n = planned.n.min(most);
            let rows = || (TickRows { n, ..*planned }, StepRows::of(request, at, n, self.options.prefill_only));
            (n > 0).then(rows)
        };
        planned.iter().filter_map(wanted).unzip()
    }

    /// What one execution takes of a step of two: a prompt that does not fit beside a reply, as both are long, has every second tick.
    fn fitting_one_execution(&mut self, ran: Vec<TickRows>, rows: &[StepRows]) -> Vec<TickRows> {
        let Some(model) = self.model.sequences() else { return ran };
        let counts = step::n_of_first(model, &self.active, rows);
        let waits = ran.iter().zip(&counts).any(|(rows, n)| rows.prefill && *n == 0);
        if waits && !self.had_prefill {
            let prompts: Vec<TickRows> = ran.into_iter().filter(|rows| rows.prefill).collect();
            let (prompts, rows) = self.step_of(&prompts);
            return self.fitting_one_execution(prompts, &rows);
        }
        let fitting = ran.into_iter().zip(counts).map(|(rows, n)| TickRows { n, ..rows });
        fitting.filter(|rows| rows.n > 0).collect()
    }

    fn run_one_by_one(
        &mut self,
        ran: &[TickRows],
        now_us: u64,
        failed: &mut Vec<(RequestId, ServeError)>,
    ) -> Result<(), ServeError> {
        for rows in ran {
            let Some(at) = self.active.iter().position(|request| request.id.0 == rows.id) else { continue };
            self.active[at].draft = Draft::None;
            let n = rows.n.min(self.active[at].n_todo());
            if n == 0 || self.active[at].reply.stop().is_some() {
                continue;
            }
            let mut alone = [StepRows::of(&self.active[at], at, n, self.options.prefill_only)];
            let model = sequences(&mut *self.model)?;
            match step::run(model, &mut self.active, &mut alone) {
                Ok(()) => self.apply(alone.into(), now_us, failed),
                Err(error @ EngineError::Stopped { .. }) => {
                    self.follow_model();
                    return Err(error.into());
                }
                Err(error) => {
                    self.follow_model();
                    failed.push((self.active[at].id, error.into()));
                }
            }
        }
        Ok(())
    }

    fn apply(&mut self, rows: Vec<StepRows>, now_us: u64, failed: &mut Vec<(RequestId, ServeError)>) {
        let now = Instant::now();
        for row in rows {
            let request = &mut self.active[row.at];
            if request.n_generated() > 0 {
                request.first_token_at.get_or_insert(now);
            }
            let Some(model) = self.model.sequences() else { return };
            let had = request.reply.history().len();
            let was_prompt = request.n_done < request.reply.n_prompt();
            match row.apply(request, model) {
                Ok(()) => {
                    request.settle();
                    if request.reply.history().len() > had || request.phase == Phase::Decode {
                        request.last_us = now_us;
                    }
                    let prompt_done = was_prompt && request.n_done >= request.reply.n_prompt();
                    // One of which the store had all but the last token is there already.
                    let is_new = request.n_stored + 1 < request.reply.n_prompt();
                    if prompt_done
                        && is_new
                        && let (Some(stored), Some(seq)) = (&mut self.stored, request.seq)
                    {
                        stored.keep(model, seq, request.reply.n_prompt());
                    }
                }
                Err(Failed::Dialog(error)) => failed.push((request.id, error.into())),
                Err(Failed::Engine(error)) => failed.push((request.id, error.into())),
                Err(Failed::NoSequence) => {}
            }
        }
    }

    /// After a failure: requests stand where the model's sequences do. What is gone is processed again, and so is the last token of a
    /// request whose logits were not looked at.
    fn follow_model(&mut self) {
        for at in 0..self.active.len() {
            let Some(seq) = self.active[at].seq else { continue };
            let history = self.active[at].reply.history();
            let transcript = self.model.sequences().and_then(|model| model.transcript_of(seq));
            let (n_past, common) = transcript.map_or((0, 0), |transcript| {
                let same = transcript.tokens().iter().zip(history).take_while(|(own, token)| own == token);
                (transcript.len(), same.count())
            });
            let mut n_done = common.min(history.len().saturating_sub(1));
            if n_past > n_done
                && let Err(error) = self.cut(seq, n_done)
            {
                tracing::warn!(%error, "rows of a step that was left cannot be removed: the request begins again");
                self.forget(seq);
                n_done = 0;
            }
            let request = &mut self.active[at];
            request.n_done = n_done;
            request.draft = Draft::None;
            request.settle();
        }
        let Some(model) = self.model.sequences() else { return };
        self.idle.retain(|seq| model.transcript_of(*seq).is_some_and(|transcript| !transcript.is_empty()));
    }

    /// Gives out pieces, and ends what is over.
    fn hand_out(&mut self) {
        for at in (0..self.active.len()).rev() {
            let request = &mut self.active[at];
            let prefilled = self.options.prefill_only && request.runs() && request.n_todo() == 0;
            let stop = request.reply.stop().cloned().or(prefilled.then_some(StopReason::Prefilled));
            if let Some(stop) = stop {
                self.end(at, stop);
            } else if let Some(piece) = request.reply.piece() {
                self.events.push(Event::Piece { id: request.id, piece });
            }
        }
    }
}
