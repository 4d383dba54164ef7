//! Signals that ask this program to end: Ctrl-C (SIGINT), SIGTERM, SIGHUP.
//!
//! | signal | while a command has nothing to lose | within [`Interrupt::defer`] |
//! |---|---|---|
//! | the first | what [`Interrupt::before_end`] was given is called, the program says so and ends at once | the command is stopped by what it gave to [`Deferred::stop_with`], keeps what is to be kept, ends |
//! | the second | | the program ends as if it had no handler |
//!
//! The exit code is 128 and the signal's number. A signal that was ignored when the program started stays ignored: `nohup`,
//! or a background job of a script. On other systems than Unix nothing is handled: the system ends the program.

use std::fmt;
use std::io;
#[cfg(unix)]
use std::sync::atomic::AtomicBool;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[cfg(unix)]
use signal_hook::{flag, iterator::Signals, low_level};

// The same numbers on every Unix.
#[cfg_attr(not(unix), expect(dead_code, reason = "signals come on Unix alone"))]
const SIGHUP: i32 = 1;
const SIGINT: i32 = 2;
const SIGTERM: i32 = 15;

/// A signal that asks the program to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signal(i32);

impl Signal {
    #[cfg(unix)]
    const ALL: [Self; 3] = [Self(SIGINT), Self(SIGTERM), Self(SIGHUP)];

    /// The exit code after it.
    pub fn exit_code(self) -> u8 {
        u8::try_from(128 + self.0).unwrap_or(u8::MAX)
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            SIGINT => "SIGINT",
            SIGTERM => "SIGTERM",
            _ => "SIGHUP",
        })
    }
}

/// A run that a signal has ended.
#[derive(Debug)]
pub struct Interrupted {
    signal: Signal,
    /// What was done until then; may be empty.
    done: String,
}

impl Interrupted {
    /// By that signal, after what was done.
    pub fn new(signal: Signal, done: impl Into<String>) -> Self {
        Self { signal, done: done.into() }
    }
}

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.done.as_str() {
            "" => write!(f, "interrupted by {}", self.signal),
            done => write!(f, "interrupted by {}: {done}", self.signal),
        }
    }
}

impl std::error::Error for Interrupted {}

/// What the program knows of the signals. Clones know the same.
#[derive(Clone, Default)]
pub struct Interrupt(Arc<Shared>);

#[derive(Default)]
struct Shared {
    /// The first signal's number; 0 before it.
    received: AtomicI32,
    /// Set by the first signal; the next one then ends the program.
    #[cfg(unix)]
    seen: Arc<AtomicBool>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// How many [`Deferred`] there are.
    n_deferred: usize,
    /// How the running command is stopped.
    stops: Vec<Box<dyn Fn() + Send>>,
    /// What is done before the program ends at once.
    #[cfg(unix)]
    before_end: Option<Box<dyn Fn() + Send>>,
}

impl Interrupt {
    /// Handles the signals from now on; `announce` is called before the program ends at once.
    ///
    /// # Errors
    /// The thread that waits for signals cannot be started: they end the program as they always do.
    #[cfg(unix)]
    pub fn listen(&self, announce: impl Fn(Signal) + Send + 'static) -> io::Result<()> {
        let ignored = ignored_signals();
        let heeded = || Signal::ALL.into_iter().filter(|signal| ignored & (1 << (signal.0 - 1)) == 0);
        let seen = &self.0.seen;
        for signal in heeded() {
            // In this order: the first signal only sets the flag, the second finds it set.
            flag::register_conditional_default(signal.0, Arc::clone(seen))?;
            flag::register(signal.0, Arc::clone(seen))?;
        }
        // Last: who is woken may forgive the signal at once, and the flag must not be set behind that.
        let mut signals = Signals::new(heeded().map(|signal| signal.0))?;
        let this = self.clone();
        std::thread::Builder::new().name("signals".into()).spawn(move || {
            // One after another only where the one before was forgiven: else the second ends the program.
            for number in signals.forever() {
                this.receive(Signal(number), &announce);
            }
        })?;
        Ok(())
    }

    /// Handles nothing: there are no such signals here.
    ///
    /// # Errors
    /// None.
    #[cfg(not(unix))]
    pub fn listen(&self, announce: impl Fn(Signal) + Send + 'static) -> io::Result<()> {
        drop(announce);
        Ok(())
    }

