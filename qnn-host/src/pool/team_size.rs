//! The number of threads for each run: fewer beside another program that keeps one of them off its core.
//!
//! Threads of a run meet at barriers, some hundred in a step of a model. One that the system has put aside for another
//! program keeps all others waiting for as long as its turn lasts (milliseconds), again and again: two threads on two
//! cores, one of which is taken, are then slower than one. Handing out small tasks does not help against it, since the thread
//! holds one while it is put aside. So after a run that is *late* - threads waited longer for each other than one thread
//! less would cost - each run takes one thread less, until one is not late; from time to time a *trial* takes one more.
//!
//! With `T` threads of which one is late for a part `L` of the run, `T - 1` threads that never wait take `(1 - L) T / (T - 1)`
//! of its time: less where `L > 1 / T`. If the run that is not late took longer all the same, waiting was in the nature of
//! the work (a phase that one thread does alone), and the threads come back.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Waits from here on are for a thread that the system put aside: phases are shorter, and the system's turns longer.
pub(super) const LATE: Duration = Duration::from_millis(1);
/// First and longest time from trial to trial. A trial may cost a few times the run, so it is rare where trials keep failing.
const FIRST_REST: Duration = Duration::from_millis(50);
const LONGEST_REST: Duration = Duration::from_secs(2);

/// What one piece of work, done again and again, has learnt about the threads that it can have.
#[derive(Debug, Default)]
pub struct TeamSize(Mutex<State>);

#[derive(Debug)]
struct State {
    /// Threads left out.
    out: usize,
    /// While threads are taken out run by run: how many were out before, and the time of the late run that began it.
    search: Option<(usize, Duration)>,
    /// No trial before.
    trial_at: Option<Instant>,
    /// Lateness changes nothing before.
    search_at: Option<Instant>,
    rest: Duration,
}

impl Default for State {
    fn default() -> Self {
        Self { out: 0, search: None, trial_at: None, search_at: None, rest: FIRST_REST }
    }
}

impl State {
    /// The end of a rest that begins now; the next one is longer.
    fn rest(&mut self, now: Instant) -> Option<Instant> {
        let rest = self.rest;
        self.rest = (2 * rest).min(LONGEST_REST);
        Some(now + rest)
    }
}

impl TeamSize {
    /// Threads of `team` for a run at `now`: one more than before where it is time for a trial.
    pub(super) fn count(&self, team: usize, now: Instant) -> usize {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let trial = state.out > 0 && state.search.is_none() && state.trial_at.is_none_or(|at| now >= at);
        team.saturating_sub(state.out - usize::from(trial)).max(1)
    }

    /// After a run of `count` threads of `team` that took `took` and ended at `now`, in which they waited `waited` for each
    /// other, all waits together.
    pub(super) fn ran(&self, now: Instant, team: usize, count: usize, took: Duration, waited: Duration) {
        let mut guard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let state = &mut *guard;
        let late = count > 1 && waited * count as u32 > took * (count - 1) as u32;
        let trial = count > team.saturating_sub(state.out).max(1);
        match (state.search, late) {
            _ if trial && late => state.trial_at = state.rest(now),
            _ if trial => {
                state.out -= 1;
                state.rest = (state.rest / 2).max(FIRST_REST);
            }
            (Some(_), true) => state.out += 1,
            (Some((out, with_more)), false) => {
                state.search = None;
                if took > with_more {
                    state.out = out;
                    state.search_at = state.rest(now);
                } else {
                    state.trial_at = state.rest(now);
                }
            }
            (None, true) if state.search_at.is_none_or(|at| now >= at) => {
                state.search = Some((state.out, took));
                state.out += 1;
            }
            (None, _) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Runs of a machine where `took` says time and waits by the number of threads.
    struct Machine {
        team_size: TeamSize,
        now: Instant,
        team: usize,
    }

    impl Machine {
        fn new(team: usize) -> Self {
            Self { team_size: TeamSize::default(), now: Instant::now(), team }
        }

        /// One run; the number of threads that it took.
        fn run(&mut self, took: impl Fn(usize) -> (Duration, Duration)) -> usize {
            let count = self.team_size.count(self.team, self.now);
            let (took, waited) = took(count);
            self.now += took;
            self.team_size.ran(self.now, self.team, count, took, waited);
            count
        }
    }

    /// Work of 30 ms beside a program that takes as many cores as `taken`.
    fn beside(taken: usize, team: usize) -> impl Fn(usize) -> (Duration, Duration) {
        move |count| {
            let alone = 30 * MS / count as u32;
            if count + taken <= team { (alone, Duration::ZERO) } else { (alone * 4, alone * 3 * (count - 1) as u32) }
        }
    }

    #[test]
    fn all_threads_run_while_nothing_holds_them_up() {
        let mut machine = Machine::new(4);
        assert!((0..100).all(|_| machine.run(beside(0, 4)) == 4));
    }

    #[test]
    fn beside_a_program_as_many_run_as_have_a_core() {
        for (team, taken) in [(2, 1), (8, 1), (8, 3), (16, 8)] {
            let mut machine = Machine::new(team);
            (0..team).for_each(|_| {
                machine.run(beside(taken, team));
            });
            let began = machine.now;
            let runs: Vec<usize> = (0..2000).map(|_| machine.run(beside(taken, team))).collect();
            let right = runs.iter().filter(|&&count| count == team - taken).count();
            assert!(
                runs.iter().all(|&count| count.abs_diff(team - taken) <= 1),
                "{team} cores, {taken} taken: {runs:?}"
            );
            assert!(right > 1900, "{team} cores, {taken} taken: {right} of 2000 runs");
            assert!(2000 - right >= (machine.now - began).as_secs() as usize / 3, "{} trials", 2000 - right);
        }
    }

    #[test]
    fn threads_come_back_when_the_program_has_ended() {
        let mut machine = Machine::new(4);
        (0..500).for_each(|_| {
            machine.run(beside(2, 4));
        });
        let ended = machine.now;
        while machine.run(beside(0, 4)) < 4 {}
        assert!(machine.now - ended < LONGEST_REST + 100 * MS, "{:?}", machine.now - ended);
        assert!((0..100).all(|_| machine.run(beside(0, 4)) == 4));
    }

    #[test]
    fn work_that_one_thread_does_alone_keeps_its_threads() {
        // 20 ms that one thread does, 20 ms that all share.
        let took = |count: usize| (20 * MS + 20 * MS / count as u32, 20 * MS * (count - 1) as u32);
        let mut machine = Machine::new(2);
        let runs: Vec<usize> = (0..2000).map(|_| machine.run(took)).collect();
        let fewer = runs.iter().filter(|&&count| count < 2).count();
        assert!(fewer > 0, "such waits look like lateness at first");
        assert!(fewer < 60, "{fewer} of 2000 runs had one thread");
    }
}
