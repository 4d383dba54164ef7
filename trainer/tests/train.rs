//! Whole runs on a few sentences: equal seeds, resumed runs, refusals.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use trainer::{Family, Silent, StepReport, TrainError, TrainOptions, Vocabulary, Watch, train};

const TEXT: &str = "One fox sits. Two foxes sit. Three foxes sit and look at one fox that runs.\n";

fn options(folder: &Path, family: Family, output: &str) -> TrainOptions {
    let text = folder.join("text.txt");
    fs::write(&text, TEXT.repeat(4)).unwrap();
    TrainOptions {
        layers: 1,
        width: 16,
        heads: 2,
        kv_heads: if family == Family::Llama { 1 } else { 2 },
        context: 16,
        epochs: 4,
        batch: 4,
        held_out: 0.2,
        save_every: 3,
        ..TrainOptions::new(family, text, folder.join(output))
    }
}

/// Stops a run after some steps.
struct StopAt(usize, usize);

impl Watch for StopAt {
    fn step(&mut self, report: &StepReport) {
        self.1 = report.step;
    }

    fn is_stopped(&self) -> bool {
        self.1 >= self.0
    }
}

fn file(folder: &Path, name: &str) -> Vec<u8> {
    fs::read(folder.join(name)).unwrap()
}

fn names(folder: &Path) -> Vec<PathBuf> {
    let mut names: Vec<_> = fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into()).collect();
    names.sort();
    names
}

#[test]
fn equal_seeds_give_equal_weights_and_a_resumed_run_is_the_one_that_was_not_stopped() {
    let folder = tempfile::tempdir().unwrap();
    for family in [Family::Gpt2, Family::Llama] {
        let at = |name: &str| options(folder.path(), family, &format!("{family}-{name}"));
        let (once, again, other) = (at("once"), at("again"), TrainOptions { seed: 1, ..at("other") });
        let trained = train(&once, &mut Silent).unwrap();
        train(&again, &mut Silent).unwrap();
        train(&other, &mut Silent).unwrap();
        assert!(trained.held_out.is_some() && trained.steps > 12, "{trained:?}");
        let weights = file(&once.output, "model.safetensors");
        assert_eq!(file(&again.output, "model.safetensors"), weights);
        assert_ne!(file(&other.output, "model.safetensors"), weights);
        let expected =
            ["config.json", "loss.csv", "loss.svg", "model.safetensors", "tokenizer.json", "tokenizer_config.json"];
        assert_eq!(names(&once.output), expected.map(PathBuf::from));

        // Stopped at a step that saves by itself, one that does not, and the last but one; then again.
        let stopped = at("stopped");
        let mut resume = false;
        for stop in [3, 7, trained.steps - 1] {
            let error = train(&TrainOptions { resume, ..stopped.clone() }, &mut StopAt(stop, 0)).unwrap_err();
            assert!(matches!(error, TrainError::Stopped { step, .. } if step == stop), "{error}");
            assert_eq!(names(&stopped.output), [PathBuf::from("training")]);
            resume = true;
        }
        train(&TrainOptions { resume, ..stopped.clone() }, &mut Silent).unwrap();
        assert_eq!(file(&stopped.output, "model.safetensors"), weights);
        assert_eq!(file(&stopped.output, "loss.csv"), file(&once.output, "loss.csv"));
    }
}

/// Leaves a run without its end, as a kill does: the state is the last one saved by itself.
struct Kill(usize);

impl Watch for Kill {
    fn step(&mut self, report: &StepReport) {
        assert!(report.step < self.0, "killed");
    }
}

