//! Progress reports of a running compilation.

use std::time::Duration;

/// A stretch of work with a known amount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Hashing the source files.
    Hash,
    /// Reading, converting and composing one split's weights.
    Weights {
        /// The split, counted from 1.
        split: usize,
        /// How many splits there are.
        n_splits: usize,
    },
    /// The backend prepares one split's graphs; items are graphs.
    Finalize {
        /// The split, counted from 1.
        split: usize,
        /// How many splits there are.
        n_splits: usize,
    },
    /// Hashing what was written.
    Seal,
}

impl core::fmt::Display for Stage {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Hash => f.write_str("hash source"),
            Self::Weights { split, n_splits } => write!(f, "convert weights {split}/{n_splits}"),
            Self::Finalize { split, n_splits } => write!(f, "finalize graphs {split}/{n_splits}"),
            Self::Seal => f.write_str("hash bundle"),
        }
    }
}

/// Amount of work: `items` are files, tensors or graphs, by stage; `bytes` is 0 where bytes do not apply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Files, tensors or graphs.
    pub items: u64,
    /// Bytes read.
    pub bytes: u64,
}

/// Receives progress. Calls come in the order `begin`, any number of `item`, `end`, for each stage; `note` at any time.
pub trait Progress {
    /// A stage starts; `total` is the sum of its `item` calls.
    fn begin(&mut self, stage: &Stage, total: Amount);
    /// One item of the current stage is done.
    fn item(&mut self, name: &str, bytes: u64);
    /// Work on an item of the current stage starts that may take minutes; its [`Progress::item`] follows.
    fn working(&mut self, _name: &str) {}
    /// How long the backend took to prepare a graph.
    fn timed(&mut self, _graph: &str, _took: Duration) {}
    /// The current stage is over.
    fn end(&mut self, stage: &Stage);
    /// A message to the user that is not an error.
    fn note(&mut self, text: &str);
    /// Whether the compilation is to end: asked between two tensors, graphs and pieces of a file that is hashed. It then fails
    /// with [`CompileError::Cancelled`](crate::CompileError::Cancelled), and nothing that it has written is left.
    fn cancelled(&self) -> bool {
        false
    }
}

/// Fails if the compilation was cancelled.
pub(crate) fn go_on(progress: &dyn Progress) -> crate::Result<()> {
    if progress.cancelled() { Err(crate::CompileError::Cancelled) } else { Ok(()) }
}

/// Discards progress; notes go to `tracing`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Progress for Silent {
    fn begin(&mut self, _stage: &Stage, _total: Amount) {}
    fn item(&mut self, _name: &str, _bytes: u64) {}
    fn end(&mut self, _stage: &Stage) {}
    fn note(&mut self, text: &str) {
        tracing::warn!("{text}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::compile_with;
    use crate::family::Family;
    use crate::lower::tests::recorder::FakeTarget;
    use crate::testmodel::TestModel;
    use crate::{CompileOptions, Splits};

    /// Records each stage with its announced and its reported amount.
    #[derive(Default)]
    struct Ledger {
        stages: Vec<(Stage, Amount, Amount)>,
        open: bool,
        notes: Vec<String>,
    }

    impl Progress for Ledger {
        fn begin(&mut self, stage: &Stage, total: Amount) {
            assert!(!core::mem::replace(&mut self.open, true), "{stage} begins within another");
            self.stages.push((stage.clone(), total, Amount::default()));
        }

        fn item(&mut self, name: &str, bytes: u64) {
            assert!(self.open, "{name} outside of a stage");
            let came = &mut self.stages.last_mut().unwrap().2;
            *came = Amount { items: came.items + 1, bytes: came.bytes + bytes };
        }

        fn end(&mut self, stage: &Stage) {
            assert!(core::mem::replace(&mut self.open, false));
            assert_eq!(self.stages.last().unwrap().0, *stage);
        }

        fn note(&mut self, text: &str) {
            self.notes.push(text.into());
        }
    }

    #[test]
    fn reported_amounts_add_up_to_the_announced() {
        let dir = tempfile::tempdir().unwrap();
        let model = dir.path().join("model");
        TestModel { max_positions: 40, ..TestModel::tiny(Family::Llama) }.write(&model).unwrap();
        for splits in [Splits::Mono, Splits::LutDecoderLmhead] {
            let mut options = CompileOptions::new(&model, dir.path().join(splits.to_string()));
            (options.ars, options.cls, options.splits) = (vec![1, 32], vec![16, 64], splits);
            let mut ledger = Ledger::default();
            compile_with(&options, &mut FakeTarget::default(), &mut ledger).unwrap();
            let names: Vec<String> = ledger.stages.iter().map(|(stage, ..)| stage.to_string()).collect();
            let n = if splits == Splits::Mono { 1 } else { 3 };
            let splits = (1..=n).flat_map(|i| [format!("convert weights {i}/{n}"), format!("finalize graphs {i}/{n}")]);
            let expected: Vec<String> =
                ["hash source".into()].into_iter().chain(splits).chain(["hash bundle".into()]).collect();
            assert_eq!(names, expected);
            for (stage, announced, came) in ledger.stages {
                assert_eq!(announced, came, "{stage}");
                assert!(announced.items > 0, "{stage}");
            }
            assert_eq!(
                ledger.notes,
                [
                    "left out AR-32 CL-16: the AR is wider than the context",
                    "CL-64 is longer than the 40 positions the model was trained for",
                ]
            );
        }
    }

    /// Cancels when it is asked for the `left`th time.
    struct Cancelling(std::cell::Cell<usize>);

    impl Progress for Cancelling {
        fn begin(&mut self, _stage: &Stage, _total: Amount) {}
        fn item(&mut self, _name: &str, _bytes: u64) {}
        fn end(&mut self, _stage: &Stage) {}
        fn note(&mut self, _text: &str) {}
        fn cancelled(&self) -> bool {
            self.0.set(self.0.get().saturating_sub(1));
            self.0.get() == 0
        }
    }

    /// Row 10, D4: wherever a compilation is cancelled, nothing of it is left, and what was there before stays.
    #[test]
    fn a_cancelled_compilation_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let model = dir.path().join("model");
        TestModel::tiny(Family::Llama).write(&model).unwrap();
        let mut options = CompileOptions::new(&model, dir.path().join("bundle"));
        (options.ars, options.cls, options.splits) = (vec![1, 8], vec![16], Splits::DecoderLmhead);
        let mut asked = 0;
        for n in 1.. {
            match compile_with(&options, &mut FakeTarget::default(), &mut Cancelling(n.into())) {
                Err(crate::CompileError::Cancelled) => asked = n,
                done => {
                    done.unwrap();
                    break;
                }
            }
            let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            assert_eq!(left, ["model"], "cancelled at {n}");
        }
        assert!(asked > 20, "tensors, graphs and files: {asked}");
        assert!(dir.path().join("bundle/manifest.json").is_file());
    }
}