    #[cfg(unix)]
    fn receive(&self, signal: Signal, announce: &dyn Fn(Signal)) {
        let state = self.state();
        self.0.received.store(signal.0, Ordering::Release);
        if state.n_deferred == 0 {
            state.before_end.iter().for_each(|call| call());
            announce(signal);
            // Without the exit handlers of loaded libraries: other threads still run.
            low_level::exit(i32::from(signal.exit_code()));
        }
        state.stops.iter().for_each(|stop| stop());
    }

    /// The signal that has arrived.
    pub fn received(&self) -> Option<Signal> {
        match self.0.received.load(Ordering::Acquire) {
            0 => None,
            number => Some(Signal(number)),
        }
    }

    /// Takes a Ctrl-C as dealt with: it has ended a reply, and the command goes on. Other signals stay.
    pub fn forgive(&self) {
        let forgiven = self.0.received.compare_exchange(SIGINT, 0, Ordering::AcqRel, Ordering::Acquire).is_ok();
        #[cfg(unix)]
        if forgiven {
            self.0.seen.store(false, Ordering::SeqCst);
        }
        #[cfg(not(unix))]
        let _ = forgiven;
    }

    /// Calls this before a signal ends the program at once: for what outlives it, such as a terminal's mode. It must not wait or panic.
    #[cfg(unix)]
    pub fn before_end(&self, call: impl Fn() + Send + 'static) {
        self.state().before_end = Some(Box::new(call));
    }

    /// Fails once a signal has arrived.
    pub fn check(&self) -> Result<(), Interrupted> {
        self.received().map_or(Ok(()), |signal| Err(Interrupted::new(signal, "")))
    }

    /// Until the guard is dropped, a signal does not end the program: the command asks [`Self::received`].
    #[must_use]
    pub fn defer(&self) -> Deferred<'_> {
        self.state().n_deferred += 1;
        Deferred(self)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// While it lives, the running command ends by itself after a signal.
pub struct Deferred<'i>(&'i Interrupt);

impl Deferred<'_> {
    /// Calls this when a signal arrives; at once if one has.
    pub fn stop_with(&self, stop: impl Fn() + Send + 'static) {
        let mut state = self.0.state();
        if self.0.received().is_some() {
            stop();
        }
        state.stops.push(Box::new(stop));
    }
}

impl Drop for Deferred<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.n_deferred -= 1;
        if state.n_deferred == 0 {
            state.stops.clear();
        }
    }
}

/// The signals that this process ignores, a bit for each, as the kernel reports them; none where it does not say.
#[cfg(unix)]
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_those_of_shells() {
        let codes = Signal::ALL.map(|signal| (signal.to_string(), signal.exit_code()));
        assert_eq!(codes, [("SIGINT".into(), 130), ("SIGTERM".into(), 143), ("SIGHUP".into(), 129)]);
    }

    #[cfg(unix)]
    #[test]
    fn the_numbers_are_the_systems() {
        use signal_hook::consts;
        assert_eq!(Signal::ALL.map(|signal| signal.0), [consts::SIGINT, consts::SIGTERM, consts::SIGHUP]);
    }

    #[cfg(unix)]
    #[test]
    fn a_deferred_signal_stops_what_was_registered_before_and_after_it() {
        let interrupt = Interrupt::default();
        let counted = Arc::new(AtomicI32::new(0));
        let count = || {
            let counted = Arc::clone(&counted);
            move || {
                counted.fetch_add(1, Ordering::Relaxed);
            }
        };
        let deferred = interrupt.defer();
        deferred.stop_with(count());
        assert!(interrupt.check().is_ok());
        interrupt.receive(Signal(SIGTERM), &|_| panic!("it is deferred"));
        assert_eq!(counted.load(Ordering::Relaxed), 1);
        deferred.stop_with(count());
        assert_eq!(counted.load(Ordering::Relaxed), 2);
        assert_eq!(interrupt.received(), Some(Signal(SIGTERM)));
        assert_eq!(interrupt.check().unwrap_err().to_string(), "interrupted by SIGTERM");
        drop(deferred);
        assert_eq!(Interrupted::new(Signal(SIGINT), "3 tokens").to_string(), "interrupted by SIGINT: 3 tokens");
    }
}
