//! `genie train`: a tiny GPT-2 or Llama trained on a text file, ready for `genie compile`. Cargo feature `train`.

use std::path::PathBuf;
use std::str::FromStr;

use anyhow::Result;
use indicatif::ProgressBar;
use serde_json::json;
use trainer::{Family, StepReport, TrainError, TrainOptions, Trained, Vocabulary, Watch};

use crate::args::number;
use crate::exit::ExitStatus;
use crate::interrupt::Interrupted;
use crate::printer::Printer;

/// Flags of `genie train`.
#[derive(clap::Args)]
pub struct Args {
    /// The text to train on, UTF-8.
    #[arg(value_name = "TEXT")]
    pub text: PathBuf,
    /// The folder for the model.
    #[arg(long, short, value_name = "DIR")]
    pub output: PathBuf,
    /// The architecture.
    #[arg(long, value_enum, default_value_t = FamilyName::Gpt2, help_heading = "Model")]
    pub family: FamilyName,
    /// `characters`, or the number of tokens of a byte-level BPE that is learned from the text.
    #[arg(long, value_name = "characters|N", default_value = "characters", help_heading = "Model")]
    pub vocab: VocabularyArg,
    /// Decoder layers.
    #[arg(long, default_value_t = 2, value_parser = number::at_least_one, help_heading = "Model")]
    pub layers: usize,
    /// Numbers of a hidden row (`d_model`).
    #[arg(long, default_value_t = 64, value_parser = number::at_least_one, help_heading = "Model")]
    pub width: usize,
    /// Heads of attention.
    #[arg(long, default_value_t = 4, value_parser = number::at_least_one, help_heading = "Model")]
    pub heads: usize,
    /// Heads of keys and values [default: as many as heads].
    #[arg(long, value_parser = number::at_least_one, help_heading = "Model")]
    pub kv_heads: Option<usize>,
    /// Tokens that the model sees at once.
    #[arg(long, default_value_t = 64, value_parser = number::at_least_one, help_heading = "Model")]
    pub context: usize,
    /// How often the text is gone through.
    #[arg(long, default_value_t = 200, value_parser = number::at_least_one, help_heading = "Training")]
    pub epochs: usize,
    /// Windows of the text per step.
    #[arg(long, default_value_t = 8, value_parser = number::at_least_one, help_heading = "Training")]
    pub batch: usize,
    /// Learning rate at its highest: it rises in a line and falls in half a cosine to a tenth.
    #[arg(long, default_value_t = 3e-3, help_heading = "Training")]
    pub learning_rate: f64,
    /// Part of the steps in which the learning rate rises.
    #[arg(long, default_value_t = 0.05, help_heading = "Training")]
    pub warm_up: f64,
    /// Weight decay of matrices (AdamW).
    #[arg(long, default_value_t = 0.01, help_heading = "Training")]
    pub weight_decay: f64,
    /// Part of the text, from its end, that is not trained on: its loss is measured instead. 0 for none.
    #[arg(long, default_value_t = 0.1, help_heading = "Training")]
    pub held_out: f64,
    /// Seed of the first weights and of the windows.
    #[arg(long, default_value_t = 0, help_heading = "Training")]
    pub seed: u64,
    /// Steps from one saved state to the next.
    #[arg(long, default_value_t = 100, value_parser = number::at_least_one, help_heading = "Training")]
    pub save_every: usize,
    /// Go on from the saved state of a run that was stopped or killed.
    #[arg(long, help_heading = "Training")]
    pub resume: bool,
    /// Print the result as JSON.
    #[arg(long)]
    pub json: bool,
}

/// An architecture.
#[derive(Clone, Copy, clap::ValueEnum)]
pub enum FamilyName {
    /// GPT-2: learned positions, LayerNorm, GELU, biases.
    Gpt2,
    /// Llama: rotary positions, RMSNorm, SwiGLU.
    Llama,
}

/// What `--vocab` names.
#[derive(Clone, Copy)]
pub struct VocabularyArg(Vocabulary);

impl FromStr for VocabularyArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "characters" {
            return Ok(Self(Vocabulary::Characters));
        }
        let n = text.parse().map_err(|_| format!("expected `characters` or a number of tokens, found `{text}`"))?;
        Ok(Self(Vocabulary::Bpe(n)))
    }
}

