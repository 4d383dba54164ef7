//! A persistent thread pool for kernels: one closure, run once on each thread, with barriers inside.
//!
//! [`Pool::run`] lends the closure to the workers for the length of the call, so it may borrow anything, and
//! allocates nothing. The calling thread takes part as thread 0; a pool of one thread calls the closure inline.
//! A thread that waits spins for a bounded time ([`PoolOptions::spin`]) and then sleeps, so an idle pool costs nothing
//! and a busy machine is not kept busier.
//!
//! *Invariants*: one `run` at a time (clients wait for each other); a worker touches the closure only between the
//! start of a run and its own countdown; `run` returns, or unwinds, only after every worker counted down.
//!
//! *A busy machine*: [`Pool::run_of`] leaves threads out that would keep the others waiting ([`TeamSize`]).
//!
//! *Traps*: a `run` inside a `run` is not parallel: the inner closure runs inline, as thread 0 of 1.

mod gate;
mod pin;
mod split;
mod team_size;
#[cfg(test)]
mod tests;
mod worker;

use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{fmt, io, thread};

use gate::Gate;

/// Most threads that a client may ask for.
pub const MAX_THREADS: usize = 1024;
/// Bits of the number of a run that hold how many threads take part: [`MAX_THREADS`] fit.
const COUNT_BITS: u32 = 16;

pub use pin::{cores, shown};
pub use split::share;
pub use team_size::TeamSize;
pub use worker::Worker;

/// How to make a [`Pool`].
#[derive(Clone, Debug)]
pub struct PoolOptions {
    /// Threads, the caller included; 0 means one for each core of `pin`, or as many as the machine offers this process.
    pub threads: usize,
    /// How long a waiting thread spins before it sleeps. Ignored (no spinning) with more threads than cores to run on.
    pub spin: Duration,
    /// Cores to run on, by number: thread `i` gets `pin[i % pin.len()]`. Workers stay there; the calling thread (thread 0)
    /// belongs to the client, so it goes there for the length of a run and then back. Empty pins nothing. Best effort: cores
    /// that do not exist (see [`cores`]) change nothing, and none does on systems other than Linux.
    pub pin: Vec<usize>,
}

impl Default for PoolOptions {
    fn default() -> Self {
        Self { threads: 0, spin: Duration::from_micros(500), pin: Vec::new() }
    }
}

/// The persistent threads. Dropping it ends them.
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// The caller's core during a run.
    home: Option<usize>,
    /// Held for the length of a run.
    turn: Mutex<()>,
}

/// A counter that shares no cache line with anything else.
#[derive(Default)]
#[repr(align(128))]
struct Line(AtomicUsize);

type Task<'a> = dyn Fn(Worker<'_>) + Sync + 'a;

struct Shared {
    threads: usize,
    spin: Duration,
    /// The closure of the current run. Written by the caller while no worker runs, read by workers after `start`.
    task: UnsafeCell<Option<*const Task<'static>>>,
    /// The number of the run, and in the lowest [`COUNT_BITS`] how many threads take part; workers wait for it to move.
    start: Gate,
    /// Threads that take part in the current run: for those that do.
    count: AtomicUsize,
    /// Workers still running; the caller waits for 0.
    running: Gate,
    /// Generation of the barrier; waiters wait for it to move.
    barrier: Gate,
    arrived: AtomicUsize,
    /// Nanoseconds of this run for which threads waited [`team_size::LATE`] or longer.
    waited: AtomicU64,
    /// The next task of this phase.
    next: Line,
    /// A thread of this run panicked: barriers unwind.
    broken: AtomicBool,
    stop: AtomicBool,
    /// Panic payload of the first worker that panicked.
    payload: Mutex<Option<Box<dyn Any + Send>>>,
}

// SAFETY: `task` is the only field that is not `Sync`. It is written only by the thread that holds `Pool::turn` and while
// `running` is 0, and read only by workers between the `start` step that follows the write (release, acquire) and their
// countdown of `running`; so no access races. What it points to is `Sync`.
unsafe impl Sync for Shared {}
// SAFETY: as above; the pointer names a `Sync` closure that outlives its use, on whichever thread that is.
unsafe impl Send for Shared {}

/// Panic payload of a barrier when another thread of the run panicked; never reaches a client.
struct BrokenBarrier;

