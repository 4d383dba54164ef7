//! What runs beside what: rows of a split move while the next split executes, and a split waits for its own rows only.
//!
//! No clocks: a job is held on its worker until the execution that it must not hold up has begun. If the engine waited for
//! that job first, neither would go on; the hold then gives up and the test fails.

use std::sync::Arc;
use std::time::Duration;

use genie_types::TokenId;
use kvmanager::JobEvent;
use parking_lot::{Condvar, Mutex};

use super::bundle::{Cut, Form, config};
use super::toy::Toy;
use crate::{Binding, Engine, EngineConfig, ExecuteError, Executor, TokenModel};

/// The splits with rows: a decoder with one layer, and one with two.
const FIRST: usize = 1;
const SECOND: usize = 2;

/// What has happened so far.
#[derive(Default)]
struct Log {
    /// Executions begun, by split.
    begun: [usize; 4],
    /// Jobs begun and ended, by split.
    jobs: [usize; 4],
    ended: [usize; 4],
    /// A hold that waited in vain.
    stuck: Option<String>,
    /// A split that executed while its rows were still moving.
    torn: Option<String>,
    /// Holds that were let go by what they waited for.
    met: usize,
}

type Shared = Arc<(Mutex<Log>, Condvar)>;

/// The toy, logging when it is executed.
struct Watched {
    toy: Toy,
    log: Shared,
}

impl Executor for Watched {
    fn execute<'io>(
        &mut self,
        split: usize,
        graph: usize,
        io: &mut dyn Iterator<Item = Binding<'io>>,
    ) -> Result<(), ExecuteError> {
        {
            let mut log = self.log.0.lock();
            log.begun[split] += 1;
            // Two workers share the rows of a split, and each step before has sent them at least one job.
            let due = if [FIRST, SECOND].contains(&split) { 2 * (log.begun[split] - 1) } else { 0 };
            if log.jobs[split] != log.ended[split] || log.ended[split] < due {
                let (jobs, ended) = (log.jobs[split], log.ended[split]);
                log.torn = Some(format!("split {split}: {jobs} jobs begun, {ended} ended, {due} due"));
            }
            self.log.1.notify_all();
        }
        self.toy.execute(split, graph, io)
    }
}

/// Holds the jobs of a split until another has begun as often as `enough` asks for, given how often the held one has.
fn hold(engine: &mut Engine<Watched>, log: &Shared, held: usize, until: usize, enough: fn(usize) -> usize) {
    let log = Arc::clone(log);
    engine.watch_jobs(Arc::new(move |event: JobEvent| {
        let (lock, changed) = &*log;
        let mut now = lock.lock();
        let split = event.split.0;
        if event.ended {
            now.ended[split] += 1;
            return;
        }
        now.jobs[split] += 1;
        let wanted = enough(now.begun[split]);
        if split != held || now.begun[split] == 0 || now.stuck.is_some() {
            return;
        }
        let timeout = changed.wait_while_for(&mut now, |now| now.begun[until] < wanted, Duration::from_secs(20));
        if timeout.timed_out() {
            now.stuck = Some(format!("split {until} waited for the rows of split {held}"));
        } else {
            now.met += 1;
        }
    }));
}

fn engine(log: &Shared) -> Engine<Watched> {
    let form = Form { cut: Cut::Four, ..Form::plain(&[(1, 16), (4, 16), (1, 32), (4, 32)]) };
    let watched = Watched { toy: Toy::new(form.layout()), log: Arc::clone(log) };
    Engine::with_executor(form.layout(), watched, &EngineConfig { n_threads: 2, ..config() }).unwrap()
}

fn tokens(n: usize) -> Vec<TokenId> {
    (0..n as u32).map(|i| TokenId(i * 7 % 50)).collect()
}

/// Processes that many tokens in each call, and returns what was seen.
fn run(calls: &[usize], held: usize, until: usize, enough: fn(usize) -> usize, last: usize) -> Log {
    let log = Shared::default();
    let mut engine = engine(&log);
    hold(&mut engine, &log, held, until, enough);
    for &n in calls {
        engine.process(&tokens(n)).unwrap();
    }
    // The last step's jobs may be held for an execution that no longer comes: let them go.
    log.0.lock().begun[until] += last;
    log.1.notify_all();
    engine.wait_all().unwrap();
    drop(engine);
    Arc::try_unwrap(log).map_err(|_| "the engine is gone").unwrap().0.into_inner()
}

#[test]
fn rows_of_a_split_move_while_the_next_one_executes() {
    // In each step the first decoder's jobs may only begin once the second decoder runs.
    // 13 tokens: AR 4, 4, 4, 1 at CL 16; then over the edge to CL 32, up to AR 4 and down again.
    let log = run(&[13, 1, 1, 6, 1], FIRST, SECOND, |begun| begun, 0);
    assert_eq!((log.stuck, log.torn), (None, None));
    assert!(log.met >= log.begun[FIRST], "{} jobs were held, {} steps", log.met, log.begun[FIRST]);
    assert_eq!(log.jobs, log.ended);
}

#[test]
fn a_split_waits_for_its_own_rows_only() {
    // The second decoder's jobs may only begin once the first decoder runs in the step after.
    // Changes of shape within a call ride on the step's own jobs. (Between calls they wait for all splits.)
    for calls in [&[13, 1, 1][..], &[27]] {
        let log = run(calls, SECOND, FIRST, |begun| begun + 1, 1);
        assert_eq!((log.stuck, log.torn), (None, None), "{calls:?}");
        assert!(log.met >= log.begun[SECOND], "{} jobs were held, {} steps", log.met, log.begun[SECOND]);
        assert_eq!(log.jobs, log.ended);
    }
}
