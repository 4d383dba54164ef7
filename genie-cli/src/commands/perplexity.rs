//! `genie perplexity`: the perplexity of a text under a bundle.
//!
//! The text is cut into windows that each start with an empty cache, and with the BOS token if the config names one. The
//! first tokens of a window have little context, so compare figures of equal windows only.

use std::path::PathBuf;

use anyhow::Result;
use open_genie::Opened;
use serde::Serialize;

use crate::args::number::{self, Limit};
use crate::args::{BackendArgs, BundleArgs, LongContextArgs, LoraArgs, PolicyArg, SocArgs, ThreadArgs};
use crate::exit::ExitStatus;
use crate::failure::Partial;
use crate::interrupt::Interrupted;
use crate::printer::Printer;
use crate::prompt_text::{self, Role};

/// Tokens of a chunk, as in llama.cpp.
const CHUNK: usize = 512;

/// Flags of `genie perplexity`.
#[derive(clap::Args)]
#[command(allow_missing_positional = true)]
pub struct Args {
    /// The model, as for `--model`.
    #[arg(value_name = "MODEL", conflicts_with_all = ["named", "config"])]
    pub word: Option<String>,
    /// The text file, or `-` for stdin.
    pub file: PathBuf,
    #[command(flatten)]
    pub bundle: BundleArgs,
    /// Tokens per window, or per chunk; each starts with an empty cache [default: the length the model
    /// was trained for, if the bundle knows it and the context is longer; else the context length].
    #[arg(long, value_name = "TOKENS", value_parser = number::count)]
    pub window: Option<usize>,
    /// Largest number of windows, from the start of the text [default: all].
    #[arg(long, value_name = "WINDOWS", value_parser = number::count)]
    pub max_windows: Option<usize>,
    /// Measure as llama.cpp does, for figures that can be compared: N chunks of `--window` tokens (default: 512), -1 for all. The
    /// second half of each is predicted, and what is left over at the end does not count.
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = number::limit, conflicts_with = "max_windows")]
    pub chunks: Option<Limit>,
    /// Print one JSON document.
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
    pub long_context: LongContextArgs,
    #[command(flatten)]
    pub threads: ThreadArgs,
    #[command(flatten)]
    pub lora: LoraArgs,
}

/// The document of `--json`.
#[derive(Serialize)]
struct Report {
    bundle: String,
    file: String,
    /// Tokens per window, at most.
    window: usize,
    windows: usize,
    /// Tokens predicted.
    tokens: usize,
    nats_per_token: f64,
    standard_error: f64,
    perplexity: f64,
}

/// Computes and prints the perplexity.
pub fn run(args: &Args, printer: &Printer) -> Result<ExitStatus> {
    let text = prompt_text::read(&args.file, Role::Text, printer)?;
    let bundle =
        args.bundle.read_word(args.word.as_deref(), args.long_context.compiled_context(), &args.backend, printer)?;
    let options = args.threads.apply(args.soc.apply(args.backend.options()?)).policy(args.policy.into());
    let options = args.long_context.apply(options);
    let mut model = bundle.open_either(&options)?;
    args.lora.apply_to_opened(&mut model)?;
    let tokens = model.tokenizer()?.encode(&text)?;
    let chunk = args.window.unwrap_or(CHUNK.min(model.context_size()));
    if args.window.is_none() && args.chunks.is_none() {
        let (window, context) = (model.default_window(), model.context_size());
        let why = if window < context { "the length the model was trained for" } else { "the context length" };
        printer.info(format_args!("window: {window} tokens, {why}"));
    }
    let max_windows = args.max_windows.unwrap_or(usize::MAX);
    let n_windows = match args.chunks {
        Some(Limit(most)) => {
            let bos = usize::from(bundle_has_bos(&model));
            ((tokens.len() + bos) / chunk.max(1)).min(most.unwrap_or(usize::MAX))
        }
        None => model.windows(&tokens, args.window)?.take(max_windows).count(),
    };
    let bar = printer.bar(n_windows as u64, "windows", false);
    let deferred = printer.interrupt().defer();
    let stop = model.stop_flag();
    deferred.stop_with(move || stop.set());
    let found = match args.chunks {
        Some(_) => model.perplexity_by_chunks(&tokens, chunk, n_windows, &mut || bar.inc(1))?,
        None => model.perplexity(&tokens, args.window, max_windows, &mut || bar.inc(1))?,
    };
    bar.finish_and_clear();
    let report = Report {
        bundle: model.bundle().path().display().to_string(),
        file: args.file.display().to_string(),
        window: found.window,
        windows: found.windows,
        tokens: found.tokens,
        nats_per_token: found.nll,
        standard_error: found.standard_error,
        perplexity: found.perplexity,
    };
    let windows = report.windows;
    if let Some(signal) = printer.interrupt().received().filter(|_| windows < n_windows) {
        let error = Interrupted::new(signal, format!("{windows} of {n_windows} windows are done")).into();
        if args.json {
            return Err(Partial::error(serde_json::to_value(&report)?, error));
        }
        print(printer, report, args.chunks.is_some())?;
        return Err(error);
    }
    match args.json {
        true => printer.data_line(serde_json::to_string(&report)?)?,
        false => print(printer, report, args.chunks.is_some())?,
    }
    Ok(ExitStatus::Done)
}

fn bundle_has_bos(model: &Opened) -> bool {
    model.bundle().config().context().bos.is_some()
}

fn print(printer: &Printer, report: Report, by_chunks: bool) -> Result<()> {
    let Report { window, windows, tokens, nats_per_token: nats, standard_error: error, perplexity, .. } = report;
    printer.data_line(format_args!("tokens      {tokens} in {windows} windows of {window}"))?;
    printer.data_line(format_args!("NLL         {nats:.4} nats per token, standard error {error:.4}"))?;
    if by_chunks {
        // llama.cpp divides by one token less; of one token there is no deviation.
        let error = if tokens > 1 { error * (tokens as f64 / (tokens as f64 - 1.0)).sqrt() * perplexity } else { 0.0 };
        return printer.data_line(format_args!("Final estimate: PPL = {perplexity:.4} +/- {error:.5}"));
    }
    printer.data_line(format_args!("perplexity  {perplexity:.3}"))?;
    Ok(())
}
