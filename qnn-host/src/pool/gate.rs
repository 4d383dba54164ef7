//! A number that threads wait on: spin for a bounded time, then sleep.
//!
//! *Invariant*: no wake-up is lost. A sleeper announces itself in `sleepers` and then reads the number; a changer writes
//! the number and then reads `sleepers` (both sequentially consistent), so at least one of them sees the other. The
//! sleeper holds `door` from its announcement until the condition variable takes it, so a changer that sees it and takes
//! `door` notifies only after it is really waiting.

use std::hint;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Alone on its cache lines (two, since neighbours are fetched in pairs), so spinning slows no other thread.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct Gate {
    number: AtomicU64,
    sleepers: AtomicU32,
    door: Mutex<()>,
    wake: Condvar,
}

impl Gate {
    pub(super) fn get(&self) -> u64 {
        self.number.load(Ordering::Acquire)
    }

    /// Sets the number while no thread waits.
    pub(super) fn set(&self, number: u64) {
        self.number.store(number, Ordering::SeqCst);
    }

    /// Sets the number to another one and wakes sleepers.
    pub(super) fn change(&self, number: u64) {
        self.number.store(number, Ordering::SeqCst);
        self.wake_sleepers();
    }

    /// Adds (wrapping) and wakes sleepers.
    pub(super) fn add(&self, n: u64) {
        self.number.fetch_add(n, Ordering::SeqCst);
        self.wake_sleepers();
    }

    /// Subtracts (wrapping) and wakes sleepers.
    pub(super) fn sub(&self, n: u64) {
        self.number.fetch_sub(n, Ordering::SeqCst);
        self.wake_sleepers();
    }

    fn wake_sleepers(&self) {
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            drop(self.door.lock().unwrap_or_else(PoisonError::into_inner));
            self.wake.notify_all();
        }
    }

    /// Returns the number as soon as `done` holds for it, and how long that took: spins for `spin`, then sleeps. The shortest
    /// waits, for which a look at the clock would be long, count as none.
    pub(super) fn wait(&self, spin: Duration, done: impl Fn(u64) -> bool) -> (u64, Duration) {
        let since = match self.spin(spin, &done) {
            Ok(seen) => return seen,
            Err(since) => since,
        };
        let mut door = self.door.lock().unwrap_or_else(PoisonError::into_inner);
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let number = loop {
            let number = self.number.load(Ordering::SeqCst);
            if done(number) {
                break number;
            }
            door = self.wake.wait(door).unwrap_or_else(PoisonError::into_inner);
        };
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
        (number, since.elapsed())
    }

    /// What [`Gate::wait`] returns, or since when it waits if `spin` is over.
    fn spin(&self, spin: Duration, done: &impl Fn(u64) -> bool) -> Result<(u64, Duration), Instant> {
        /// Looks between two glances at the clock: a clock read costs as much as a few pauses.
        const LOOKS: u32 = 16;
        let mut since = None;
        loop {
            for _ in 0..LOOKS {
                let number = self.get();
                if done(number) {
                    return Ok((number, since.map_or(Duration::ZERO, |since: Instant| since.elapsed())));
                }
                if spin.is_zero() {
                    return Err(Instant::now());
                }
                hint::spin_loop();
            }
            let since = *since.get_or_insert_with(Instant::now);
            if since.elapsed() >= spin {
                return Err(since);
            }
        }
    }
}
