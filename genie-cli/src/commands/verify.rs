//! `genie verify`: compares generation with the KV cache against full recomputation.
//!
//! For each prompt length the model generates greedily with its cache. Then, for each generated token, all tokens before it
//! are run again with an empty cache, and the two rows of logits and their most likely tokens are compared.

use std::path::PathBuf;

use anyhow::Result;
use open_genie::{Naive, Opened, Options, Reference, TokenModel};

use super::compile::Bars;
use crate::args::number;
use crate::args::{BackendArgs, LoraArgs, PolicyArg, SocArgs, read_path};
use crate::counted::counted;
use crate::exit::ExitStatus;
use crate::failure::UserError;
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
    /// Recompute with graphs that have no cache, compiled once from the checkpoint into the cache folder.
    #[arg(long)]
    pub naive: bool,
    /// The checkpoint for `--naive` [default: the one of the manifest, if it is found: the demo, what the cache was compiled from, or a
    /// folder of that name beside the bundle or here].
    #[arg(long, alias = "model", short_alias = 'm', value_name = "DIR", requires = "naive")]
    pub checkpoint: Option<PathBuf>,
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
    let mut model = read_path(&args.bundle, &args.backend, printer)?.open_either(&options)?;
    args.lora.apply_to_opened(&mut model)?;
    let tolerance = args.tolerance.unwrap_or_else(|| model.default_tolerance());
    let lengths = args.lengths.clone().unwrap_or_else(|| model.default_prompt_lengths());
    lengths.iter().try_for_each(|&length| model.check_prompt_length(length))?;
    let mut naive = match args.naive {
        true => Some(naive(args, &model, &options, printer)?),
        false => None,
    };
    let mut replayed = false;
    let (mut all_ok, n_lengths) = (true, lengths.len());
    for length in lengths {
        let bar = printer.bar(args.tokens as u64, &format!("prompt {length}"), false);
        let step = &mut || bar.inc(1);
        let outcome = match &mut naive {
            Some(naive) => match &mut model {
                Opened::Plain(model) => model.verify_with(naive, length, args.tokens, tolerance, step)?,
                Opened::Fused(model) => model.verify(length, args.tokens, tolerance, step)?,
            },
            None => model.verify(length, args.tokens, tolerance, step)?,
        };
        replayed |= outcome.reference == Reference::Replay;
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
    if replayed {
        printer.info(
            "the tokens were recomputed by the same graphs over an empty cache: no graph of the bundle takes them at once \
             (AR == CL); `--naive` compiles one",
        );
    }
    if !all_ok {
        printer.info("generation with the cache and full recomputation differ: the cache or a graph is wrong");
    } else {
        printer.info(format_args!(
            "verified: {}, {} each",
            counted(n_lengths, "prompt length"),
            counted(args.tokens, "token")
        ));
    }
    Ok(if all_ok { ExitStatus::Done } else { ExitStatus::Failed })
}

/// Graphs without a cache for the whole context.
fn naive(args: &Args, model: &Opened, options: &Options, printer: &Printer) -> Result<Naive> {
    let Opened::Plain(model) = model else {
        let hint = "verify the plain graphs of the same model, or leave out `--naive`";
        return Err(UserError::error("`--naive` compares plain graphs, and this bundle runs fused ones", hint));
    };
    let width = u32::try_from(model.engine().context_size()).unwrap_or(u32::MAX);
    let deferred = printer.interrupt().defer();
    let progress = &mut Bars::new(printer, false);
    let naive = Naive::open(model.bundle(), args.checkpoint.as_deref(), &[width], options, progress)?;
    drop(deferred);
    printer.info(format_args!(
        "graphs without a cache, AR-{width}, compiled from {}",
        naive.source().checkpoint.display()
    ));
    Ok(naive)
}
