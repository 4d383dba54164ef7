//! Amounts add up, large files are reported in small parts, and a compilation that is cancelled anywhere leaves nothing.

use super::*;
use crate::compile::{compile_and_prove, compile_with};
use crate::family::Family;
use crate::lower::tests::recorder::FakeTarget;
use crate::testmodel::TestModel;
use crate::{CompileError, CompileOptions, GraphKinds, Splits, Weights};
use std::cell::Cell;
use std::path::Path;

/// What came of a stage.
struct Seen {
    stage: Stage,
    announced: Amount,
    /// Of its items.
    came: Amount,
    /// Bytes of the item under way.
    within: u64,
    /// The largest part that was reported at once.
    largest: u64,
}

/// Records each stage with its announced and its reported amount.
#[derive(Default)]
struct Ledger {
    stages: Vec<Seen>,
    open: bool,
    notes: Vec<String>,
}

impl Progress for Ledger {
    fn begin(&mut self, stage: &Stage, announced: Amount) {
        assert!(!core::mem::replace(&mut self.open, true), "{stage} begins within another");
        let came = Amount::default();
        self.stages.push(Seen { stage: stage.clone(), announced, came, within: 0, largest: 0 });
    }

    fn advanced(&mut self, bytes: u64) {
        assert!(self.open, "{bytes} bytes outside of a stage");
        let seen = self.stages.last_mut().unwrap();
        seen.within += bytes;
        seen.largest = seen.largest.max(bytes);
    }

    fn item(&mut self, name: &str, bytes: u64) {
        assert!(self.open, "{name} outside of a stage");
        let seen = self.stages.last_mut().unwrap();
        assert!(seen.within <= bytes, "{name} of {}: reported {} of {bytes} bytes", seen.stage, seen.within);
        seen.largest = seen.largest.max(bytes - seen.within);
        seen.came = Amount { items: seen.came.items + 1, bytes: seen.came.bytes + bytes };
        seen.within = 0;
    }

