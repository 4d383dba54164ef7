//! Requests in, ticks, events out. Single-threaded; the caller owns the clock.

mod run;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dialog::{RequestBase, StopReason};
use engine::{EngineError, RowBudget, SeqId, SequenceModel, TokenModel};
use kvmanager::plan::serve::{Phase, ServeRules, ServeState, StepTimes, TickRows, plan_tick};
use session_store::PrefixStore;

use crate::active::Active;
use crate::prefix::{self, StoredPrefixes};
use crate::{Event, Finished, Parking, Request, RequestId, ServeError, ServeOptions};

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
    model: Box<dyn TokenModel>,
    base: RequestBase,
    options: ServeOptions,
    rules: ServeRules,
    times: StepTimes,
    /// Several sequences can be in one step.
    together: bool,
    active: Vec<Active>,
    /// Sequences of requests that are over, the one used longest ago first.
    idle: VecDeque<SeqId>,
    stored: Option<StoredPrefixes>,
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
        let together = sequences.runs_together();
        let times = step_times(&options, &sequences.widths())?;
        let rules = options.rules(together)?;
        Ok(Self {
            model,
            base,
            options,
            rules,
            times,
            together,
            active: Vec::new(),
            idle: VecDeque::new(),
            stored: None,
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
        if !self.active.is_empty() {
            return Err(ServeError::Busy { n_requests: self.active.len() });
        }
        self.rules = options.rules(self.together)?;
        self.times = step_times(&options, &sequences(&mut *self.model)?.widths())?;
        self.options = options;
        self.model.reset()?;
        self.idle.clear();
        self.events.clear();
        (self.n_steps, self.n_parked, self.turn, self.had_prefill) = (0, 0, 0, false);
        Ok(())
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

    /// The times that widths are chosen by.
    pub fn step_times(&self) -> &StepTimes {
        &self.times
    }

    /// Whether several sequences are rows of one step; where not, one is in the cache at a time.
    pub fn runs_together(&self) -> bool {
        self.together
    }

    /// Most tokens of a prompt and its reply.
    pub fn limit(&self) -> usize {
        self.base.context_size().min(self.model.context_size())
    }

    /// No request is there.
    pub fn is_idle(&self) -> bool {
        self.active.is_empty()
    }

    /// What there is now.
    pub fn counts(&mut self) -> Counts {
        let running = self.active.iter().filter(|request| request.runs()).count();
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
        let rows = self.rows();
        let (found, limit) = (request.prompt.len(), self.limit().min(rows.total));
        if found > limit {
            return Err(ServeError::PromptTooLong { found, limit });
        }
        let n_vocab = self.model.vocab_size();
        let reply = self.base.request(request.prompt, request.settings, n_vocab)?;
        let waiting = self.active.iter().filter(|request| !request.runs()).count();
        if waiting >= self.options.max_waiting {
            let needed_rows = (found + reply.n_wanted().min(self.options.reserve)).min(rows.total);
            let promised: usize =
                self.active.iter().map(|request| request.view(0, self.options.reserve, rows.total).rows_ahead).sum();
            let free_rows = (rows.free() + self.idle_rows()).saturating_sub(promised);
            let missing_rows = needed_rows.saturating_sub(free_rows);
            return Err(ServeError::QueueFull {
                waiting,
                most: self.options.max_waiting,
                needed_rows,
                free_rows,
                missing_rows,
            });
        }
        let id = RequestId(self.next_id);
        self.next_id += 1;
        self.active.push(Active::new(id, reply, request.priority, now_us));
        Ok(id)
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
        self.end_what_is_over();
        self.give_turns();
        self.make_drafts();
        loop {
            let tick = self.plan(now_us);
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
            let rows = self.run(&tick.rows, now_us)?;
            return Ok(TickReport { rows, width: tick.width, wait_until_us: None });
        }
    }

    fn plan(&mut self, now_us: u64) -> kvmanager::plan::serve::Tick {
        let rows = self.rows();
        let idle_rows = self.idle_rows();
        let own: Vec<usize> =
            self.active.iter().map(|request| request.seq.map_or(0, |seq| own_rows(&mut *self.model, seq))).collect();
        let reserve = self.options.reserve;
        let views: Vec<_> =
            self.active.iter().zip(own).map(|(request, own)| request.view(own, reserve, rows.total)).collect();
        let running = self.active.iter().filter(|request| request.runs()).count();
        let most = if self.together { SeqId::COUNT } else { 1 };
        let state = ServeState {
            now_us,
            requests: &views,
            // Where rows are evicted there is always one more.
            free_rows: if self.together { rows.free() + idle_rows } else { rows.total },
            free_slots: most.saturating_sub(running),
            had_prefill: self.had_prefill,
        };
        plan_tick(&state, &self.rules, &self.times)
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

    /// Where one sequence is in the cache at a time, another has its turn after some steps.
    fn give_turns(&mut self) {
        let Some(most) = self.options.turn.filter(|_| !self.together) else { return };
        let waits = self.active.iter().any(|request| !request.runs());
        if self.turn < most || !waits {
            return;
        }
        self.turn = 0;
        if let Some(id) = self.active.iter().find(|request| request.runs()).map(|request| request.id.0) {
            self.park(id);
            // Behind all that wait.
            self.n_started += 1;
            let started = self.n_started;
            if let Some(request) = self.active.iter_mut().find(|request| request.id.0 == id) {
                request.started = started;
                request.phase = Phase::Waiting;
                request.arrived_us = u64::MAX / 2 + started;
            }
        }
    }

    fn make_drafts(&mut self) {
        let (limit, widest) = (self.limit(), self.times.widest());
        for request in self.active.iter_mut().filter(|request| request.phase == Phase::Decode) {
            if request.draft.is_empty() {
                let most = limit.saturating_sub(request.n_done + 1).min(widest - 1);
                request.draft = request.reply.draft(most);
            }
        }
    }

    /// Gives a request a sequence, with the rows that are there already.
    fn start(&mut self, id: u64, now_us: u64) {
        let Some(at) = self.active.iter().position(|request| request.id.0 == id) else { return };
        let Some(seq) = self.free_sequence() else { return };
        let mut n_done = 0;
        if let Some(snapshot) = self.active[at].snapshot.take() {
            n_done = self.restore(seq, &snapshot);
        }
        if n_done == 0 {
            n_done = self.share(seq, at);
            self.active[at].n_shared = n_done;
            self.active[at].reply.restored(n_done);
        }
        let first = self.active[at].started == 0;
        if first {
            self.n_started += 1;
            self.active[at].started = self.n_started;
        }
        let request = &mut self.active[at];
        (request.seq, request.n_done, request.last_us) = (Some(seq), n_done, now_us);
        request.settle();
        self.turn = 0;
        self.events.push(Event::Started { id: request.id, n_shared: n_done });
    }

    /// Puts parked rows back; 0 if they cannot be, and everything is processed again.
    fn restore(&mut self, seq: SeqId, snapshot: &engine::Snapshot) -> usize {
        let n = snapshot.tokens().len();
        while self.rows().free() < n && self.forget_idle() {}
        let done = if self.together {
            sequences(&mut *self.model).and_then(|model| model.restore_sequence(seq, snapshot))
        } else {
            self.idle.clear();
            self.model.restore_snapshot(snapshot)
        };
        match done {
            Ok(()) => n,
            Err(error) => {
                tracing::warn!(%error, "parked rows cannot be put back: they are computed again");
                0
            }
        }
    }

    /// Lets a request begin with the rows of another sequence, or of the store; returns how many tokens it then has.
    fn share(&mut self, seq: SeqId, at: usize) -> usize {
        let prompt = self.active[at].reply.history().to_vec();
        if !self.together {
            return self.go_on_alone(&prompt);
        }
        let running = self.active.iter().filter_map(|request| request.seq);
        let candidates: Vec<SeqId> = self.idle.iter().copied().chain(running).filter(|other| *other != seq).collect();
        let Ok(model) = sequences(&mut *self.model) else { return 0 };
        let found =
            if self.options.share_prefixes { prefix::longest(model, candidates.into_iter(), &prompt) } else { None };
        let better_than = found.map_or(0, |(_, n)| n);
        if let Some(stored) = &mut self.stored {
            let n = stored.restore(model, seq, &prompt, better_than);
            if n > 0 {
                return n;
            }
        }
        let Some((src, n)) = found else { return 0 };
        match model.share(src, seq, 0..n) {
            Ok(()) => {
                // It was of use: others go first.
                if let Some(place) = self.idle.iter().position(|idle| *idle == src) {
                    self.idle.remove(place);
                    self.idle.push_back(src);
                }
                n
            }
            Err(error) => {
                tracing::debug!(%error, "a prefix cannot be shared");
                0
            }
        }
    }

    /// The only sequence there is: what it has in common with the prompt stays.
    fn go_on_alone(&mut self, prompt: &[genie_types::TokenId]) -> usize {
        self.idle.clear();
        let common = self.model.transcript().tokens().iter().zip(prompt).take_while(|(a, b)| a == b).count();
        let common = common.min(prompt.len().saturating_sub(1));
        let plain = self.model.transcript().is_plain() && self.options.share_prefixes;
        if plain && self.model.rewind(common).is_ok() {
            return common;
        }
        if let Err(error) = self.model.reset() {
            tracing::error!(%error, "the cache cannot be cleared");
        }
        0
    }

    /// A sequence that no request has; one of a request that is over is forgotten if there is none.
    fn free_sequence(&mut self) -> Option<SeqId> {
        if !self.together {
            return (!self.active.iter().any(Active::runs)).then_some(SeqId(0));
        }
        let find = |this: &Self| {
            let taken =
                |seq: &SeqId| this.idle.contains(seq) || this.active.iter().any(|request| request.seq == Some(*seq));
            (0..SeqId::COUNT).map(|n| SeqId(n as u8)).find(|seq| !taken(seq))
        };
        find(self).or_else(|| {
            self.forget_idle();
            find(self)
        })
    }

    fn park(&mut self, id: u64) {
        let Some(at) = self.active.iter().position(|request| request.id.0 == id) else { return };
        let Some(seq) = self.active[at].seq.take() else { return };
        if self.options.parking == Parking::Snapshot && self.active[at].n_done > 0 {
            let saved = match self.together {
                true => sequences(&mut *self.model).and_then(|model| model.snapshot_of(seq)),
                false => self.model.snapshot(),
            };
            match saved {
                Ok(snapshot) => self.active[at].snapshot = Some(Box::new(snapshot)),
                Err(error) => tracing::warn!(%error, "rows cannot be given out: they are computed again"),
            }
        }
        self.forget(seq);
        let request = &mut self.active[at];
        request.phase = Phase::Parked;
        request.n_parked += 1;
        request.n_done = 0;
        request.draft.clear();
        self.n_parked += 1;
        self.events.push(Event::Parked { id: request.id });
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
                let Active { id, reply, n_shared, n_parked, .. } = request;
                self.events.push(Event::Done(Box::new(Finished { id, reply: reply.finish(), n_shared, n_parked })));
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

    fn leave(&mut self, seq: Option<SeqId>, n_done: usize) {
        let Some(seq) = seq else { return };
        if !self.options.share_prefixes || n_done == 0 {
            return self.forget(seq);
        }
        // The reply's last token may be behind what is known.
        if self.together
            && let Ok(model) = sequences(&mut *self.model)
            && model.transcript_of(seq).is_some_and(|transcript| transcript.len() > n_done)
            && model.remove(seq, n_done..usize::MAX).is_err()
        {
            return self.forget(seq);
        }
        self.idle.push_back(seq);
    }

    fn forget(&mut self, seq: SeqId) {
        let done = match self.together {
            true => sequences(&mut *self.model).and_then(|model| model.remove(seq, 0..usize::MAX).map(drop)),
            false => self.model.reset(),
        };
        if let Err(error) = done {
            tracing::error!(%error, "the rows of a sequence cannot be freed");
        }
    }

    /// Gives up the rows of the sequence that was of use longest ago; `false` if there is none.
    fn forget_idle(&mut self) -> bool {
        let Some(seq) = self.idle.pop_front() else { return false };
        self.forget(seq);
        true
    }

    fn rows(&mut self) -> RowBudget {
        sequences(&mut *self.model).map_or(RowBudget::default(), |model| model.rows())
    }

    fn idle_rows(&mut self) -> usize {
        let Self { idle, model, .. } = self;
        idle.iter().map(|&seq| own_rows(&mut **model, seq)).sum()
    }

    fn piece_of(&mut self, request: &mut Active) {
        if let Some((tokens, text)) = request.reply.piece() {
            self.events.push(Event::Piece { id: request.id, tokens, text });
        }
    }
}

/// The measured times of the widths there are; assumed ones where none is known.
fn step_times(options: &ServeOptions, widths: &[usize]) -> Result<StepTimes, ServeError> {
    let known = options.step_times.as_ref().map(|times| times.all().iter().copied());
    let known = known.and_then(|times| StepTimes::new(times.filter(|time| widths.contains(&time.width))));
    known.or_else(|| StepTimes::assumed(widths.iter().copied())).ok_or(ServeError::NoWidths)
}

fn sequences(model: &mut dyn TokenModel) -> Result<&mut dyn SequenceModel, EngineError> {
    let unsupported = || EngineError::Unsupported { what: "several sequences with this model".into(), hint: "" };
    model.sequences().ok_or_else(unsupported)
}

fn own_rows(model: &mut dyn TokenModel, seq: SeqId) -> usize {
    model.sequences().map_or(0, |model| model.own_rows(seq))
}
