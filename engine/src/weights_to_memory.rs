//! Moves the weights of a running engine from mapped files into memory, behind its first steps.
//!
//! The embedded backend reads weights from huge pages faster (docs/bench-results.md, "Huge pages"), which few file systems have. To read a
//! file costs as much as several steps, so that a prompt with a token or two behind it is better off without.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};
use qnn_api::{Context, MappedBinary};

use crate::memory;

/// Steps behind which weights are moved.
const STEPS: usize = 16;
/// Smaller files may have no whole huge page, and come out of caches anyway.
const LEAST: usize = 4 << 20;

/// A thread that waits for it. It is there from the beginning: no step allocates.
#[derive(Debug, Default)]
pub(crate) struct WeightsToMemory {
    thread: Option<JoinHandle<()>>,
    signal: Arc<Signal>,
    /// Executions of graphs until then.
    left: usize,
}

/// What the thread waits for.
#[derive(Debug, Default)]
struct Signal {
    wish: Mutex<Wish>,
    changed: Condvar,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Wish {
    #[default]
    Wait,
    Move,
    End,
}

impl Signal {
    fn send(&self, wish: Wish) {
        *self.wish.lock() = wish;
        self.changed.notify_one();
    }

    fn receive(&self) -> Wish {
        let mut wish = self.wish.lock();
        self.changed.wait_while(&mut wish, |wish| *wish == Wish::Wait);
        *wish
    }
}

impl WeightsToMemory {
    /// Those of the contexts that a backend reads in place; a step executes `splits` graphs.
    pub(crate) fn of(contexts: &[Context], splits: usize) -> Self {
        let mapped = contexts.iter().filter_map(Context::mapped_binary);
        let binaries: Vec<_> = mapped.filter(|binary| binary.bytes() >= LEAST).cloned().collect();
        if binaries.is_empty() {
            return Self::default();
        }
        let signal = Arc::new(Signal::default());
        let wishes = signal.clone();
        let wait = move || {
            if wishes.receive() == Wish::Move {
                move_all(&binaries, memory::available);
            }
        };
        let started = std::thread::Builder::new().name("weights".to_owned()).spawn(wait);
        let thread = started.inspect_err(|error| {
            tracing::warn!("weights stay mapped, though `use-mmap` is false: no thread to move them: {error}");
        });
        Self { thread: thread.ok(), signal, left: STEPS * splits }
    }

    /// A graph is executed. Lets the thread begin when it is the last to wait for.
    pub(crate) fn count(&mut self) {
        if self.left > 0 {
            self.left -= 1;
            if self.left == 0 {
                self.signal.send(Wish::Move);
            }
        }
    }

    /// Has them moved now, and waits until they are.
    pub(crate) fn finish(&mut self) {
        self.left = 0;
        self.signal.send(Wish::Move);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
    }
}

/// Waits for the thread, which ends at once, or with the piece at hand when the contexts are gone: after it they are freed.
impl Drop for WeightsToMemory {
    fn drop(&mut self) {
        self.signal.send(Wish::End);
        // A panic of the thread was reported when it happened.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Moves them one after the other, as long as memory has room: `available` bytes before each.
fn move_all(binaries: &[MappedBinary], available: impl Fn() -> Option<u64>) {
    for binary in binaries {
        let (began, len) = (Instant::now(), binary.bytes() as u64);
        if let Some(available) = available().filter(|&available| !memory::has_room(available, len)) {
            tracing::warn!(
                "{}: stays mapped, though `use-mmap` is false: it has {} MB, and {} MB of memory are available",
                binary.path().display(),
                len.div_ceil(1_000_000),
                available / 1_000_000
            );
            continue;
        }
        match binary.move_to_memory() {
            Ok(bytes) => tracing::debug!(
                path = %binary.path().display(),
                bytes,
                ms = began.elapsed().as_millis(),
                "weights moved into memory"
            ),
            Err(error) => tracing::warn!("{}: stays mapped in part: {error}", binary.path().display()),
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use qnn_api::ContextOptions;
    use testkit::mapped_bytes;

    use super::*;

    #[test]
    fn a_file_stays_mapped_where_memory_has_no_room() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("encoder.bin");
        let backend = testkit::linked_backend();
        // 16 MB.
        testkit::save_encoder(&path, 8192, 512);
        let loaded = Context::from_file(&backend, &path, &ContextOptions::default()).unwrap();
        let binaries = [loaded.mapped_binary().expect("the embedded backend maps it").clone()];
        let len = std::fs::metadata(&path).unwrap().len();
        // A quarter more than the file must be there.
        move_all(&binaries, || Some(len + len / 5));
        assert!(mapped_bytes(&path) >= len);
        move_all(&binaries, || Some(len + len / 3));
        // Two huge pages: the first and the last of the file need not be whole.
        assert!(mapped_bytes(&path) <= 4 << 20, "{} of {len} bytes are mapped", mapped_bytes(&path));
    }
}
