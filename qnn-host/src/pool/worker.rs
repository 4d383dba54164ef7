//! What a closure sees of its run.

use std::ops::Range;
use std::sync::atomic::Ordering;

use super::{Line, Shared, share};

/// [`Worker::take_run`] takes this part of a thread's fair share of what is left: a thread that is held up holds no more.
const RUNS_EACH: usize = 2;

/// One thread's view of a run: which thread it is, of how many, the barrier between them, and the tasks they share out.
///
/// Barriers cut a run into *phases*. In each phase [`Worker::take`] counts from 0 again.
#[derive(Clone, Copy)]
pub struct Worker<'a> {
    pub(super) index: usize,
    pub(super) count: usize,
    pub(super) team: usize,
    /// The next task of this phase.
    pub(super) next: &'a Line,
    /// `None` when the closure runs inline.
    pub(super) shared: Option<&'a Shared>,
}

impl Worker<'_> {
    /// Which thread this is, from 0 (the caller).
    pub fn index(&self) -> usize {
        self.index
    }

    /// How many threads run the closure.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Threads of the pool, whether all of them run the closure or not: what a result's bits may depend on, so that they are
    /// the same beside another program as alone ([`Pool::run_of`](super::Pool::run_of)).
    pub fn team(&self) -> usize {
        self.team
    }

    /// Waits until every thread of the run arrived, and begins a new phase. All must call it equally often.
    ///
    /// # Panics
    /// Unwinds, without a message, when another thread of the run panicked.
    pub fn barrier(&self) {
        match self.shared {
            Some(shared) => shared.meet(),
            None => self.next.0.store(0, Ordering::Relaxed),
        }
    }

    /// The next number of this phase: each of 0, 1, 2, ... goes to one thread only. A phase has one such sequence, so
    /// put a barrier between two loops that use it.
    pub fn take(&self) -> usize {
        self.next.0.fetch_add(1, Ordering::Relaxed)
    }

    /// The next tasks of `0..n` for this thread, from the same sequence as [`Worker::take`]: many at first, so that neighbours in
    /// memory are read in one stream, and single ones at the end, so that threads end together. Empty when none is left.
    pub fn take_run(&self, n: usize) -> Range<usize> {
        let mut run = n..n;
        let some = |next| {
            run = next..next + n.saturating_sub(next).div_ceil(RUNS_EACH * self.count);
            (next < n).then_some(run.end)
        };
        match self.next.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, some) {
            Ok(_) => run,
            Err(_) => n..n,
        }
    }

    /// The tasks of `0..n` that fall to this thread, taken one by one as it becomes free (see [`Worker::take`]).
    pub fn tasks(&self, n: usize) -> impl Iterator<Item = usize> + '_ {
        std::iter::from_fn(move || Some(self.take()).filter(|&task| task < n))
    }

    /// This thread's contiguous share of `0..n`, in multiples of `unit` (see [`share`]).
    pub fn share(&self, n: usize, unit: usize) -> Range<usize> {
        share(n, unit, self.index, self.count)
    }
}
