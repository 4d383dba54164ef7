//! Requests in, ticks, events out. Single-threaded; the caller owns the clock.

mod drafts;
mod run;
mod sequences;
mod slots;
mod trees;
mod watching;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use dialog::{RequestBase, RequestReply, StopReason};
use engine::{EngineError, RowBudget, SeqId, SequenceModel, TokenModel};
use kvmanager::plan::serve::{Phase, ServeRules, ServeState, StepTimes, Tick, TickRows, plan_tick};
use session_store::{ForecastPrefix, PrefixStore};

use crate::active::Active;
use crate::arrivals::Arrivals;
use crate::draft_model::DraftModel;
use crate::prefix::StoredPrefixes;
use crate::seen_times::SeenTimes;
use crate::tree_model::TreeModel;
use crate::watch::Watchers;
use crate::{Event, Finished, Request, RequestId, ServeError, ServeOptions};

/// What a tick did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TickReport {
    /// The rows of the step; none if nothing ran.
    pub rows: Vec<TickRows>,
    /// The width that was planned with.
    pub width: usize,
    /// Without a step: when to ask again, if nothing else happens.
    pub wait_until_us: Option<u64>,
}

/// What there is now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests that have rows.
    pub running: usize,
    /// Requests that have none.
    pub waiting: usize,
    /// Sequences of requests that are over, whose rows are kept.
    pub idle: usize,
    /// Rows of the cache.
    pub rows: RowBudget,
    /// Steps that ran.
    pub n_steps: usize,
    /// Requests that were parked.
    pub n_parked: usize,
}

/// Many requests on one model.
pub struct Scheduler {
    pub(crate) model: Box<dyn TokenModel>,
    base: RequestBase,
    options: ServeOptions,
    rules: ServeRules,
    pub(crate) times: StepTimes,
    /// Several sequences can be in one step.
    together: bool,
    /// At most two: a piece of a prompt and a token of a reply.
    pairs: bool,
    /// Sequences that requests can have.
    most_sequences: usize,
    pub(crate) watchers: Watchers,
    /// Kept while there are watchers.
    arrivals: Arrivals,
    pub(crate) active: Vec<Active>,
    /// Sequences of requests that are over, the one used longest ago first.
    idle: VecDeque<SeqId>,
    stored: Option<StoredPrefixes>,
    draft_model: Option<DraftModel>,
    tree_model: Option<TreeModel>,
    seen_times: SeenTimes,
    /// Rows beside those of the requests, which forecasts see.
    prefix: Option<ForecastPrefix>,
    events: Vec<Event>,
    next_id: u64,
    n_started: u64,
    had_prefill: bool,
    /// Steps since another had its turn, where one sequence is in the cache at a time.
    turn: usize,
    n_steps: usize,
    n_parked: usize,
}

impl std::fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scheduler")
            .field("options", &self.options)
            .field("n_active", &self.active.len())
            .finish_non_exhaustive()
    }
}

impl Scheduler {
    /// Takes a model over; what it holds is forgotten.
    ///
    /// # Errors
    /// [`ServeError::NoSequences`], [`ServeError::NoWidths`], [`ServeError::Setting`]; the model cannot be reset.
    pub fn new(mut model: Box<dyn TokenModel>, base: RequestBase, options: ServeOptions) -> Result<Self, ServeError> {
        model.reset()?;
        let sequences = model.sequences().ok_or(ServeError::NoSequences)?;
        let (together, most_sequences) = (sequences.runs_together(), sequences.most_sequences());
        let pairs = sequences.runs_in_pairs();
        let times = options.times(&sequences.widths())?;
        let rules = fitted(options.rules(together)?, most_sequences, pairs);
        Ok(Self {
            model,
            base,
            options,
            rules,
            times,
            together,
            pairs,
            most_sequences,
            watchers: Watchers::default(),
            arrivals: Arrivals::default(),
            active: Vec::new(),
            idle: VecDeque::new(),
            stored: None,
            draft_model: None,
            tree_model: None,
            seen_times: SeenTimes::default(),
            prefix: None,
            events: Vec::new(),
            next_id: 1,
            n_started: 0,
            had_prefill: false,
            turn: 0,
            n_steps: 0,
            n_parked: 0,
        })
    }

    /// Looks for prompts' beginnings in a store of prefixes too, and keeps prompts of at least `min_tokens` there.
    pub fn set_prefix_store(&mut self, store: PrefixStore, min_tokens: usize) {
        self.stored = Some(StoredPrefixes::new(store, min_tokens));
    }

    /// Why the store of prefixes is no longer asked.
    pub fn prefix_fault(&self) -> Option<&str> {
        self.stored.as_ref()?.fault()
    }