impl Args {
    fn options(&self) -> TrainOptions {
        let family = match self.family {
            FamilyName::Gpt2 => Family::Gpt2,
            FamilyName::Llama => Family::Llama,
        };
        TrainOptions {
            vocabulary: self.vocab.0,
            layers: self.layers,
            width: self.width,
            heads: self.heads,
            kv_heads: self.kv_heads.unwrap_or(self.heads),
            context: self.context,
            epochs: self.epochs,
            batch: self.batch,
            learning_rate: self.learning_rate,
            warm_up: self.warm_up,
            weight_decay: self.weight_decay,
            seed: self.seed,
            held_out: self.held_out,
            save_every: self.save_every,
            resume: self.resume,
            ..TrainOptions::new(family, &self.text, &self.output)
        }
    }
}

/// A bar with loss and tokens/s.
struct Bar<'a> {
    printer: &'a Printer,
    bar: Option<ProgressBar>,
    tokens: usize,
    began: std::time::Instant,
}

impl Watch for Bar<'_> {
    fn begin(&mut self, weights: usize, vocabulary: usize, tokens: usize, done: usize, steps: usize) {
        self.printer.info(format_args!(
            "{weights} weights, {vocabulary} tokens in the vocabulary, {tokens} in the text, {steps} steps"
        ));
        if done > 0 {
            self.printer.info(format_args!("resumed after step {done}"));
        }
        let bar = self.printer.bar(steps as u64, "loss", false);
        bar.set_position(done as u64);
        self.began = std::time::Instant::now();
        self.bar = Some(bar);
    }

    fn step(&mut self, report: &StepReport) {
        self.tokens += report.tokens;
        let Some(bar) = &self.bar else { return };
        let rate = self.tokens as f64 / self.began.elapsed().as_secs_f64().max(1e-9);
        let held_out = report.held_out.map(|loss| format!(", held out {loss:.3}")).unwrap_or_default();
        bar.set_message(format!("loss {:.3}{held_out}, {rate:.0} tokens/s", report.loss));
        bar.set_position(report.step as u64);
    }

    fn is_stopped(&self) -> bool {
        self.printer.interrupt().received().is_some()
    }
}

/// Trains and says what came out.
pub fn run(args: &Args, printer: &Printer) -> Result<ExitStatus> {
    // A signal stops behind the running step, so that its state is saved.
    let deferred = printer.interrupt().defer();
    let mut bar = Bar { printer, bar: None, tokens: 0, began: std::time::Instant::now() };
    let trained = trainer::train(&args.options(), &mut bar);
    if let Some(bar) = bar.bar.take() {
        bar.finish_and_clear();
    }
    let trained = match trained {
        Err(TrainError::Stopped { step, steps, output }) => {
            let done = format!(
                "{step} of {steps} steps are done and saved in `{}`; the same command with `--resume` goes on",
                output.display()
            );
            let signal = printer.interrupt().received();
            return Err(match signal {
                Some(signal) => Interrupted::new(signal, done).into(),
                None => anyhow::anyhow!("stopped: {done}"),
            });
        }
        other => other?,
    };
    drop(deferred);
    report(&trained, args, printer)?;
    Ok(ExitStatus::Done)
}

fn report(trained: &Trained, args: &Args, printer: &Printer) -> Result<()> {
    let seconds = trained.took.as_secs_f64();
    let rate = trained.tokens as f64 / seconds.max(1e-9);
    if args.json {
        printer.data_line(json!({
            "output": trained.output.display().to_string(), "steps": trained.steps, "loss": trained.loss, "held_out_loss": trained.held_out,
            "weights": trained.weights, "vocabulary": trained.vocabulary, "seconds": seconds, "tokens_per_second": rate,
        }))?;
        return Ok(());
    }
    let held_out = trained.held_out.map(|loss| format!(", {loss:.3} on the held-out text")).unwrap_or_default();
    let output = trained.output.display();
    printer.data_line(format_args!(
        "loss {:.3}{held_out}; {} steps in {seconds:.1} s, {rate:.0} tokens/s",
        trained.loss, trained.steps
    ))?;
    printer.data_line(format_args!("next: `genie run {output} -p \"...\"`, or `genie compile {output} -o bundle`"))?;
    Ok(())
}
