//! What each step did, reported while someone listens.
//!
//! *Invariant*: without a listener nothing is made; a listener that is slow loses events, which are counted, and holds nothing up.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crossbeam::channel::{Receiver, RecvTimeoutError, Sender, TrySendError, bounded};
use engine::{GroupCells, RowBudget, SeqId};

use crate::{Arrived, RequestId, Slot};

/// Rows of one request in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowsOfStep {
    /// The request's sequence.
    pub seq: SeqId,
    /// The request.
    pub request: RequestId,
    /// Whether the tokens are of its prompt.
    pub prefill: bool,
    /// The place of the first in the sequence.
    pub from: usize,
    /// How many.
    pub n: usize,
}

/// One step.
#[derive(Clone, Debug, PartialEq)]
pub struct TickEvent {
    /// The number of the step, from 1.
    pub number: usize,
    /// When its tick began, by the caller's clock.
    pub at_us: u64,
    /// How long it took, sampling included.
    pub us: u64,
    /// How long a step of that width was said to take.
    pub us_predicted: f64,
    /// Rows that it was planned with, padding included.
    pub width: usize,
    /// The graphs that were executed, in order.
    pub graphs: Vec<String>,
    /// Whose tokens its rows were, replies first.
    pub rows: Vec<RowsOfStep>,
    /// Rows without a token.
    pub padding: usize,
    /// Requests that came since the step before, this one's time included.
    pub arrived: Vec<Arrived>,
    /// Requests that wait for rows after it.
    pub waiting: usize,
    /// The slots after it.
    pub slots: Vec<Slot>,
    /// Rows of the cache after it.
    pub cache: RowBudget,
    /// Whose the cells of the cache are after it, group by group.
    pub cells: Vec<GroupCells>,
}

/// A listener's end.
#[derive(Debug)]
pub struct TickWatch {
    events: Receiver<Arc<TickEvent>>,
    dropped: Arc<AtomicU64>,
}

impl TickWatch {
    /// The next event; `None` once there is no scheduler any more.
    pub fn next(&self) -> Option<Arc<TickEvent>> {
        self.events.recv().ok()
    }

    /// The next event within a time: `Ok(None)` if none came.
    ///
    /// # Errors
    /// There is no scheduler any more.
    pub fn next_within(&self, time: Duration) -> Result<Option<Arc<TickEvent>>, WatchEnded> {
        match self.events.recv_timeout(time) {
            Ok(event) => Ok(Some(event)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(WatchEnded),
        }
    }

    /// Events that were lost, since there was no room for them.
    pub fn n_dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

/// There is no scheduler any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the scheduler is gone: no further steps")]
pub struct WatchEnded;

/// The listeners of a scheduler.
#[derive(Debug, Default)]
pub(crate) struct Watchers(Vec<(Sender<Arc<TickEvent>>, Arc<AtomicU64>)>);

impl Watchers {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A listener for whom at most `room` events wait.
    pub(crate) fn add(&mut self, room: usize) -> TickWatch {
        // Those that left while no step ran.
        self.0.retain(|(_, dropped)| Arc::strong_count(dropped) > 1);
        let (sender, events) = bounded(room.max(1));
        let dropped = Arc::new(AtomicU64::new(0));
        self.0.push((sender, Arc::clone(&dropped)));
        TickWatch { events, dropped }
    }

    /// Gives the event to all; those that are gone are forgotten.
    pub(crate) fn send(&mut self, event: TickEvent) {
        let event = Arc::new(event);
        self.0.retain(|(sender, dropped)| match sender.try_send(Arc::clone(&event)) {
            Ok(()) => true,
            Err(TrySendError::Full(_)) => {
                dropped.fetch_add(1, Ordering::Relaxed);
                true
            }
            Err(TrySendError::Disconnected(_)) => false,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_that_left_are_forgotten_although_no_step_runs() {
        let mut watchers = Watchers::default();
        let kept = watchers.add(1);
        (0..100).for_each(|_| drop(watchers.add(256)));
        assert_eq!(watchers.0.len(), 2, "the first, and the last that left");
        drop(kept);
    }
}