    /// Takes other options; sequences of requests that are over are forgotten, and counts begin again.
    ///
    /// # Errors
    /// [`ServeError::Busy`], [`ServeError::Setting`], [`ServeError::NoWidths`]; the model cannot be reset.
    pub fn set_options(&mut self, options: ServeOptions) -> Result<(), ServeError> {
        self.refuse_while_busy()?;
        self.rules = fitted(options.rules(self.together)?, self.most_sequences, self.pairs);
        self.times = options.times(&sequences(&mut *self.model)?.widths())?;
        self.options = options;
        self.seen_times = SeenTimes::default();
        self.model.reset()?;
        self.put_prefix()?;
        self.idle.clear();
        self.events.clear();
        (self.n_steps, self.n_parked, self.turn, self.had_prefill) = (0, 0, 0, false);
        Ok(())
    }

    fn refuse_while_busy(&self) -> Result<(), ServeError> {
        match self.active.len() {
            0 => Ok(()),
            n_requests => Err(ServeError::Busy { n_requests }),
        }
    }

    /// What it may do.
    pub fn options(&self) -> &ServeOptions {
        &self.options
    }

    /// Makes requests of something else from now on.
    pub fn set_base(&mut self, base: RequestBase) {
        self.base = base;
    }

    /// Entries of the model's vocabulary.
    pub fn vocab_size(&self) -> usize {
        self.model.vocab_size()
    }

    /// What requests are made of.
    pub fn base(&self) -> &RequestBase {
        &self.base
    }

    /// The times that widths are chosen by, with a full and with an empty cache.
    pub fn step_times(&self) -> &StepTimes {
        &self.times
    }

    /// Whether several sequences are rows of one step; where not, one is in the cache at a time.
    pub fn runs_together(&self) -> bool {
        self.together
    }

    /// Requests that run at once: as many as the options say, or as the model has sequences for.
    pub fn most_running(&self) -> usize {
        self.rules.most_running
    }

    /// Most tokens of a prompt and its reply.
    pub fn limit(&self) -> usize {
        self.base.context_size().min(self.model.context_size().saturating_sub(self.n_rows_of_prefix()))
    }

    /// No request is there.
    pub fn is_idle(&self) -> bool {
        self.active.is_empty()
    }

    /// What there is now.
    pub fn counts(&mut self) -> Counts {
        let running = self.n_running();
        Counts {
            running,
            waiting: self.active.len() - running,
            idle: self.idle.len(),
            rows: self.rows(),
            n_steps: self.n_steps,
            n_parked: self.n_parked,
        }
    }

    /// What has happened since it was asked last, in order.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// The model, without requests.
    pub fn into_model(self) -> Box<dyn TokenModel> {
        self.model
    }

    /// Takes a request, or refuses it before anything runs. It came at `now_us` of the caller's clock.
    ///
    /// # Errors
    /// [`ServeError::QueueFull`], [`ServeError::PromptTooLong`]; settings that a request cannot have.
    pub fn submit(&mut self, request: Request, now_us: u64) -> Result<RequestId, ServeError> {
        let (found, limit) = (request.prompt.len(), self.limit().min(self.rows().total));
        if found > limit {
            return Err(ServeError::PromptTooLong { found, limit });
        }
        let n_vocab = self.model.vocab_size();
        let reply = self.base.request(request.prompt, request.settings, n_vocab)?;
        self.submit_reply(reply, request.priority, now_us)
    }

    /// As [`submit`](Self::submit), where the request's reply was made before, by [`RequestBase::request`]: compiling a grammar
    /// takes time that the thread of the model need not spend.
    ///
    /// # Errors
    /// [`ServeError::QueueFull`], [`ServeError::PromptTooLong`].
    pub fn submit_reply(&mut self, reply: RequestReply, priority: i32, now_us: u64) -> Result<RequestId, ServeError> {
        self.submit_from((now_us, Instant::now()), reply, priority)
    }

    /// As [`submit_reply`](Self::submit_reply), of one that came a while ago: by the caller's clock, and by the system's.
    pub(crate) fn submit_from(
        &mut self,
        came: (u64, Instant),
        reply: RequestReply,
        priority: i32,
    ) -> Result<RequestId, ServeError> {
        let rows = self.rows();
        let (found, limit) = (reply.n_prompt(), self.limit().min(rows.total));
        if found > limit {
            return Err(ServeError::PromptTooLong { found, limit });
        }
        // Those that have a slot with the next step do not wait.
        let waiting = self.active.len() - self.n_running();
        let free_slots = self.free_slots();
        if waiting >= self.options.max_waiting.saturating_add(free_slots) {
            let needed_rows = found.saturating_add(reply.n_wanted().min(self.options.reserve)).min(rows.total);
            let promised: usize =
                self.active.iter().map(|request| request.view(0, self.options.reserve, rows.total).rows_ahead).sum();
            let free_rows = (rows.free() + self.idle_rows()).saturating_sub(promised);
            let missing_rows = needed_rows.saturating_sub(free_rows);
            return Err(ServeError::QueueFull {
                waiting: waiting - free_slots,
                most: self.options.max_waiting,
                needed_rows,
                free_rows,
                missing_rows,
            });
        }
        let mut reply = reply;
        if self.draft_model.is_some() {
            reply.take_drafts();
        }
        if let Some(model) = &self.tree_model {
            reply.take_trees(model.most_gained());
        }
        let id = RequestId(self.next_id);
        self.next_id += 1;
        if self.watchers.is_empty() {
            self.arrivals.forget();
        } else {
            self.arrivals.add(id, reply.history(), came.0);
        }
        self.active.push(Active::new(id, reply, priority, came));
        Ok(id)
    }

