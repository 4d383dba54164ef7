//! Moves the weights of a running engine from mapped files into memory, behind its first steps.
//!
//! The embedded backend reads weights from huge pages faster (docs/bench.md, "Huge pages"), which few file systems have. To read a
//! file costs as much as several steps, so that a prompt with a token or two behind it is better off without.

use std::thread::JoinHandle;
use std::time::Instant;

use qnn_api::{Context, MappedBinary};

use crate::memory;

/// Steps behind which weights are moved.
const STEPS: usize = 16;

/// Binaries that wait for it.
#[derive(Debug, Default)]
pub(crate) struct WeightsToMemory {
    binaries: Vec<MappedBinary>,
    /// Executions of graphs until then.
    left: usize,
    /// What moves them.
    thread: Option<JoinHandle<()>>,
}

impl WeightsToMemory {
    /// Those of the contexts that a backend reads in place; a step executes `splits` graphs.
    pub(crate) fn of(contexts: &[Context], splits: usize) -> Self {
        Self {
            binaries: contexts.iter().filter_map(Context::mapped_binary).cloned().collect(),
            left: STEPS * splits,
            thread: None,
        }
    }

    /// A graph was executed. Starts a thread when it was the last to wait for.
    pub(crate) fn count(&mut self) {
        if self.binaries.is_empty() {
            return;
        }
        self.left = self.left.saturating_sub(1);
        if self.left == 0 {
            let binaries = std::mem::take(&mut self.binaries);
            match std::thread::Builder::new().name("weights".to_owned()).spawn(move || move_all(&binaries)) {
                Ok(thread) => self.thread = Some(thread),
                Err(error) => {
                    tracing::warn!("weights stay mapped, though `use-mmap` is false: no thread to move them: {error}");
                }
            }
        }
    }

    /// Moves them now, or waits until they are.
    pub(crate) fn finish(&mut self) {
        move_all(&std::mem::take(&mut self.binaries));
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
    }
}

/// Waits for the thread, which ends with the piece at hand when the contexts are gone: after it they are freed.
impl Drop for WeightsToMemory {
    fn drop(&mut self) {
        // A panic of the thread was reported when it happened.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Moves them one after the other, as long as memory has room.
fn move_all(binaries: &[MappedBinary]) {
    for binary in binaries {
        let (began, len) = (Instant::now(), binary.bytes() as u64);
        if let Some(available) = memory::available().filter(|&available| !memory::has_room(available, len)) {
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
