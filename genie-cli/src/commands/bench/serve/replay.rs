//! Serves a trace: sends each request when its time has come, and its client is free where clients wait.
//!
//! *Units*: milliseconds since the run began. A request of a client that waits was sent when it was submitted; an open one at the time
//! that the trace says, though it is submitted between two steps.

use std::time::{Duration, Instant};

use anyhow::Result;
use open_genie::Reply;
use open_genie::SamplerSettings;
use open_genie::serving::{Event, Request, RequestId, RequestSettings, Scheduler, ServeError};

use super::metrics::{Ran, Seen};
use super::workload::{Arrival, Sending};

/// Longest sleep: how soon a signal is seen.
const NAP: Duration = Duration::from_millis(20);

/// Serves a trace; what each client saw, and the steps. Ends early, with what was seen by then, once `is_over` says so.
///
/// # Errors
/// The engine has failed. A request that fails is no error: what was seen of it says why.
pub fn replay(
    scheduler: &mut Scheduler,
    trace: &[Arrival],
    is_over: &dyn Fn() -> bool,
) -> Result<(Vec<Seen>, Vec<Ran>)> {
    let n_vocab = scheduler.vocab_size();
    let prompts: Vec<_> = trace.iter().map(|arrival| arrival.tokens(n_vocab)).collect();
    let began = Instant::now();
    let ms = || began.elapsed().as_secs_f64() * 1e3;
    let mut seen = vec![Seen::default(); trace.len()];
    let mut ids: Vec<Option<RequestId>> = vec![None; trace.len()];
    let mut over = vec![false; trace.len()];
    let mut steps: Vec<Ran> = Vec::new();
    while over.iter().any(|over| !over) && !is_over() {
        let now = ms();
        for at in 0..trace.len() {
            let arrival = &trace[at];
            let closed = arrival.sending == Sending::Closed;
            let waits = closed && (0..at).any(|before| trace[before].client == arrival.client && !over[before]);
            if ids[at].is_some() || over[at] || waits || arrival.at_ms as f64 > now {
                continue;
            }
            let mut settings = RequestSettings::new(SamplerSettings::argmax());
            settings.max_tokens = Some(arrival.reply);
            let request = Request { prompt: prompts[at].clone(), settings, priority: 0 };
            seen[at].n_prompt = arrival.prompt;
            seen[at].sent = if closed { now } else { arrival.at_ms as f64 };
            match scheduler.submit(request, (seen[at].sent * 1e3) as u64) {
                Ok(id) => ids[at] = Some(id),
                Err(error) => {
                    seen[at].failed = Some(error.to_string());
                    over[at] = true;
                }
            }
        }
        let at = ms();
        let report = match scheduler.tick((at * 1e3) as u64) {
            Err(ServeError::Engine(error)) => return Err(error.into()),
            report => report?,
        };
        let done = ms();
        if report.rows.is_empty() {
            let waits = !scheduler.is_idle() || over.iter().any(|over| !over);
            if waits && scheduler.is_idle() {
                let open = trace.iter().zip(&over).filter(|(_, over)| !**over);
                let next = open.map(|(arrival, _)| arrival.at_ms as f64).fold(f64::INFINITY, f64::min);
                let wait = Duration::try_from_secs_f64((next - ms()).max(0.0) / 1e3).unwrap_or(NAP);
                std::thread::sleep(wait.clamp(Duration::from_micros(50), NAP));
            }
        } else {
            let number = |id: u64| ids.iter().position(|own| own.is_some_and(|own| own.0 == id)).unwrap_or(0) as u64;
            let rows = report.rows.iter().map(|rows| (number(rows.id), rows.n, rows.prefill)).collect();
            steps.push(Ran { at, ms: done - at, width: report.width, rows });
        }
        for event in scheduler.take_events() {
            let Some(place) = ids.iter().position(|id| *id == Some(event.id())) else { continue };
            match event {
                Event::Piece { piece, .. } => {
                    seen[place].tokens_at.extend(piece.tokens.iter().map(|_| done));
                    seen[place].tokens.extend(piece.tokens.iter().map(|token| token.0));
                }
                Event::Done(finished) => {
                    let Reply { stop, .. } = &finished.reply;
                    if stop.name() != "max-num-tokens" {
                        seen[place].failed = Some(format!("the reply ended by {stop}"));
                    }
                    (seen[place].n_shared, seen[place].n_parked) = (finished.n_shared, finished.n_parked);
                    over[place] = true;
                }
                Event::Failed { error, .. } => {
                    seen[place].failed = Some(error.to_string());
                    over[place] = true;
                }
                _ => {}
            }
        }
    }
    Ok((seen, steps))
}