    /// Forgets a request that has not run, as if it had not come.
    pub(crate) fn take_back(&mut self, id: RequestId) {
        self.active.retain(|request| request.id != id || request.runs());
        self.arrivals.take_back(id);
    }

    /// Ends a request before the next step.
    pub fn cancel(&mut self, id: RequestId) {
        if let Some(flag) = self.cancel_flag(id) {
            flag.store(true, Ordering::Relaxed);
        }
    }

    /// What ends a request from any thread.
    pub fn cancel_flag(&self, id: RequestId) -> Option<Arc<AtomicBool>> {
        self.active.iter().find(|request| request.id == id).map(|request| Arc::clone(&request.cancel))
    }

    /// Plans one step and runs it.
    ///
    /// # Errors
    /// [`EngineError::Stopped`] if the model's stop flag was set: all requests are as they were. Everything else ends the requests
    /// that it concerns, with an event.
    pub fn tick(&mut self, now_us: u64) -> Result<TickReport, ServeError> {
        self.seen_times.ticks(now_us);
        self.end_what_is_over();
        if let Err(error) = self.put_prefix() {
            tracing::warn!(%error, "the forecast prefix cannot be put back: what is forecast without it does not hold");
        }
        self.give_turns(now_us);
        self.make_drafts();
        loop {
            let times = self.times_now();
            let tick = self.plan(now_us, &times);
            if !tick.park.is_empty() {
                tick.park.iter().for_each(|&id| self.park(id));
                continue;
            }
            tick.start.iter().for_each(|&id| self.start(id, now_us));
            if !tick.full.is_empty() {
                tick.full.iter().for_each(|&id| self.end_by_id(id, StopReason::ContextLimit));
                continue;
            }
            if tick.rows.is_empty() {
                return Ok(TickReport { wait_until_us: tick.wait_until_us, ..TickReport::default() });
            }
            let step = self.begin_watch(&tick, &times);
            let rows = self.run(&tick.rows, now_us)?;
            self.see_step(&rows, now_us);
            self.end_watch(step, &rows, now_us);
            return Ok(TickReport { rows, width: tick.width, wait_until_us: None });
        }
    }

    /// The times of steps with contexts as long as the longest that runs: none of their rows sees more.
    fn times_now(&self) -> StepTimes {
        let longest = self.active.iter().filter(|request| request.runs()).map(|request| request.n_done).max();
        self.times.at(longest.unwrap_or(0) as f64 / self.limit().max(1) as f64)
    }

    fn plan(&mut self, now_us: u64, times: &StepTimes) -> Tick {
        let rows = self.rows();
        let idle_rows = self.idle_rows();
        let own: Vec<usize> =
            self.active.iter().map(|request| request.seq.map_or(0, |seq| own_rows(&mut *self.model, &[seq]))).collect();
        let reserve = self.options.reserve;
        let may_begin = self.may_begin();
        let views: Vec<_> = (self.active.iter().zip(own))
            .filter(|(request, _)| may_begin(request))
            .map(|(request, own)| request.view(own, reserve, rows.total))
            .collect();
        let state = ServeState {
            now_us,
            requests: &views,
            // Where rows are evicted there is always one more.
            free_rows: if self.together { rows.free() + idle_rows } else { rows.total },
            free_slots: self.free_sequences(),
            had_prefill: self.had_prefill,
        };
        plan_tick(&state, &self.rules, times)
    }

    fn n_running(&self) -> usize {
        self.active.iter().filter(|request| request.runs()).count()
    }

    /// Sequences that can be in the cache at once.
    fn n_sequences(&self) -> usize {
        if self.together { self.most_sequences } else { 1 }
    }

    /// Sequences that no request has which runs.
    fn free_sequences(&self) -> usize {
        self.n_sequences().saturating_sub(self.n_running())
    }

    /// Requests that can begin to run now, if there are rows.
    fn free_slots(&self) -> usize {
        self.free_sequences().min(self.rules.most_running.saturating_sub(self.n_running()))
    }