#[test]
fn a_killed_run_resumes_from_its_last_saved_step() {
    let folder = tempfile::tempdir().unwrap();
    let whole = options(folder.path(), Family::Gpt2, "whole");
    train(&whole, &mut Silent).unwrap();
    let killed = options(folder.path(), Family::Gpt2, "killed");
    let ended = std::panic::catch_unwind(|| train(&killed, &mut Kill(8)));
    assert!(ended.is_err());
    train(&TrainOptions { resume: true, ..killed.clone() }, &mut Silent).unwrap();
    assert_eq!(file(&killed.output, "model.safetensors"), file(&whole.output, "model.safetensors"));
    assert_eq!(file(&killed.output, "loss.csv"), file(&whole.output, "loss.csv"));
}

#[test]
fn the_loss_falls_with_characters_and_with_bpe() {
    let folder = tempfile::tempdir().unwrap();
    for (name, vocabulary) in [("characters", Vocabulary::Characters), ("bpe", Vocabulary::Bpe(270))] {
        let options = TrainOptions { vocabulary, epochs: 30, ..options(folder.path(), Family::Gpt2, name) };
        let trained = train(&options, &mut Silent).unwrap();
        let losses = String::from_utf8(file(&options.output, "loss.csv")).unwrap();
        let first: f32 = losses.lines().nth(1).unwrap().split(',').nth(1).unwrap().parse().unwrap();
        assert!(trained.loss < 0.7 * first, "{name}: from {first} to {}", trained.loss);
    }
}

#[test]
fn what_cannot_be_trained_is_refused_and_nothing_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let good = options(folder.path(), Family::Gpt2, "model");
    let refused = |options: &TrainOptions| train(options, &mut Silent).unwrap_err().to_string();
    assert!(refused(&TrainOptions { context: 4000, ..good.clone() }).contains("expected more than the context, 4000"));
    assert!(refused(&TrainOptions { held_out: 0.01, ..good.clone() }).starts_with("the held-out part of"));
    let large = TrainOptions { vocabulary: Vocabulary::Bpe(9000), ..good.clone() };
    assert!(refused(&large).starts_with("a vocabulary of 9000 tokens: "));
    assert!(refused(&TrainOptions { text: folder.path().join("none"), ..good.clone() }).contains("none"));
    assert!(refused(&TrainOptions { resume: true, ..good.clone() }).ends_with("has no saved state of a training"));
    assert!(!good.output.exists(), "nothing is made by a refused run");

    fs::create_dir(&good.output).unwrap();
    fs::write(good.output.join("mine"), "kept").unwrap();
    assert!(refused(&good).ends_with("` exists"));
    assert_eq!(names(&good.output), [PathBuf::from("mine")]);

    let stopped = options(folder.path(), Family::Gpt2, "stopped");
    train(&stopped, &mut StopAt(4, 0)).unwrap_err();
    let error = refused(&TrainOptions { resume: true, seed: 9, ..stopped.clone() });
    assert_eq!(error, "the saved state is of a run with other options: `seed` was 0, is 9");
    let state = stopped.output.join("training/state.safetensors");
    let whole = fs::read(&state).unwrap();
    // More steps than the run has.
    let (length, rest) = whole.split_at(8);
    let (header, tensors) = rest.split_at(u64::from_le_bytes(length.try_into().unwrap()) as usize);
    let mut header: Value = serde_json::from_slice(header).unwrap();
    let mut record: Value = serde_json::from_str(header["__metadata__"]["training"].as_str().unwrap()).unwrap();
    record["steps"] = 500.into();
    record["losses"] = vec![record["losses"][0].clone(); 500].into();
    header["__metadata__"]["training"] = record.to_string().into();
    let header = header.to_string();
    let length = (header.len() as u64).to_le_bytes();
    fs::write(&state, [&length[..], header.as_bytes(), tensors].concat()).unwrap();
    let error = refused(&TrainOptions { resume: true, ..stopped.clone() });
    assert!(error.contains("cannot be used: it has done 500 steps, expected at most the "), "{error}");
    fs::write(&state, &whole[..whole.len() / 2]).unwrap();
    assert!(refused(&TrainOptions { resume: true, ..stopped }).contains("cannot be used"));
}
