//! `genie verify`: compares generation with the KV cache against full recomputation.
//!
//! For each prompt length the model generates greedily with its cache. Then, for each generated token, all tokens before it
//! are run again with an empty cache, and the two rows of logits and their most likely tokens are compared.

use std::path::PathBuf;

use anyhow::Result;

use crate::args::number;
use crate::args::{BackendArgs, LoraArgs, PolicyArg, SocArgs, read_path};
use crate::exit::ExitStatus;
use crate::printer::Printer;

/// Flags of `genie verify`.
#[derive(clap::Args)]
pub struct Args {
    /// The model: a bundle, a GGUF file, a Hugging Face folder, or a name that `genie list` shows.
    #[arg(value_name = "MODEL")]
    pub bundle: PathBuf,
    /// Tokens to generate per prompt length.
    #[arg(long, short = 'n', default_value_t = 200, value_parser = number::at_least_one)]
    pub tokens: usize,
    /// Prompt lengths, in tokens [default: 1, AR-1, AR, AR+1, 2*AR+3, N-20, N-1 and N, for the largest AR and the
    /// context size N].
    #[arg(long, value_delimiter = ',', value_name = "N,N", value_parser = number::count)]
    pub lengths: Option<Vec<usize>>,
    /// Largest allowed difference of logits, relative to the row's largest logit [default: 1e-4 for float32 graphs, else
    /// 2e-2].
    #[arg(long, allow_negative_numbers = true, value_parser = tolerance)]
    pub tolerance: Option<f32>,
    /// Print one JSON line per prompt length.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub backend: BackendArgs,
    #[command(flatten)]
    pub soc: SocArgs,
    /// Planner policy.
    #[arg(long, value_enum, default_value_t)]
    pub policy: PolicyArg,
    #[command(flatten)]
    pub lora: LoraArgs,
}

fn tolerance(text: &str) -> Result<f32, String> {
    let found = text.parse::<f32>().ok().filter(|t| t.is_finite() && *t >= 0.0);
    found.ok_or_else(|| "expected a finite number of at least 0".into())
}

/// Checks each prompt length; the status is `Failed` if one differs.
pub fn run(args: &Args, printer: &Printer) -> Result<ExitStatus> {
    let options = args.soc.apply(args.backend.options()?).policy(args.policy.into());
    let mut model = read_path(&args.bundle, &args.backend, printer)?.open(&options)?;
    args.lora.apply_to_model(&mut model)?;
    let tolerance = args.tolerance.unwrap_or_else(|| model.default_tolerance());
    let lengths = args.lengths.clone().unwrap_or_else(|| model.default_prompt_lengths());
    lengths.iter().try_for_each(|&length| model.check_prompt_length(length))?;
    let mut all_ok = true;
    for length in lengths {
        let bar = printer.bar(args.tokens as u64, &format!("prompt {length}"), false);
        let outcome = model.verify(length, args.tokens, tolerance, &mut || bar.inc(1))?;
        bar.finish_and_clear();
        all_ok &= outcome.ok;
        if args.json {
            printer.data_line(serde_json::to_string(&outcome)?)?;
        } else {
            printer.data_line(format_args!(
                "prompt {:>5}: {} of {} tokens equal, {} ties, logits within {:.1e} of {tolerance:.0e}{}",
                outcome.prompt_tokens,
                outcome.generated - outcome.wrong_tokens - outcome.ties,
                outcome.generated,
                outcome.ties,
                outcome.max_relative_difference,
                if outcome.ok { "" } else { "  <- differs" },
            ))?;
        }
    }
    if !all_ok {
        printer.info("generation with the cache and full recomputation differ: the cache or a graph is wrong");
    }
    Ok(if all_ok { ExitStatus::Done } else { ExitStatus::Failed })
}
