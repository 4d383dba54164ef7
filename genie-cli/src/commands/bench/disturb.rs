//! `--disturb N`: threads of another program, as far as the backend can tell.
//!
//! *Invariant*: they run while a test and its profile are taken, and not while limits are measured.

use std::hint::black_box;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

/// Threads that compute without a pause, and without memory, for as long as this lives. The system gives each as much time as a thread of the
/// backend.
pub struct Disturbance {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Disturbance {
    /// Starts `n` threads.
    ///
    /// # Errors
    /// When the system has no more.
    pub fn start(n: usize) -> io::Result<Self> {
        let mut disturbance = Self { stop: Arc::default(), threads: Vec::new() };
        for i in 0..n {
            let stop = Arc::clone(&disturbance.stop);
            let thread = thread::Builder::new().name(format!("disturb-{i}")).spawn(move || {
                let mut x = i as u64 | 1;
                while !stop.load(Ordering::Relaxed) {
                    for _ in 0..1024 {
                        x = black_box(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
                    }
                }
            })?;
            disturbance.threads.push(thread);
        }
        Ok(disturbance)
    }

    /// How many threads run.
    pub fn n_threads(&self) -> usize {
        self.threads.iter().filter(|thread| !thread.is_finished()).count()
    }
}

impl Drop for Disturbance {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::time::{Duration, Instant};

    use super::*;

    /// Of the threads of this process with that name: clock ticks of processor time (user and system) that each has used.
    fn ticks_of(name: &str) -> Vec<u64> {
        let ticks = |task: &Path| -> Option<u64> {
            let stat = fs::read_to_string(task.join("stat")).ok()?;
            // `pid (name) state ...`: times are the 14th and 15th field, the 12th and 13th behind the name.
            let (head, tail) = stat.rsplit_once(") ")?;
            let fields: Vec<&str> = tail.split(' ').collect();
            let time = |at: usize| fields.get(at)?.parse::<u64>().ok();
            head.ends_with(&format!("({name}")).then_some(time(11)? + time(12)?)
        };
        let tasks = fs::read_dir("/proc/self/task").unwrap();
        tasks.filter_map(|task| ticks(&task.ok()?.path())).collect()
    }

    #[test]
    fn each_thread_uses_processor_time_until_it_is_dropped() {
        let disturbance = Disturbance::start(2).unwrap();
        assert_eq!(disturbance.n_threads(), 2);
        let names = ["disturb-0", "disturb-1"];
        let wait_until = |wanted: fn(&[u64]) -> bool, or: &str| {
            let began = Instant::now();
            loop {
                let found = names.map(ticks_of);
                if found.iter().all(|ticks| wanted(ticks)) {
                    return;
                }
                assert!(began.elapsed() < Duration::from_secs(60), "{or}: {found:?}");
                thread::sleep(Duration::from_millis(5));
            }
        };
        wait_until(|ticks| ticks.iter().any(|ticks| *ticks > 0), "no processor time is used");
        drop(disturbance);
        // A thread that was joined is listed until the system has taken it apart, a moment later.
        wait_until(<[u64]>::is_empty, "threads are left");
    }

    #[test]
    fn none_are_started_where_none_are_wanted() {
        assert_eq!(Disturbance::start(0).unwrap().n_threads(), 0);
    }
}
