//! The way of shards back from the workers: a queue of fixed length, and a parker for who waits.
//!
//! Nothing here allocates once it is made, on any thread. A channel would: its receiver registers with the heap the first
//! time that a thread has to wait.

use crossbeam::queue::ArrayQueue;
use crossbeam::sync::{Parker, Unparker};
use crossbeam::utils::Backoff;
use std::sync::Arc;

use crate::worker::Shard;

/// The side that waits.
#[derive(Debug)]
pub(crate) struct Returns {
    parker: Parker,
    to: ReturnTo,
}

/// The side of the workers.
#[derive(Clone, Debug)]
pub(crate) struct ReturnTo {
    queue: Arc<ArrayQueue<Shard>>,
    waiting: Unparker,
}

impl Returns {
    /// For at most `n_shards` at a time.
    pub(crate) fn new(n_shards: usize) -> Self {
        let parker = Parker::new();
        let to = ReturnTo { queue: Arc::new(ArrayQueue::new(n_shards)), waiting: parker.unparker().clone() };
        Self { parker, to }
    }

    /// Where a job sends its shard.
    pub(crate) fn address(&self) -> ReturnTo {
        self.to.clone()
    }

    /// Takes the next shard, once there is one.
    pub(crate) fn recv(&mut self) -> Shard {
        let backoff = Backoff::new();
        loop {
            if let Some(shard) = self.to.queue.pop() {
                return shard;
            }
            if backoff.is_completed() {
                // A shard that came since then has left its token, and this returns at once.
                self.parker.park();
            } else {
                // A row of one token is copied in less time than a sleeping thread takes to wake.
                backoff.snooze();
            }
        }
    }
}

impl ReturnTo {
    /// Gives a shard back.
    pub(crate) fn send(&self, shard: Shard) {
        let sent = self.queue.push(shard);
        debug_assert!(sent.is_ok(), "the queue holds as many shards as the split has");
        self.waiting.unpark();
    }
}
