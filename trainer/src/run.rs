//! The loop.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use file_io::FileError;
use xxhash_rust::xxh3::xxh3_64;

use crate::adamw::AdamW;
use crate::batches::Batch;
use crate::error::{Result, TrainError};
use crate::families::Extents;
use crate::model_files;
use crate::options::TrainOptions;
use crate::parameters::Parameters;
use crate::schedule;
use crate::state::{self, Loss, Record};
use crate::text::{self, Text};

/// Windows that the held-out text is measured on, at most.
const HELD_OUT_WINDOWS: usize = 16;
/// Steps that the final loss is the mean of.
const LAST: usize = 10;

/// What a step did.
#[derive(Clone, Copy, Debug)]
pub struct StepReport {
    /// Steps done.
    pub step: usize,
    /// Steps in all.
    pub steps: usize,
    /// Loss of the step's windows, in nats per token.
    pub loss: f32,
    /// Loss of the held-out text, when it was last measured.
    pub held_out: Option<f32>,
    /// Tokens that the step processed.
    pub tokens: usize,
}

/// Follows a run.
pub trait Watch {
    /// Before the first step: numbers of weights and of tokens in the vocabulary and the text, steps done before and in all.
    fn begin(&mut self, weights: usize, vocabulary: usize, tokens: usize, done: usize, steps: usize) {
        let _ = (weights, vocabulary, tokens, done, steps);
    }

    /// After each step.
    fn step(&mut self, report: &StepReport) {
        let _ = report;
    }

    /// Asked after each step: the run then saves its state and ends with [`TrainError::Stopped`].
    fn is_stopped(&self) -> bool {
        false
    }
}

/// Follows nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Watch for Silent {}

/// A run that came to its end.
#[derive(Clone, Debug, PartialEq)]
pub struct Trained {
    /// The folder.
    pub output: PathBuf,
    /// Steps in all.
    pub steps: usize,
    /// Mean loss of the last ten steps, in nats per token.
    pub loss: f32,
    /// Last loss of the held-out text.
    pub held_out: Option<f32>,
    /// Numbers of the model.
    pub weights: usize,
    /// Tokens of the vocabulary.
    pub vocabulary: usize,
    /// Tokens that this call processed.
    pub tokens: usize,
    /// What this call took.
    pub took: Duration,
}

