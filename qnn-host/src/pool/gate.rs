//! A number that threads wait on: spin for a bounded time, then sleep.
//!
//! *Invariant*: no wake-up is lost. A sleeper announces itself in `sleepers` and then reads the number; a changer writes
//! the number and then reads `sleepers` (both sequentially consistent), so at least one of them sees the other. The
//! sleeper holds `door` from its announcement until the condition variable takes it, so a changer that sees it and takes
//! `door` notifies only after it is really waiting.

use std::hint;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Alone on its cache lines (two, since neighbours are fetched in pairs), so spinning slows no other thread.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct Gate {
    number: AtomicU32,
    sleepers: AtomicU32,
    door: Mutex<()>,
    wake: Condvar,
}

impl Gate {
    pub(super) fn get(&self) -> u32 {
        self.number.load(Ordering::Acquire)
    }

    /// Sets the number while no thread waits.
    pub(super) fn set(&self, number: u32) {
        self.number.store(number, Ordering::SeqCst);
    }

    /// Adds (wrapping) and wakes sleepers.
    pub(super) fn add(&self, n: u32) {
        self.number.fetch_add(n, Ordering::SeqCst);
        self.wake_sleepers();
    }

    /// Subtracts (wrapping) and wakes sleepers.
    pub(super) fn sub(&self, n: u32) {
        self.number.fetch_sub(n, Ordering::SeqCst);
        self.wake_sleepers();
    }

    fn wake_sleepers(&self) {
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            drop(self.door.lock().unwrap_or_else(PoisonError::into_inner));
            self.wake.notify_all();
        }
    }

    /// Returns the number as soon as `done` holds for it: spins for `spin`, then sleeps.
    pub(super) fn wait(&self, spin: Duration, done: impl Fn(u32) -> bool) -> u32 {
        if let Some(number) = self.spin(spin, &done) {
            return number;
        }
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
        number
    }

    fn spin(&self, spin: Duration, done: &impl Fn(u32) -> bool) -> Option<u32> {
        /// Looks between two glances at the clock: a clock read costs as much as a few pauses.
        const LOOKS: u32 = 16;
        let mut since = None;
        loop {
            for _ in 0..LOOKS {
                let number = self.get();
                if done(number) {
                    return Some(number);
                }
                if spin.is_zero() {
                    return None;
                }
                hint::spin_loop();
            }
            if since.get_or_insert_with(Instant::now).elapsed() >= spin {
                return None;
            }
        }
    }
}
