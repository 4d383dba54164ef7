//! `--disturb N`: threads of another program, as far as the backend can tell.

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
}

impl Drop for Disturbance {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