    fn end_what_is_over(&mut self) {
        let limit = self.limit();
        let over = |request: &Active| match () {
            () if request.is_cancelled() => Some(StopReason::Aborted),
            () if request.reply.n_wanted() == 0 && request.reply.stop().is_none() => Some(StopReason::MaxTokens),
            () if request.n_done >= limit && request.n_todo() > 0 => Some(StopReason::ContextLimit),
            () => None,
        };
        for at in (0..self.active.len()).rev() {
            if let Some(stop) = over(&self.active[at]) {
                self.end(at, stop);
            }
        }
    }

    /// Says of a request whether it has begun or may. Where one sequence is in the cache at a time, no more have turns than there are slots: each
    /// that has begun keeps a snapshot of its rows.
    fn may_begin(&self) -> impl Fn(&Active) -> bool + use<> {
        let has_begun = |request: &Active| request.runs() || request.n_parked > 0;
        let n_begun = self.active.iter().filter(|request| has_begun(request)).count();
        let has_room = self.together || n_begun < self.options.max_slots;
        move |request| has_room || has_begun(request)
    }

    /// Where one sequence is in the cache at a time, another has its turn after some steps.
    fn give_turns(&mut self, now_us: u64) {
        let Some(most) = self.options.turn.filter(|_| !self.together) else { return };
        if self.turn < most {
            return;
        }
        let Some((id, priority)) =
            self.active.iter().find(|request| request.runs()).map(|request| (request.id.0, request.priority))
        else {
            return;
        };
        // One that would start after it again, as its priority is lower, has not waited long enough yet.
        let ageing = self.rules.ageing_us;
        let may_begin = self.may_begin();
        let waits = |request: &Active| {
            !request.runs() && may_begin(request) && request.view(0, 0, 0).rank(now_us, ageing) >= i64::from(priority)
        };
        if !self.active.iter().any(waits) {
            return;
        }
        self.turn = 0;
        self.park(id);
        self.n_started += 1;
        let started = self.n_started;
        if let Some(request) = self.active.iter_mut().find(|request| request.id.0 == id) {
            // As if it came now: behind those of its priority that wait.
            (request.started, request.phase, request.arrived_us) = (started, Phase::Waiting, now_us.saturating_add(1));
        }
    }

    fn end_by_id(&mut self, id: u64, stop: StopReason) {
        if let Some(at) = self.active.iter().position(|request| request.id.0 == id) {
            self.end(at, stop);
        }
    }

    /// A request is over; its rows are kept while they are not needed.
    fn end(&mut self, at: usize, stop: StopReason) {
        let mut request = self.active.remove(at);
        let ended = request.reply.end(stop);
        self.leave(request.seq, request.n_done);
        match ended {
            Ok(()) => {
                self.piece_of(&mut request);
                let (times, n_prompt) = (request.times(), request.reply.n_prompt());
                let Active { id, reply, n_shared, n_parked, .. } = request;
                let reply = reply.finish();
                self.events.push(Event::Done(Box::new(Finished { id, reply, n_prompt, n_shared, n_parked, times })));
            }
            Err(error) => self.events.push(Event::Failed { id: request.id, error: error.into() }),
        }
    }

    fn fail(&mut self, at: usize, error: ServeError) {
        let request = self.active.remove(at);
        if let Some(seq) = request.seq {
            self.forget(seq);
        }
        self.events.push(Event::Failed { id: request.id, error });
    }

    fn rows(&mut self) -> RowBudget {
        let of_prefix = self.n_rows_of_prefix();
        let RowBudget { total, used } = sequences(&mut *self.model).map_or(RowBudget::default(), |model| model.rows());
        RowBudget { total: total.saturating_sub(of_prefix), used: used.saturating_sub(of_prefix) }
    }

    /// Rows that forgetting all idle sequences would free.
    fn idle_rows(&mut self) -> usize {
        own_rows(&mut *self.model, self.idle.make_contiguous())
    }

    fn piece_of(&mut self, request: &mut Active) {
        if let Some(piece) = request.reply.piece() {
            self.events.push(Event::Piece { id: request.id, piece });
        }
    }
}

/// The rules as far as the model can follow them.
fn fitted(mut rules: ServeRules, most_sequences: usize, pairs: bool) -> ServeRules {
    rules.most_running = rules.most_running.min(most_sequences);
    if pairs {
        (rules.replies_a_step, rules.prompts_a_step, rules.row_for_reply) = (1, 1, true);
    }
    rules
}

fn sequences(model: &mut dyn TokenModel) -> Result<&mut dyn SequenceModel, EngineError> {
    let unsupported = || EngineError::Unsupported { what: "several sequences with this model".into(), hint: "" };
    model.sequences().ok_or_else(unsupported)
}

fn own_rows(model: &mut dyn TokenModel, seqs: &[SeqId]) -> usize {
    model.sequences().map_or(0, |model| model.own_rows(seqs))
}
