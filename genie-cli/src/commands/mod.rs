//! The list of commands. Each is one file with its flags (`Args`) and its `run`; a new one adds `mod`, a variant and an arm.

mod bench;
mod cache;
mod chat;
pub mod compile;
mod config;
mod doctor;
mod embed;
mod inspect;
mod list;
mod make_prefix;
mod perplexity;
mod plan;
mod rm;
mod run;
mod verify;

use anyhow::Result;

use crate::exit::ExitStatus;
use crate::printer::Printer;

/// A command with its flags.
#[derive(clap::Subcommand)]
pub enum Command {
    /// Generate text from a prompt.
    Run(Box<run::Args>),
    /// Talk with a model.
    Chat(Box<chat::Args>),
    /// List the models that can be named by one word.
    List(list::Args),
    /// Remove what was compiled of a model from the cache.
    Rm(rm::Args),
    /// Show what the cache folder holds, or remove what is no longer used.
    Cache(cache::Args),
    /// Compile a Hugging Face folder or a GGUF file into a bundle.
    Compile(compile::Args),
    /// Show the graphs, variants, splits, tensors and sizes of a bundle or a context binary.
    Inspect(inspect::Args),
    /// Show which graphs would run for a number of tokens, under each policy.
    Plan(plan::Args),
    /// Measure prefill and decode rates of a bundle; with `--calibrate`, the step times for `--policy cost`.
    Bench(bench::Args),
    /// Compare generation with the KV cache against full recomputation.
    Verify(verify::Args),
    /// Compute the perplexity of a text under a bundle.
    Perplexity(perplexity::Args),
    /// Turn a text into vectors with a text encoder.
    Embed(embed::Args),
    /// Write the forecast prefix of an `ssd-q1` dialog.
    MakePrefix(make_prefix::Args),
    /// Check a dialog config, or convert it between versions of Genie's API.
    Config(config::Args),
    /// Check a bundle for problems on a target device, without loading it.
    Doctor(doctor::Args),
}

impl Command {
    /// Whether it prints JSON: failures are then JSON, too.
    pub fn json(&self) -> bool {
        match self {
            Self::Run(args) => args.json,
            Self::Chat(_) => false,
            Self::List(args) => args.json,
            Self::Rm(args) => args.json,
            Self::Cache(args) => args.json,
            Self::Compile(args) => args.json,
            Self::Inspect(args) => args.json,
            Self::Plan(args) => args.json,
            Self::Bench(args) => args.json,
            Self::Verify(args) => args.json,
            Self::Perplexity(args) => args.json,
            Self::Embed(args) => args.json,
            Self::MakePrefix(args) => args.json,
            Self::Config(args) => args.json(),
            Self::Doctor(args) => args.json,
        }
    }

    /// Runs the command.
    pub fn run(self, printer: &Printer) -> Result<ExitStatus> {
        match self {
            Self::Run(args) => match chat::Args::of_run(&args) {
                Some(chat) => chat::run(&chat, printer),
                None => run::run(&args, printer),
            },
            Self::Chat(args) => chat::run(&args, printer),
            Self::List(args) => list::run(&args, printer),
            Self::Rm(args) => rm::run(&args, printer),
            Self::Cache(args) => cache::run(&args, printer),
            Self::Compile(args) => compile::run(&args, printer),
            Self::Inspect(args) => inspect::run(&args, printer),
            Self::Plan(args) => plan::run(&args, printer),
            Self::Bench(args) => bench::run(&args, printer),
            Self::Verify(args) => verify::run(&args, printer),
            Self::Perplexity(args) => perplexity::run(&args, printer),
            Self::Embed(args) => embed::run(&args, printer),
            Self::MakePrefix(args) => make_prefix::run(&args, printer),
            Self::Config(args) => config::run(&args, printer),
            Self::Doctor(args) => doctor::run(&args, printer),
        }
    }
}
