//! The same objects as lines of a file, from the first step on: `genie serve --record FILE`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use open_genie::serving::TickWatch;

use super::{POLL_INTERVAL, json};
use crate::error::{ApiError, ServerError};
use crate::options::LineSink;
use crate::state::App;

/// Steps that wait to be written.
const QUEUE_LENGTH: usize = 4096;

/// A thread that writes a line for each step until it is dropped.
pub(crate) struct Recording {
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Recording {
    /// Begins with what there is now, where the options want a recording.
    pub(crate) fn begin(app: &App) -> Result<Option<Self>, ServerError> {
        let Some(sink) = app.options.record.clone() else { return Ok(None) };
        let model =
            app.models.one().ok_or_else(|| ServerError::Record { reason: "there are several models".into() })?;
        let failed = |error: ApiError| ServerError::Record { reason: error.to_string() };
        let watch = model.server().watch(QUEUE_LENGTH).map_err(|error| failed(error.into()))?;
        let mut first = json::state_now(model).map_err(failed)?;
        first["model"] = app.options.alias.as_deref().unwrap_or(model.name()).into();
        sink.write(&first.to_string());
        let ended = Arc::new(AtomicBool::new(false));
        let ask = Arc::clone(&ended);
        let builder = std::thread::Builder::new().name("record".into());
        let thread = builder.spawn(move || write(&watch, &ask, &sink)).map_err(ServerError::Runtime)?;
        Ok(Some(Self { ended, thread: Some(thread) }))
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that records has panicked");
        }
    }
}

/// Masks are left out: they follow from the cells, and would be most of the file.
fn write(watch: &TickWatch, ended: &AtomicBool, sink: &LineSink) {
    loop {
        match watch.next_within(POLL_INTERVAL) {
            Ok(Some(event)) => sink.write(&json::tick(&event, watch.n_dropped(), false).to_string()),
            Ok(None) if ended.load(Ordering::Relaxed) => return,
            Ok(None) => {}
            Err(_) => return,
        }
    }
}
