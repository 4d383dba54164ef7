//! Weights read and converted while the one before is passed on and packed.
//!
//! *Memory*: one weight beside the one in use. *Order*: that of [`super::weights::of_split`]; one that is asked for out of order is
//! read by who asks.

use super::encode::EncodedWeight;
use super::weight_format::{Format, WeightSpec};
use crate::Result;
use crate::checkpoint::Checkpoint;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::{Builder, Scope};

/// What a thread reads ahead. It ends once this is dropped.
pub(crate) struct ReadAhead {
    read: Receiver<(WeightSpec, Result<EncodedWeight>)>,
    /// The next of them, which was not asked for yet.
    next: Option<(WeightSpec, Result<EncodedWeight>)>,
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
        let work = move || {
            for weight in weights {
                let encoded = EncodedWeight::read(checkpoint, &weight, format);
                if give.send((weight, encoded)).is_err() {
                    return;
                }
            }
        };
        Builder::new().name("read-ahead".into()).spawn_scoped(scope, work).ok()?;
        Some(Self { read, next: None })
    }

    /// A weight, if it is the next; waits for it.
    pub(super) fn take(&mut self, weight: &WeightSpec) -> Option<Result<EncodedWeight>> {
        if self.next.is_none() {
            self.next = self.read.recv().ok();
        }
        self.next.take_if(|(next, _)| next == weight).map(|(_, encoded)| encoded)
    }
}

#[cfg(test)]
mod tests {
    use super::super::weights;
    use super::*;
    use crate::family::Family;
    use crate::testmodel::TestModel;
    use crate::{ModelSummary, Precision, Weights};

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
                let expected = EncodedWeight::read(&checkpoint, weight, format).unwrap();
                ahead.take(weight).map(|found| found.unwrap().bytes == expected.bytes)
            };
            assert_eq!(same(&all[0]), Some(true));
            assert_eq!(same(&all[2]), None, "out of order");
            assert_eq!(same(&all[1]), Some(true));
            let error = ahead.take(&missing).unwrap().unwrap_err().to_string();
            assert!(error.contains("none"), "{error}");
            // What is not taken keeps no thread waiting.
        });
    }
}
