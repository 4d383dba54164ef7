//! Weights read and converted while the one before is passed on and packed.
//!
//! *Memory*: one weight beside the one in use. *Order*: that of [`super::weights::of_split`]; one that is asked for out of order is
//! read by who asks. *Stop*: who waits asks whether the compilation was cancelled, a few times a second, and tells the thread.

use super::encode::EncodedWeight;
use super::weight_format::{Format, WeightSpec};
use crate::checkpoint::Checkpoint;
use crate::{CompileError, Progress, Result};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread::{Builder, Scope};
use std::time::Duration;

/// How long who waits for a weight leaves the user without news.
const NEWS: Duration = Duration::from_millis(50);

/// What a thread reads ahead. It ends soon after this is dropped, within a weight too.
pub(crate) struct ReadAhead {
    read: Receiver<Result<EncodedWeight>>,
    /// The weights that were not taken yet, in their order.
    left: VecDeque<WeightSpec>,
    shared: Arc<Shared>,
}

/// What the thread and who waits for it tell each other.
#[derive(Default)]
struct Shared {
    /// Bytes that were read of the weight that the thread is at.
    bytes: AtomicU64,
    stop: AtomicBool,
}

impl ReadAhead {
    /// Starts with the first of these weights; `None` where the system has no thread for it.
    pub(super) fn start<'scope, 'a: 'scope>(
        scope: &'scope Scope<'scope, '_>,
        checkpoint: &'a Checkpoint,
        weights: Vec<WeightSpec>,
        format: Format,
    ) -> Option<Self> {
        // Without room in the channel: it reads the next one while the last waits for who asks.
        let (give, read) = sync_channel(0);
        let left = weights.iter().cloned().collect();
        let shared = Arc::new(Shared::default());
        let reported = shared.clone();
        let work = move || {
            for weight in weights {
                reported.bytes.store(0, Ordering::Relaxed);
                let encoded = EncodedWeight::read(checkpoint, &weight, format, &mut |n| {
                    reported.bytes.fetch_add(n, Ordering::Relaxed);
                    if reported.stop.load(Ordering::Relaxed) { Err(CompileError::Cancelled) } else { Ok(()) }
                });
                if give.send(encoded).is_err() {
                    return;
                }
            }
        };
        Builder::new().name("read-ahead".into()).spawn_scoped(scope, work).ok()?;
        Some(Self { read, left, shared })
    }

    /// A weight, if it is the next; waits for it, and tells meanwhile how much of it was read. A cancelled compilation is an error.
    pub(super) fn take(&mut self, weight: &WeightSpec, progress: &mut dyn Progress) -> Option<Result<EncodedWeight>> {
        self.left.pop_front_if(|next| *next == *weight)?;
        let mut reported = 0;
        loop {
            if progress.cancelled() {
                self.shared.stop.store(true, Ordering::Relaxed);
                return Some(Err(CompileError::Cancelled));
            }
            match self.read.recv_timeout(NEWS) {
                Ok(encoded) => return Some(encoded),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return None,
            }
            let read = self.shared.bytes.load(Ordering::Relaxed);
            if read > reported {
                progress.advanced(read - reported);
                reported = read;
            }
        }
    }
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::super::weights;
    use super::*;
    use crate::family::Family;
    use crate::testmodel::TestModel;
    use crate::{ModelSummary, Precision, Silent, Weights};

    #[test]
    fn what_is_asked_for_in_any_order_is_what_is_read_directly() {
        let place = tempfile::tempdir().unwrap();
        TestModel::tiny(Family::Llama).write(place.path()).unwrap();
        let (spec, checkpoint) =
            (ModelSummary::read(place.path()).unwrap().spec, Checkpoint::open(place.path()).unwrap());
        let format = Format::rounded(Precision::F32, Weights::Float);
        let mut all = Vec::new();
        weights::of_layer(&spec, 0, format).map(|w| all.push(w.clone()));
        let missing = WeightSpec { name: "none".into(), ..all[0].clone() };
        let list = vec![all[0].clone(), all[1].clone(), missing.clone(), all[2].clone()];
        std::thread::scope(|scope| {
            let mut ahead = ReadAhead::start(scope, &checkpoint, list, format).unwrap();
            let mut same = |weight: &WeightSpec| {
                let expected = EncodedWeight::read(&checkpoint, weight, format, &mut |_| Ok(())).unwrap();
                ahead.take(weight, &mut Silent).map(|found| found.unwrap().bytes == expected.bytes)
            };
            assert_eq!(same(&all[0]), Some(true));
            assert_eq!(same(&all[2]), None, "out of order");
            assert_eq!(same(&all[1]), Some(true));
            let error = ahead.take(&missing, &mut Silent).unwrap().unwrap_err().to_string();
            assert!(error.contains("none"), "{error}");
            // What is not taken keeps no thread waiting.
        });
    }

    /// The waiting for a tensor, and the end of the thread after it, took as long as reading the tensor did.
    #[test]
    fn a_stop_ends_the_waiting_and_the_thread_within_a_tensor() {
        struct Stopped;
        impl Progress for Stopped {
            fn begin(&mut self, _stage: &crate::Stage, _total: crate::Amount) {}
            fn item(&mut self, _name: &str, _bytes: u64) {}
            fn end(&mut self, _stage: &crate::Stage) {}
            fn note(&mut self, _text: &str) {}
            fn cancelled(&self) -> bool {
                true
            }
        }
        let place = tempfile::tempdir().unwrap();
        let model = TestModel { vocab: 400_000, tied: false, ..TestModel::tiny(Family::Llama) };
        model.write(place.path()).unwrap();
        let (spec, checkpoint) =
            (ModelSummary::read(place.path()).unwrap().spec, Checkpoint::open(place.path()).unwrap());
        // Scales of blocks are searched for, which takes a while.
        let format = Format::rounded(Precision::F32, Weights::Q4_0);
        let head = weights::lm_head(&spec, format);
        let mut bytes = 0;
        let whole = EncodedWeight::read(&checkpoint, &head, format, &mut |n| {
            bytes += n;
            Ok(())
        });
        let whole = whole.unwrap();
        assert_eq!(bytes, whole.source_bytes);
        let read = std::thread::scope(|scope| {
            let mut ahead = ReadAhead::start(scope, &checkpoint, vec![head.clone()], format).unwrap();
            let taken = ahead.take(&head, &mut Stopped).unwrap();
            assert!(matches!(taken, Err(CompileError::Cancelled)), "{taken:?}");
            ahead.shared.bytes.load(Ordering::Relaxed)
        });
        assert!(read < whole.source_bytes, "it was read as a whole");
    }
}