thread_local! {
    /// True while this thread is inside a `run` of any pool.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Sets [`INSIDE`] until it is dropped, by a panic too.
struct Inside;

impl Inside {
    fn enter() -> Self {
        INSIDE.set(true);
        Self
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        INSIDE.set(false);
    }
}

impl Pool {
    /// Starts the threads.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub fn new(options: &PoolOptions) -> io::Result<Self> {
        let pin = &options.pin;
        let cores = match pin.iter().collect::<HashSet<_>>().len() {
            0 => thread::available_parallelism().map_or(1, usize::from),
            pinned => pinned,
        };
        let threads = if options.threads == 0 { cores } else { options.threads };
        let shared = Arc::new(Shared {
            threads,
            spin: if threads > cores { Duration::ZERO } else { options.spin },
            task: UnsafeCell::new(None),
            start: Gate::default(),
            count: AtomicUsize::new(0),
            running: Gate::default(),
            barrier: Gate::default(),
            arrived: AtomicUsize::new(0),
            waited: AtomicU64::new(0),
            next: Line::default(),
            broken: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            payload: Mutex::new(None),
        });
        let workers = Vec::with_capacity(threads - 1);
        let mut pool = Self { shared, workers, home: pin.first().copied(), turn: Mutex::new(()) };
        for index in 1..threads {
            let shared = Arc::clone(&pool.shared);
            let core = (!pin.is_empty()).then(|| pin[index % pin.len()]);
            let worker = thread::Builder::new().name(format!("qnn-host-{index}")).spawn(move || {
                if let Some(core) = core {
                    pin::to_core(core);
                }
                shared.work(index);
            })?;
            pool.workers.push(worker);
        }
        Ok(pool)
    }

    /// A pool of the calling thread alone: starts nothing, cannot fail.
    pub fn inline() -> Self {
        match Self::new(&PoolOptions { threads: 1, ..PoolOptions::default() }) {
            Ok(pool) => pool,
            Err(error) => unreachable!("a pool of one starts no thread, yet: {error}"),
        }
    }

    /// Threads that take part in a run, the caller included.
    pub fn threads(&self) -> usize {
        self.shared.threads
    }

    /// Calls `task` once on each thread and returns when all are done.
    ///
    /// # Panics
    /// When `task` panics on any thread: with the payload of one of them, after all threads have left the closure.
    pub fn run(&self, task: &(dyn Fn(Worker<'_>) + Sync)) {
        self.run_on(self.threads(), task);
    }

    /// As [`Pool::run`], on as many of the threads as `team_size` takes, which learns from the time of each such run. For work
    /// that is done again and again, each with a `team_size` of its own.
    ///
    /// # Panics
    /// As [`Pool::run`].
    pub fn run_of(&self, team_size: &TeamSize, task: &(dyn Fn(Worker<'_>) + Sync)) {
        if INSIDE.get() || self.threads() == 1 {
            return self.run(task);
        }
        let count = team_size.count(self.threads(), Instant::now());
        let (took, waited) = self.run_on(count, task);
        team_size.ran(Instant::now(), self.threads(), count, took, waited);
    }

    /// Calls `task` on the first `count` threads. How long that took, other clients' runs before it left out, and how long
    /// the threads waited for each other, all waits together.
    fn run_on(&self, count: usize, task: &(dyn Fn(Worker<'_>) + Sync)) -> (Duration, Duration) {
        let inline = |team| {
            let began = Instant::now();
            task(Worker { index: 0, count: 1, team, next: &Line::default(), shared: None });
            (began.elapsed(), Duration::ZERO)
        };
        if INSIDE.get() {
            return inline(1);
        }
        let team = self.threads();
        if team == 1 {
            let _home = self.home.and_then(pin::Pinned::to);
            return inline(team);
        }
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let _home = self.home.and_then(pin::Pinned::to);
        let shared = &*self.shared;
        if count == 1 {
            let _inside = Inside::enter();
            return inline(team);
        }
        let began = Instant::now();
        shared.publish(count, task);
        let mine = catch_unwind(AssertUnwindSafe(|| shared.enter(0, task)));
        let (_, last) = shared.running.wait(shared.spin, |left| left == 0);
        shared.count_wait(last);
        let theirs = shared.payload.lock().unwrap_or_else(PoisonError::into_inner).take();
        match (mine, theirs) {
            (Ok(()), None) => {}
            (Err(payload), None) => resume_unwind(payload),
            (Err(payload), Some(_)) if !payload.is::<BrokenBarrier>() => resume_unwind(payload),
            (_, Some(payload)) => resume_unwind(payload),
        }
        (began.elapsed(), Duration::from_nanos(shared.waited.load(Ordering::Relaxed)))
    }

    /// Calls `body` with each of `0..n` once, spread over the threads as they become free; `n == 1` runs inline.
    pub fn for_each(&self, n: usize, body: &(dyn Fn(usize) + Sync)) {
        if n <= 1 {
            return (0..n).for_each(body);
        }
        self.run(&|w| w.tasks(n).for_each(body));
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.start.add(1 << COUNT_BITS);
        for worker in self.workers.drain(..) {
            // A worker catches its task's panic, so it ends without an error, and `Drop` could not return one.
            let _ = worker.join();
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("threads", &self.threads()).finish_non_exhaustive()
    }
}

impl Shared {
    /// Lends `task` to the first `count - 1` workers. The caller must wait for `running` to reach 0 before the borrow ends.
    fn publish(&self, count: usize, task: &Task<'_>) {
        let task: *const Task<'_> = task;
        // SAFETY: only the lifetime in the type changes. `run_on`, the one caller, does not leave (by return or by unwinding)
        // before `running` is 0, after which no worker uses the pointer.
        let task = unsafe { std::mem::transmute::<*const Task<'_>, *const Task<'static>>(task) };
        // SAFETY: the caller holds `turn` and the last run has ended (`running` is 0), so no worker reads the cell now: those that
        // took no part in that run read it only when a number names them.
        unsafe { *self.task.get() = Some(task) };
        self.count.store(count, Ordering::Relaxed);
        self.arrived.store(0, Ordering::Relaxed);
        self.next.0.store(0, Ordering::Relaxed);
        self.waited.store(0, Ordering::Relaxed);
        self.broken.store(false, Ordering::Relaxed);
        self.running.set(count as u64 - 1);
        let number = (self.start.get() >> COUNT_BITS) + 1;
        self.start.change(number << COUNT_BITS | count as u64);
    }

    /// The loop of worker `index`.
    fn work(&self, index: usize) {
        let mut seen = 0;
        loop {
            (seen, _) = self.start.wait(self.spin, |now| now != seen);
            if self.stop.load(Ordering::Acquire) {
                return;
            }
            // The number itself says who takes part: by now another run, without this worker, may have begun.
            if index as u64 >= seen & ((1 << COUNT_BITS) - 1) {
                continue;
            }
            // SAFETY: the step of `start` was published after the cell was written, and it is not written again before
            // this worker, which takes part, counts down below.
            let task = unsafe { *self.task.get() };
            if let Some(task) = task {
                // SAFETY: `run_on` keeps the closure borrowed until this worker counts down below.
                let task = unsafe { &*task };
                if let Err(payload) = catch_unwind(AssertUnwindSafe(|| self.enter(index, task))) {
                    let mut first = self.payload.lock().unwrap_or_else(PoisonError::into_inner);
                    if first.as_ref().is_none_or(|p| p.is::<BrokenBarrier>()) {
                        *first = Some(payload);
                    }
                }
            }
            self.running.sub(1);
        }
    }

    /// Runs the closure as thread `index`; breaks the barrier if it panics.
    fn enter(&self, index: usize, task: &Task<'_>) {
        struct Leave<'a> {
            shared: &'a Shared,
            returned: bool,
        }
        impl Drop for Leave<'_> {
            fn drop(&mut self) {
                if !self.returned {
                    self.shared.broken.store(true, Ordering::SeqCst);
                    self.shared.barrier.add(1);
                }
            }
        }
        let _inside = Inside::enter();
        let mut leave = Leave { shared: self, returned: false };
        let count = self.count.load(Ordering::Relaxed);
        task(Worker { index, count, team: self.threads, next: &self.next, shared: Some(self) });
        leave.returned = true;
    }

    fn meet(&self) {
        let generation = self.barrier.get();
        if self.broken.load(Ordering::SeqCst) {
            resume_unwind(Box::new(BrokenBarrier));
        }
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.count.load(Ordering::Relaxed) {
            // All others wait: no thread takes tasks or arrives again until the step below, which publishes both.
            self.arrived.store(0, Ordering::Relaxed);
            self.next.0.store(0, Ordering::Relaxed);
            self.barrier.add(1);
        } else {
            let (_, waited) = self.barrier.wait(self.spin, |now| now != generation);
            self.count_wait(waited);
            if self.broken.load(Ordering::SeqCst) {
                resume_unwind(Box::new(BrokenBarrier));
            }
        }
    }

    fn count_wait(&self, waited: Duration) {
        if waited >= team_size::LATE {
            self.waited.fetch_add(waited.as_nanos() as u64, Ordering::Relaxed);
        }
    }
}
