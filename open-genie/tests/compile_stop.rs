//! A compilation for the embedded backend reports bytes through all of its stages, and a stop within any leaves nothing.

#![cfg(feature = "compile")]

use std::cell::Cell;
use std::path::Path;

use compiler::testmodel::TestModel;
use compiler::{Amount, CompileError, CompileOptions, Family, Progress, Stage};
use open_genie::{Error, Options};

/// Bytes at most that pass without a word.
const MOST: u64 = 16 << 20;

/// Records what was reported, and cancels at the `left`th question of a stage.
struct Watch {
    /// Stages with their bytes, and the largest number of bytes at once.
    seen: Vec<(Stage, u64, u64)>,
    within: u64,
    stop: Option<(Stage, Cell<usize>)>,
    is_open: bool,
    /// Questions since the last report, and the most of them, while weights are converted.
    in_a_row: Cell<(usize, usize)>,
}

impl Watch {
    fn new(stop: Option<(Stage, usize)>) -> Self {
        let stop = stop.map(|(stage, left)| (stage, left.into()));
        Self { seen: Vec::new(), within: 0, stop, is_open: false, in_a_row: Cell::default() }
    }

    fn reported(&mut self, bytes: u64) {
        self.in_a_row.set((0, self.in_a_row.get().1));
        let largest = &mut self.seen.last_mut().unwrap().2;
        *largest = bytes.max(*largest);
    }
}

impl Progress for Watch {
    fn begin(&mut self, stage: &Stage, total: Amount) {
        self.seen.push((stage.clone(), total.bytes, 0));
        (self.within, self.is_open) = (0, true);
    }

    fn advanced(&mut self, bytes: u64) {
        self.within += bytes;
        self.reported(bytes);
    }

    fn item(&mut self, name: &str, bytes: u64) {
        assert!(self.within <= bytes, "{name}: {} of {bytes}", self.within);
        self.reported(bytes - self.within);
        self.within = 0;
    }

    fn end(&mut self, _stage: &Stage) {
        self.is_open = false;
    }

    fn note(&mut self, _text: &str) {}

    fn cancelled(&self) -> bool {
        if self.is_open && matches!(self.seen.last(), Some((Stage::Weights { .. }, ..))) {
            let (now, most) = self.in_a_row.get();
            self.in_a_row.set((now + 1, most.max(now + 1)));
        }
        let Some((stage, left)) = &self.stop else { return false };
        if self.is_open && self.seen.last().is_some_and(|(now, ..)| now == stage) {
            left.set(left.get().saturating_sub(1));
        }
        left.get() == 0
    }
}

/// Bytes of the model's table.
const TABLE: u64 = 200_000 * 64 * 4;

/// A model with that table, in parts of several megabytes everywhere.
fn options(place: &Path) -> CompileOptions {
    let model = place.join("model");
    if !model.exists() {
        TestModel { vocab: 200_000, ..TestModel::tiny(Family::Llama) }.write(&model).unwrap();
    }
    let mut options = CompileOptions::new(&model, place.join("bundle"));
    (options.ars, options.cls, options.precision) = (vec![1, 8], vec![32], compiler::Precision::F32);
    options
}

#[test]
fn every_stage_tells_of_bytes_and_a_stop_within_it_leaves_nothing() {
    let place = tempfile::tempdir().unwrap();
    let (options, open) = (options(place.path()), Options::new());
    let compile = |watch: &mut Watch| {
        let backend = open_genie::open_backend(&open).unwrap();
        open_genie::compile(&options, &backend, &open, watch)
    };
    let mut whole = Watch::new(None);
    compile(&mut whole).unwrap();
    std::fs::remove_dir_all(&options.out_dir).unwrap();
    let names: Vec<String> = whole.seen.iter().map(|(stage, ..)| stage.to_string()).collect();
    let expected = [
        "hash source",
        "convert weights 1/1",
        "finalize graphs 1/1",
        "lay out model.bin",
        "write model.bin",
        "flush model.bin",
        "hash bundle",
        "compare bundle",
        "try bundle",
    ];
    assert_eq!(names, expected);
    // Two graphs are given the table, which is hashed and written, and hashed and compared.
    let (_, asked) = whole.in_a_row.get();
    assert!(asked > 2 * (TABLE >> 22) as usize, "asked {asked} times while a table is kept");

    for (stage, bytes, largest) in whole.seen {
        if !matches!(stage, Stage::Finalize { .. } | Stage::Try) {
            assert!(bytes > 2 * MOST, "{stage} has {bytes} bytes");
            // A tensor that is read faster than anyone waits for is reported as a whole.
            if !matches!(stage, Stage::Weights { .. }) {
                assert!(largest <= MOST, "{stage}: {largest} bytes at once");
            }
        }
        let mut watch = Watch::new(Some((stage.clone(), 2)));
        let error = compile(&mut watch).unwrap_err();
        assert!(matches!(error, Error::Compile(CompileError::Cancelled)), "{stage}: {error}");
        assert!(error.is_stopped());
        assert_eq!(watch.seen.last().unwrap().0, stage, "nothing begins after the stop");
        assert!(watch.is_open, "it ends within {stage}");
        let left: Vec<_> = std::fs::read_dir(place.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left, ["model"], "{stage}");
    }
}
