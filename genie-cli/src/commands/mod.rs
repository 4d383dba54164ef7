//! The list of commands. Each is one file with its flags (`Args`) and its `run`; a new one adds `mod`, a variant and an arm.

mod bench;
mod cache;
mod chat;
pub mod compile;
mod completions;
mod config;
mod deploy;
mod doctor;
mod embed;
pub mod examples;
mod explain;
mod inspect;
mod list;
mod make_prefix;
mod man;
mod perplexity;
mod plan;
mod rm;
mod run;
mod runtime;
#[cfg(feature = "server")]
mod serve;
mod tokenize;
#[cfg(feature = "train")]
mod train;
mod verify;

#[cfg(test)]
pub use run::Args as RunArgs;

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
    /// Serve a model over HTTP, for OpenAI's, Anthropic's and llama.cpp's clients.
    #[cfg(feature = "server")]
    #[command(after_help = serve::EXAMPLES)]
    Serve(Box<serve::Args>),
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
    /// Show what the KV cache does for a prompt: equality, time, operations, memory, graphs; writes a report with pictures.
    Explain(explain::Args),
    /// Train a tiny GPT-2 or Llama on a text file.
    #[cfg(feature = "train")]
    Train(train::Args),
    /// Compute the perplexity of a text under a bundle.
    Perplexity(perplexity::Args),
    /// Show the tokens of a text, or the text of tokens.
    Tokenize(tokenize::Args),
    /// Turn a text into vectors with a text encoder.
    Embed(embed::Args),
    /// Write the forecast prefix of an `ssd-q1` dialog.
    MakePrefix(make_prefix::Args),
    /// Check a dialog config, or convert it between versions of Genie's API.
    Config(config::Args),
    /// Check a bundle for problems on a target device, without loading it.
    Doctor(doctor::Args),
    /// Put this program, the libraries it needs and a bundle onto a device, and run a first prompt there.
    Deploy(deploy::Args),
    /// Fetch Qualcomm's libraries, or show where they are looked for.
    Runtime(runtime::Args),
    /// Print a shell's completion script.
    Completions(completions::Args),
    /// Print a manual page, or write all of them.
    Man(man::Args),
}

impl Command {
    /// Whether it prints JSON: failures are then JSON, too.
    pub fn json(&self) -> bool {
        match self {
            Self::Run(args) => args.json,
            #[cfg(feature = "server")]
            Self::Serve(_) => false,
            Self::Chat(_) | Self::Completions(_) | Self::Man(_) => false,
            Self::Tokenize(args) => args.json,
            Self::List(args) => args.json,
            Self::Rm(args) => args.json,
            Self::Cache(args) => args.json,
            Self::Compile(args) => args.json,
            Self::Inspect(args) => args.json,
            Self::Plan(args) => args.json,
            Self::Bench(args) => args.is_json(),
            Self::Verify(args) => args.json,
            Self::Explain(args) => args.json,
            #[cfg(feature = "train")]
            Self::Train(args) => args.json,
            Self::Perplexity(args) => args.json,
            Self::Embed(args) => args.json,
            Self::MakePrefix(args) => args.json,
            Self::Config(args) => args.json(),
            Self::Doctor(args) => args.json,
            Self::Deploy(args) => args.json,
            Self::Runtime(args) => args.json(),
        }
    }

    /// Runs the command; `whole` is the command line that it is one of.
    pub fn run(self, whole: clap::Command, printer: &Printer) -> Result<ExitStatus> {
        match self {
            Self::Run(args) => match chat::Args::of_run(&args) {
                Some(chat) => chat::run(&chat, printer),
                None => run::run(&args, printer),
            },
            Self::Chat(args) => chat::run(&args, printer),
            #[cfg(feature = "server")]
            Self::Serve(args) => serve::run(&args, printer),
            Self::List(args) => list::run(&args, printer),
            Self::Rm(args) => rm::run(&args, printer),
            Self::Cache(args) => cache::run(&args, printer),
            Self::Compile(args) => compile::run(&args, printer),
            Self::Inspect(args) => inspect::run(&args, printer),
            Self::Plan(args) => plan::run(&args, printer),
            Self::Bench(args) => bench::run(&args, printer),
            Self::Verify(args) => verify::run(&args, printer),
            Self::Explain(args) => explain::run(&args, printer),
            #[cfg(feature = "train")]
            Self::Train(args) => train::run(&args, printer),
            Self::Perplexity(args) => perplexity::run(&args, printer),
            Self::Embed(args) => embed::run(&args, printer),
            Self::MakePrefix(args) => make_prefix::run(&args, printer),
            Self::Config(args) => config::run(&args, printer),
            Self::Doctor(args) => doctor::run(&args, printer),
            Self::Deploy(args) => deploy::run(&args, printer),
            Self::Runtime(args) => runtime::run(&args, printer),
            Self::Tokenize(args) => tokenize::run(&args, printer),
            Self::Completions(args) => completions::run(&args, whole, printer),
            Self::Man(args) => man::run(&args, whole, printer),
        }
    }
}