/// Trains a model and writes its folder.
///
/// # Errors
/// Options or a text that no model can be trained with, an output that exists, a state of another run, files that cannot be
/// written, and [`TrainError::Stopped`]. The last saved state stays in the output.
pub fn train(options: &TrainOptions, watch: &mut dyn Watch) -> Result<Trained> {
    options.check()?;
    if options.resume && !state::path(&options.output).exists() {
        return Err(TrainError::NoState(options.output.clone()));
    }
    if !options.resume && options.output.symlink_metadata().is_ok() {
        return Err(TrainError::OutputExists(options.output.clone()));
    }
    let given = file_io::read_text(&options.text).map_err(FileError::io("read", &options.text))?;
    let text = text::encode(&options.text, &given, options.vocabulary)?;
    let (ids, held_out) = split(options, &text)?;
    let extents = Extents::new(options, text.n_vocab);
    let parameters = Parameters::begin(&extents.weights(), options.seed)?;
    let adamw = AdamW::begin(&parameters)?;
    let mut record = Record { options: options.identity(xxh3_64(given.as_bytes()), text.n_vocab), ..Record::default() };
    if options.resume {
        record = resumed(options, record)?;
        state::load(&options.output, &parameters, &adamw)?;
    } else {
        let folder = options.output.join(state::FOLDER);
        fs::create_dir_all(&folder).map_err(FileError::io("create", &folder))?;
        // A disk that has no room for it is found now.
        state::save(&options.output, &parameters, &adamw, &record)?;
    }
    let began = Instant::now();
    let per_step = options.batch * options.context;
    let steps = options.epochs * ids.len().div_ceil(per_step);
    if record.steps > steps {
        let detail = format!("it has done {} steps, expected at most the {steps} of this run", record.steps);
        return Err(TrainError::State { path: state::path(&options.output), detail });
    }
    watch.begin(parameters.n_elems(), text.n_vocab, text.ids.len(), record.steps, steps);
    let before = record.steps;
    let mut measured = record.losses.iter().rev().find_map(|loss| loss.held_out);
    while record.steps < steps {
        let step = record.steps;
        let rate = schedule::rate(step, steps, options.warm_up, options.learning_rate);
        let batch = Batch::of_step(ids, options.context, options.batch, options.seed, step)?;
        let loss = extents.loss(&parameters, &batch.inputs, &batch.targets)?;
        let train = loss.to_scalar::<f32>()?;
        if !train.is_finite() {
            return Err(TrainError::Diverged { step, loss: train });
        }
        adamw.step(&parameters, &loss.backward()?, step, rate, options.weight_decay)?;
        record.steps += 1;
        let is_due = record.steps.is_multiple_of(options.save_every) || record.steps == steps;
        let now = match held_out {
            Some(ids) if is_due => Some(measure(&extents, &parameters, ids, options.context)?),
            _ => None,
        };
        measured = now.or(measured);
        record.losses.push(Loss { step: record.steps, train, held_out: now, rate: rate as f32 });
        watch.step(&StepReport { step: record.steps, steps, loss: train, held_out: measured, tokens: per_step });
        let is_stopped = watch.is_stopped() && record.steps < steps;
        if is_due || is_stopped {
            state::save(&options.output, &parameters, &adamw, &record)?;
        }
        if is_stopped {
            return Err(TrainError::Stopped { step: record.steps, steps, output: options.output.clone() });
        }
    }
    model_files::write(&options.output, &extents, &text, &parameters, &record)?;
    let last = &record.losses[record.losses.len().saturating_sub(LAST)..];
    Ok(Trained {
        output: options.output.clone(),
        steps,
        loss: last.iter().map(|l| l.train).sum::<f32>() / last.len().max(1) as f32,
        held_out: measured,
        weights: parameters.n_elems(),
        vocabulary: text.n_vocab,
        tokens: (steps - before) * per_step,
        took: began.elapsed(),
    })
}

/// The part that is trained on, and the held-out one.
fn split<'a>(options: &TrainOptions, text: &'a Text) -> Result<(&'a [u32], Option<&'a [u32]>)> {
    let context = options.context;
    let n_held_out = (text.ids.len() as f64 * options.held_out).round() as usize;
    let (ids, held_out) = text.ids.split_at(text.ids.len() - n_held_out);
    if ids.len() <= context {
        return Err(TrainError::ShortText { text: options.text.clone(), found: ids.len(), context });
    }
    if options.held_out > 0.0 && held_out.len() <= context {
        return Err(TrainError::ShortHeldOut { text: options.text.clone(), found: held_out.len(), context });
    }
    Ok((ids, (!held_out.is_empty()).then_some(held_out)))
}

fn measure(extents: &Extents, parameters: &Parameters, ids: &[u32], context: usize) -> Result<f32> {
    let batch = Batch::side_by_side(ids, context, HELD_OUT_WINDOWS)?;
    Ok(extents.loss(parameters, &batch.inputs, &batch.targets)?.to_scalar::<f32>()?)
}

/// The saved record, if it is of a run with these options.
fn resumed(options: &TrainOptions, now: Record) -> Result<Record> {
    let saved = state::record(&options.output)?;
    let differs = saved.options.iter().zip(&now.options).find(|(saved, now)| saved != now);
    if let Some(((name, saved), (_, given))) = differs {
        return Err(TrainError::OtherRun { name: name.clone(), saved: saved.clone(), given: given.clone() });
    }
    if saved.options.len() != now.options.len() || saved.losses.len() != saved.steps {
        let detail =
            format!("{} options and {} losses of {} steps", saved.options.len(), saved.losses.len(), saved.steps);
        return Err(TrainError::State { path: state::path(&options.output), detail });
    }
    Ok(saved)
}
