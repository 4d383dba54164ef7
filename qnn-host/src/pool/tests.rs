//! The pool: each closure runs once per thread, barriers hold, panics reach the caller, runs of several clients do not overlap.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::*;

fn pool(threads: usize, spin_us: u64) -> Pool {
    Pool::new(&PoolOptions { threads, spin: Duration::from_micros(spin_us), pin: Vec::new() }).expect("threads start")
}

#[test]
fn every_thread_runs_once_with_its_own_index() {
    for threads in [1, 2, 3, 5] {
        for spin in [0, 20] {
            let pool = pool(threads, spin);
            assert_eq!(pool.threads(), threads);
            for _ in 0..200 {
                let seen: Vec<AtomicUsize> = (0..threads).map(|_| AtomicUsize::new(0)).collect();
                pool.run(&|w| {
                    assert_eq!(w.count(), threads);
                    seen[w.index()].fetch_add(1, Ordering::Relaxed);
                });
                assert!(seen.iter().all(|s| s.load(Ordering::Relaxed) == 1), "{threads} threads: {seen:?}");
            }
        }
    }
}

#[test]
fn a_barrier_separates_phases() {
    let pool = pool(4, 5);
    for _ in 0..100 {
        let phases: Vec<AtomicUsize> = (0..8).map(|_| AtomicUsize::new(0)).collect();
        pool.run(&|w| {
            for (i, phase) in phases.iter().enumerate() {
                if i > 0 {
                    assert_eq!(phases[i - 1].load(Ordering::Relaxed), 4, "phase {i} began early");
                }
                phase.fetch_add(1, Ordering::Relaxed);
                w.barrier();
            }
        });
    }
}

#[test]
fn a_panic_on_any_thread_reaches_the_caller_and_the_pool_survives() {
    let pool = pool(3, 5);
    for culprit in 0..3 {
        let thrown = catch_unwind(AssertUnwindSafe(|| {
            pool.run(&|w| {
                if w.index() == culprit {
                    panic!("thread {culprit} gives up");
                }
                w.barrier();
            });
        }))
        .expect_err("the panic must come out");
        let text = thrown.downcast_ref::<String>().expect("the culprit's own message");
        assert_eq!(*text, format!("thread {culprit} gives up"));
        let count = AtomicUsize::new(0);
        pool.run(&|w| {
            w.barrier();
            count.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(count.into_inner(), 3);
    }
}

#[test]
fn a_run_inside_a_run_is_inline() {
    let (outer, other) = (pool(2, 5), pool(2, 5));
    let count = AtomicUsize::new(0);
    outer.run(&|_| {
        for pool in [&outer, &other] {
            pool.run(&|w| {
                assert_eq!((w.index(), w.count()), (0, 1));
                w.barrier();
                count.fetch_add(1, Ordering::Relaxed);
            });
        }
    });
    assert_eq!(count.into_inner(), 4);
}

#[test]
fn clients_take_turns() {
    let pool = pool(2, 5);
    let (running, total) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..100 {
                    pool.run(&|_| {
                        assert!(running.fetch_add(1, Ordering::SeqCst) < 2, "two runs at once");
                        total.fetch_add(1, Ordering::Relaxed);
                        running.fetch_sub(1, Ordering::SeqCst);
                    });
                }
            });
        }
    });
    assert_eq!(total.into_inner(), 800);
}

#[test]
fn for_each_covers_every_task_once() {
    let pool = pool(3, 5);
    for n in [0, 1, 2, 3, 100] {
        let seen: Vec<AtomicUsize> = (0..n).map(|_| AtomicUsize::new(0)).collect();
        pool.for_each(n, &|i| {
            seen[i].fetch_add(1, Ordering::Relaxed);
        });
        assert!(seen.iter().all(|s| s.load(Ordering::Relaxed) == 1));
    }
}

#[test]
fn each_phase_counts_its_tasks_from_zero() {
    for threads in [1, 3] {
        let pool = pool(threads, 5);
        let counts: Vec<AtomicUsize> = (0..50).map(|_| AtomicUsize::new(0)).collect();
        pool.run(&|w| {
            for phase in 0..20 {
                for task in w.tasks(50) {
                    let before = counts[task].fetch_add(1, Ordering::Relaxed);
                    assert_eq!(before, phase, "task {task}");
                }
                w.barrier();
            }
        });
    }
}

#[test]
fn runs_of_tasks_cover_every_task_once_and_grow_short() {
    for threads in [1, 2, 3] {
        let pool = pool(threads, 5);
        for n in [0, 1, 2, 7, 100] {
            let seen: Vec<AtomicUsize> = (0..n).map(|_| AtomicUsize::new(0)).collect();
            pool.run(&|w| {
                for _ in 0..3 {
                    let mut last = usize::MAX;
                    let mut run = w.take_run(n);
                    while !run.is_empty() {
                        assert!(run.len() <= last.min(n.div_ceil(2 * threads)) && run.end <= n, "{run:?} of {n}");
                        last = run.len();
                        run.for_each(|task| {
                            seen[task].fetch_add(1, Ordering::Relaxed);
                        });
                        run = w.take_run(n);
                    }
                    assert!(w.take_run(n).is_empty(), "still none is left");
                    w.barrier();
                }
            });
            assert!(seen.iter().all(|s| s.load(Ordering::Relaxed) == 3), "{threads} threads, {n} tasks");
        }
    }
}