    fn end(&mut self, stage: &Stage) {
        assert!(core::mem::replace(&mut self.open, false));
        assert_eq!(self.stages.last().unwrap().stage, *stage);
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
        let names: Vec<String> = ledger.stages.iter().map(|seen| seen.stage.to_string()).collect();
        let files = match splits {
            Splits::Mono => vec!["model.bin"],
            _ => vec!["lut.bin", "decoder.bin", "lmhead.bin"],
        };
        let n = files.len();
        let of_split = files.iter().zip(1..).flat_map(|(file, i)| {
            let made = [format!("convert weights {i}/{n}"), format!("finalize graphs {i}/{n}")];
            made.into_iter().chain(["lay out", "write", "flush"].map(|part| format!("{part} {file}")))
        });
        let expected: Vec<String> =
            ["hash source".into()].into_iter().chain(of_split).chain(["hash bundle".into()]).collect();
        assert_eq!(names, expected);
        for Seen { stage, announced, came, .. } in ledger.stages {
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

/// Of graphs with a weight as an input, and of those of cache rows, other weights are loaded than a split has.
#[test]
fn weights_that_are_announced_are_those_that_are_loaded() {
    let dir = tempfile::tempdir().unwrap();
    let model = dir.path().join("model");
    TestModel { tied: false, ..TestModel::tiny(Family::Llama) }.write(&model).unwrap();
    let plain = GraphKinds::default;
    let all = [
        ("inputs-embeds", GraphKinds { embeddings_input: true, ..plain() }),
        ("lmhead-weight-input", GraphKinds { head_weight_input: true, ..plain() }),
        ("rows-only", GraphKinds { rows_only: vec![8], ..plain() }),
    ];
    for (name, kinds) in all {
        for splits in [Splits::Mono, Splits::DecoderLmhead] {
            let mut options = CompileOptions::new(&model, dir.path().join(format!("{name}-{splits}")));
            (options.ars, options.cls, options.splits) = (vec![1, 8], vec![32], splits);
            options.kinds = kinds.clone();
            let mut ledger = Ledger::default();
            compile_with(&options, &mut FakeTarget::default(), &mut ledger).unwrap();
            let of_weights = |seen: &&Seen| matches!(seen.stage, Stage::Weights { .. });
            for Seen { stage, announced, came, .. } in ledger.stages.iter().filter(of_weights) {
                assert_eq!(announced, came, "{name}, {splits}, {stage}");
            }
        }
    }
}

/// A model whose only large tensor is the embedding table, of 10 MB, and options that write it to a file of its own as well.
fn large(dir: &Path) -> CompileOptions {
    let model = dir.join("model");
    TestModel { vocab: 40_000, ..TestModel::tiny(Family::Llama) }.write(&model).unwrap();
    let mut options = CompileOptions::new(&model, dir.join("bundle"));
    (options.ars, options.cls) = (vec![1], vec![16]);
    options.kinds = GraphKinds { embeddings_input: true, ..GraphKinds::default() };
    options
}

/// A single file of a model sat at 0 % and then at 100 %.
#[test]
fn a_large_file_is_reported_in_parts_of_a_few_megabytes() {
    const MOST: u64 = 4 << 20;
    let dir = tempfile::tempdir().unwrap();
    let options = large(dir.path());
    let mut ledger = Ledger::default();
    compile_with(&options, &mut FakeTarget::default(), &mut ledger).unwrap();
    for stage in [Stage::Hash, Stage::WeightFiles, Stage::Seal] {
        let seen = ledger.stages.iter().find(|seen| seen.stage == stage).unwrap();
        assert!(seen.announced.bytes > 2 * MOST, "{stage} has {} bytes: too few to tell", seen.announced.bytes);
        assert!(seen.largest <= MOST, "{stage}: {} bytes at once", seen.largest);
        assert_eq!(seen.announced, seen.came, "{stage}");
    }
}

/// Cancels when it is asked for the `left`th time, in a stage if one is given; nothing may begin or be done after that.
#[derive(Default)]
struct Cancelling {
    left: Cell<usize>,
    only: Option<Stage>,
    now: Option<Stage>,
}

impl Progress for Cancelling {
    fn begin(&mut self, stage: &Stage, _total: Amount) {
        assert!(self.left.get() > 0, "{stage} begins after the stop");
        self.now = Some(stage.clone());
    }

    fn item(&mut self, name: &str, _bytes: u64) {
        assert!(self.left.get() > 0, "{name} is done after the stop");
    }

    fn end(&mut self, _stage: &Stage) {
        self.now = None;
    }

    fn note(&mut self, _text: &str) {}

    fn cancelled(&self) -> bool {
        if self.only.is_none() || self.only == self.now {
            self.left.set(self.left.get().saturating_sub(1));
        }
        self.left.get() == 0
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
        let mut cancelling = Cancelling { left: n.into(), ..Cancelling::default() };
        match compile_with(&options, &mut FakeTarget::default(), &mut cancelling) {
            Err(CompileError::Cancelled) => asked = n,
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

/// Each of these passes went over gigabytes without asking. Here it asks for every megabyte of a file of ten, and ends in the middle.
#[test]
fn a_stop_ends_each_pass_over_a_large_file_in_the_middle() {
    let dir = tempfile::tempdir().unwrap();
    let options = large(dir.path());
    let out = &options.out_dir;
    std::fs::create_dir(out).unwrap();
    for stage in [Stage::Hash, Stage::WeightFiles, Stage::Seal] {
        let mut cancelling = Cancelling { left: 5.into(), only: Some(stage.clone()), now: None };
        let error = compile_with(&options, &mut FakeTarget::default(), &mut cancelling).unwrap_err();
        assert!(matches!(error, CompileError::Cancelled), "{stage}: {error}");
        assert_eq!(cancelling.now, Some(stage.clone()), "it ends within its stage");
        assert_eq!(std::fs::read_dir(out).unwrap().count(), 0, "{stage}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2, "{stage}: the model and the empty place");
    }
}

/// Weights are read by the thread that reads ahead, or by who asks; either asks within a tensor.
#[test]
fn a_stop_ends_the_reading_of_a_tensor() {
    let dir = tempfile::tempdir().unwrap();
    let model = TestModel { vocab: 40_000, ..TestModel::tiny(Family::Llama) };
    model.write(&dir.path().join("model")).unwrap();
    let checkpoint = crate::Checkpoint::open(&dir.path().join("model")).unwrap();
    let spec = crate::ModelSummary::read(&dir.path().join("model")).unwrap().spec;
    for weights in [Weights::Float, Weights::W8, Weights::Q8_0, Weights::Q4_0] {
        let format = crate::lower::Format::rounded(crate::Precision::F16, weights);
        let (mut reported, mut most) = (0, 0);
        let read = crate::lower::read_head(&spec, &checkpoint, format, &mut |bytes| {
            (reported, most) = (reported + 1, most.max(bytes));
            if reported == 3 { Err(CompileError::Cancelled) } else { Ok(()) }
        });
        assert!(matches!(read, Err(CompileError::Cancelled)), "{weights}");
        assert_eq!(reported, 3, "{weights}: nothing is read after the stop");
        assert!(most <= 1 << 20, "{weights}: {most} bytes at once");
    }
}

/// A proof that is cancelled is no fault of the bundle, whatever the proof says.
#[test]
fn a_stop_within_the_proof_is_a_cancelled_compilation() {
    let dir = tempfile::tempdir().unwrap();
    let model = dir.path().join("model");
    TestModel::tiny(Family::Llama).write(&model).unwrap();
    let mut options = CompileOptions::new(&model, dir.path().join("bundle"));
    (options.ars, options.cls) = (vec![1], vec![16]);
    let mut cancelling = Cancelling { left: 1.into(), only: Some(Stage::Try), now: None };
    let mut prove = |_: &Path, progress: &mut dyn Progress| {
        progress.begin(&Stage::Try, Amount { items: 1, bytes: 0 });
        if progress.cancelled() { Err("stopped".into()) } else { Ok(()) }
    };
    let error = compile_and_prove(&options, &mut FakeTarget::default(), &mut cancelling, &mut prove).unwrap_err();
    assert!(matches!(error, CompileError::Cancelled), "{error}");
    let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["model"]);
}
