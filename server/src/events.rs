//! `GET /engine/events` and `GET /engine/state`: what each step did, for the page and for whoever wants to look.
//!
//! Each listener has a queue of its own between the model's thread and its connection: when it is full, steps are left out and
//! counted. Without a listener nothing is made. The form of the objects is docs/engine-events.md's.

mod json;
mod record;

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::response::Response;
use open_genie::serving::TickWatch;
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::spawn_blocking;

use crate::error::ApiError;
use crate::extract::{QueryModel, QueryParams};
use crate::state::State;
use crate::stream::{self, ClientGone, EventSender};

pub(crate) use record::Recording;

/// Listeners at a time.
const MOST_LISTENERS: usize = 16;

/// Steps that wait for one listener before some are left out.
const QUEUE_LENGTH: usize = 256;

/// How often a listener that no step is made for looks whether its client is still there.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Places of listeners.
#[derive(Clone)]
pub(crate) struct Listeners(Arc<Semaphore>);

impl Default for Listeners {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MOST_LISTENERS)))
    }
}

/// What a listener wants beside the plain events.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(crate) struct EventsQuery {
    /// 1: the cells that each row of a step sees.
    #[serde(default)]
    mask: u8,
}

/// What there is now; the first object of each stream of events as well.
pub(crate) async fn state(QueryModel(state): QueryModel) -> Result<Json<Value>, ApiError> {
    now(&state).await.map(Json)
}

async fn now(state: &State) -> Result<Value, ApiError> {
    let mut now = state.ask(json::state_now).await??;
    now["model"] = state.name().into();
    Ok(now)
}

/// Answers with a stream of events, one for each step.
pub(crate) async fn events(
    QueryParams(query): QueryParams<EventsQuery>,
    QueryModel(state): QueryModel,
) -> Result<Response, ApiError> {
    if query.mask > 1 {
        return Err(ApiError::invalid("mask", format!("`mask`: expected 0 or 1, found {}", query.mask)));
    }
    let place = Arc::clone(&state.listeners.0)
        .try_acquire_owned()
        .map_err(|_| ApiError::Busy(format!("{MOST_LISTENERS} listen to the steps already, which is the most")))?;
    // The watch comes first: no step is missing between the state and the first event.
    let watch = state.ask(|model| model.server().watch(QUEUE_LENGTH)).await??;
    let first = now(&state).await?;
    let shutdown = state.shutdown.clone();
    Ok(stream::respond(&state, move |sender| async move {
        let (out, pieces) = mpsc::channel(16);
        let carrier = spawn_blocking(move || carry(&watch, query, &out));
        tokio::select! {
            // A client that is gone needs no answer.
            _ = write(&sender, &first, pieces) => {}
            () = shutdown.begun() => {}
        }
        // Its channel is closed: it ends within a look.
        if carrier.await.is_err() {
            tracing::error!("a listener's thread has panicked");
        }
        drop(place);
    }))
}

async fn write(sender: &EventSender, first: &Value, mut pieces: mpsc::Receiver<Value>) -> Result<(), ClientGone> {
    sender.data(first).await?;
    while let Some(event) = sender.wait(pieces.recv()).await? {
        sender.data(&event).await?;
    }
    Ok(())
}

/// From the model's thread to the connection's, until either is gone.
fn carry(watch: &TickWatch, query: EventsQuery, out: &mpsc::Sender<Value>) {
    while !out.is_closed() {
        match watch.next_within(POLL_INTERVAL) {
            Ok(Some(event)) => {
                let value = json::tick(&event, watch.n_dropped(), query.mask == 1);
                if out.blocking_send(value).is_err() {
                    return;
                }
            }
            Ok(None) => {}
            Err(_) => return,
        }
    }
}