/// An efficiency core beside a fast one: a thread that is not done with its first tasks before all others are done has no more than those.
#[test]
fn a_slow_thread_has_its_first_tasks_and_no_others() {
    const N: usize = 100;
    for in_runs in [false, true] {
        let pool = pool(2, 5);
        let (fast, slow) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let next = |w: &Worker<'_>| {
            if in_runs {
                return w.take_run(N);
            }
            let task = w.take();
            task.min(N)..N.min(task + 1)
        };
        pool.run(&|w| {
            let mut tasks = next(&w);
            while !tasks.is_empty() {
                if w.index() == 0 {
                    fast.fetch_add(tasks.len(), Ordering::Relaxed);
                } else {
                    slow.fetch_add(tasks.len(), Ordering::Relaxed);
                    while fast.load(Ordering::Relaxed) + slow.load(Ordering::Relaxed) < N {
                        thread::yield_now();
                    }
                }
                tasks = next(&w);
            }
        });
        let (fast, slow) = (fast.into_inner(), slow.into_inner());
        assert!(fast + slow == N && slow <= if in_runs { N / 4 } else { 1 }, "{fast} and {slow}, in runs: {in_runs}");
    }
}

#[test]
fn shares_are_contiguous_aligned_and_complete() {
    for n in 0..70 {
        for unit in [1, 4, 16] {
            for count in 1..6 {
                let mut end = 0;
                for index in 0..count {
                    let part = share(n, unit, index, count);
                    assert_eq!(part.start, end, "n {n}, unit {unit}, {index} of {count}");
                    assert!(part.end == n || part.end.is_multiple_of(unit));
                    end = part.end;
                }
                assert_eq!(end, n);
            }
        }
    }
}

#[test]
#[cfg(target_os = "linux")]
fn pinned_threads_run_on_their_cores_and_the_caller_goes_back() {
    let before = cores();
    assert!(!before.is_empty(), "Linux reports the cores");
    let pin: Vec<usize> = before.iter().rev().copied().take(2).collect();
    for (threads, count) in [(0, pin.len()), (1, 1), (3, 3)] {
        let pool =
            Pool::new(&PoolOptions { threads, pin: pin.clone(), ..PoolOptions::default() }).expect("threads start");
        assert_eq!(pool.threads(), count, "{threads} asked for");
        for _ in 0..3 {
            pool.run(&|w| assert_eq!(cores(), [pin[w.index() % pin.len()]], "thread {}", w.index()));
            assert_eq!(cores(), before, "the caller is free again");
        }
        catch_unwind(AssertUnwindSafe(|| pool.run(&|_| panic!("on purpose")))).expect_err("the panic comes out");
        assert_eq!(cores(), before, "also after a panic");
    }
}

#[test]
fn cores_that_do_not_exist_change_nothing() {
    let before = cores();
    let pin = vec![1023, usize::MAX];
    let pool = Pool::new(&PoolOptions { threads: 2, pin, ..PoolOptions::default() }).expect("threads start");
    pool.run(&|_| assert_eq!(cores(), before));
    assert_eq!(cores(), before);
}

#[test]
fn cores_are_shown_as_runs() {
    for (cores, text) in [(&[][..], ""), (&[3], "3"), (&[0, 1], "0-1"), (&[0, 1, 2, 5, 7, 8], "0-2, 5, 7-8")] {
        assert_eq!(shown(cores), text);
    }
}

#[test]
fn runs_take_any_number_of_the_threads_and_name_the_whole_team() {
    let pool = pool(4, 5);
    for turn in 0..2000 {
        let count = 1 + turn * 7 % 4;
        let (seen, phases) = ([const { AtomicUsize::new(0) }; 4], AtomicUsize::new(0));
        pool.run_on(count, &|w| {
            assert_eq!((w.count(), w.team()), (count, 4));
            seen[w.index()].fetch_add(1, Ordering::Relaxed);
            w.barrier();
            phases.fetch_add(seen.iter().map(|s| s.load(Ordering::Relaxed)).sum(), Ordering::Relaxed);
        });
        let seen = seen.map(AtomicUsize::into_inner);
        assert!(seen.iter().enumerate().all(|(index, &n)| n == usize::from(index < count)), "{count}: {seen:?}");
        assert_eq!(phases.into_inner(), count * count, "all had arrived");
    }
}

#[test]
fn a_thread_that_keeps_others_waiting_is_left_out() {
    let (pool, team_size) = (pool(2, 5), TeamSize::default());
    let run = || {
        let count = AtomicUsize::new(0);
        pool.run_of(&team_size, &|w| {
            count.fetch_add(1, Ordering::Relaxed);
            if w.index() == 1 {
                thread::sleep(Duration::from_millis(20));
            }
            w.barrier();
        });
        count.into_inner()
    };
    assert_eq!(run(), 2, "all at first");
    // The second; later where this machine is so busy that the caller is put aside as well.
    assert!((0..50).any(|_| run() == 1));
}
