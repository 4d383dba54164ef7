//! From the async world to `serving` and back: requests handed in, their events received, cancelled when the receiver goes.
//!
//! *Threads*: handing in waits for the step that runs, so it is done on a blocking thread; each request has one more that carries
//! its events over. *Invariants*: once [`Jobs`] is dropped, its requests end before the next step; each request ends with
//! [`JobEvent::Done`], [`JobEvent::Failed`] or an error of [`Jobs::next`].

use std::sync::Arc;
use std::time::{Duration, Instant};

use open_genie::serving::{Event, Finished, ReplyPiece, Request, RequestHandle, RequestTimes, ServeError};
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;

use crate::error::ApiError;
use crate::metrics::{self, Metrics};
use crate::served_model::ServedModel;
use crate::state::State;

/// Events that may wait for a slow reader, before they wait in `serving`'s channel.
const EVENT_BUFFER: usize = 32;

/// Requests whose replies are the choices of one answer.
pub(crate) struct Jobs {
    events: mpsc::Receiver<(usize, JobEvent)>,
    requests: Vec<CancelOnDrop>,
    pub(crate) times: Vec<Times>,
    deadline: tokio::time::Instant,
    limit: Duration,
    metrics: Arc<Metrics>,
    /// Requests that are not over.
    n_open: usize,
    /// It is not unloaded while they run.
    _model: Arc<ServedModel>,
}

/// What happens to a request that a client may want to know.
#[derive(Debug)]
pub(crate) enum JobEvent {
    /// The first `n_cached` tokens of its prompt need not be processed.
    Started { n_cached: usize },
    /// A piece of its reply.
    Piece(ReplyPiece),
    /// It is over.
    Done(Box<Finished>),
    /// It is over without a reply.
    Failed(ServeError),
}

impl JobEvent {
    fn of(event: Event) -> Option<Self> {
        Some(match event {
            Event::Started { n_shared, .. } => Self::Started { n_cached: n_shared },
            Event::Piece { piece, .. } => Self::Piece(piece),
            Event::Done(finished) => Self::Done(finished),
            Event::Failed { error, .. } => Self::Failed(error),
            _ => return None,
        })
    }
}

/// When what happened to one request.
///
/// *Trap*: events of one step arrive together, behind it, so the distance between two of them is not the time between what they
/// report; `spent` is, once the request is over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) submitted: Instant,
    pub(crate) started: Option<Instant>,
    pub(crate) first_token: Option<Instant>,
    pub(crate) last_token: Option<Instant>,
    pub(crate) n_cached: usize,
    /// As measured beside the model; known once it is over.
    pub(crate) spent: Option<RequestTimes>,
}

struct CancelOnDrop(Arc<RequestHandle>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

impl Drop for Jobs {
    fn drop(&mut self) {
        metrics::add(&self.metrics.cancelled, self.n_open);
    }
}

impl Jobs {
    /// Hands requests in; all of them or none.
    pub(crate) async fn submit(state: &State, requests: Vec<Request>) -> Result<Self, ApiError> {
        if state.shutdown.has_begun() {
            return Err(ApiError::ShuttingDown);
        }
        let (n, model) = (requests.len(), Arc::clone(&state.model));
        let n_prompt = requests.iter().map(|request| request.prompt.len()).sum();
        let hand_in = move || {
            let submitted = model.server().submit_all(requests);
            submitted.map(|handles| handles.into_iter().map(|handle| CancelOnDrop(Arc::new(handle))).collect())
        };
        let submitted = spawn_blocking(hand_in).await;
        let requests: Vec<CancelOnDrop> =
            submitted.map_err(|_| ApiError::Internal("a request could not be handed in".into()))??;
        metrics::add(&state.metrics.prompt_tokens, n_prompt);
        let (sender, events) = mpsc::channel(EVENT_BUFFER);
        for (index, request) in requests.iter().enumerate() {
            let (handle, sender) = (Arc::clone(&request.0), sender.clone());
            spawn_blocking(move || {
                // A receiver that is gone has cancelled the request.
                for event in handle.events().filter_map(JobEvent::of) {
                    if sender.blocking_send((index, event)).is_err() {
                        break;
                    }
                }
            });
        }
        let times = Times::new();
        let limit = state.options.reply_timeout;
        let deadline = state.options.reply_deadline();
        Ok(Self {
            events,
            requests,
            times: vec![times; n],
            deadline,
            limit,
            metrics: Arc::clone(&state.metrics),
            n_open: n,
            _model: Arc::clone(&state.model),
        })
    }

    /// What happens next, and to which one; `None` once all are over.
    ///
    /// # Errors
    /// The time is up; the model's thread has ended while requests were open.
    pub(crate) async fn next(&mut self) -> Result<Option<(usize, JobEvent)>, ApiError> {
        if self.n_open == 0 {
            return Ok(None);
        }
        let Ok(event) = tokio::time::timeout_at(self.deadline, self.events.recv()).await else {
            self.requests.clear();
            metrics::add(&self.metrics.failed, std::mem::take(&mut self.n_open));
            return Err(ApiError::Timeout(self.limit.as_secs()));
        };
        let Some((index, event)) = event else {
            metrics::add(&self.metrics.failed, std::mem::take(&mut self.n_open));
            return Err(ApiError::cut_off());
        };
        self.count(&event);
        if let Some(times) = self.times.get_mut(index) {
            times.saw(&event);
        }
        Ok(Some((index, event)))
    }

    fn count(&mut self, event: &JobEvent) {
        match event {
            JobEvent::Done(finished) => {
                self.n_open = self.n_open.saturating_sub(1);
                metrics::add(&self.metrics.finished, 1);
                metrics::add(&self.metrics.cached_tokens, finished.n_shared);
                metrics::add(&self.metrics.generated_tokens, finished.reply.kpis.n_drawn);
            }
            JobEvent::Failed(_) => {
                self.n_open = self.n_open.saturating_sub(1);
                metrics::add(&self.metrics.failed, 1);
            }
            JobEvent::Started { .. } | JobEvent::Piece(_) => {}
        }
    }
}

impl Times {
    pub(crate) fn new() -> Self {
        let submitted = Instant::now();
        Self { submitted, started: None, first_token: None, last_token: None, n_cached: 0, spent: None }
    }

    fn saw(&mut self, event: &JobEvent) {
        let now = Instant::now();
        match event {
            JobEvent::Started { n_cached } if self.started.is_none() => {
                (self.started, self.n_cached) = (Some(now), *n_cached);
            }
            JobEvent::Piece(_) => {
                self.first_token.get_or_insert(now);
                self.last_token = Some(now);
            }
            JobEvent::Done(finished) => self.spent = Some(finished.times),
            _ => {}
        }
    }
}
