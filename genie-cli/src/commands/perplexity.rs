//! `genie perplexity`: the perplexity of a text under a bundle.
//!
//! The text is cut into windows that each start with an empty cache, and with the BOS token if the config names one. The
//! first tokens of a window have little context, so compare figures of equal windows only.

use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use dialog::Tokenizer;
use engine::TokenModel;
use engine::perplexity::{NllStats, of_window};
use serde::Serialize;

use crate::args::{BackendArgs, BundleArgs, PolicyArg, SocArgs, ThreadArgs};
use crate::exit::ExitStatus;
use crate::failure::UserError;
use crate::printer::Printer;
use crate::threads::Threads;
use crate::{backend, bundle};

/// Flags of `genie perplexity`.
#[derive(clap::Args)]
pub struct Args {
    /// The text file, or `-` for stdin.
    pub file: PathBuf,
    #[command(flatten)]
    pub bundle: BundleArgs,
    /// Tokens per window; each window starts with an empty cache [default: the context length].
    #[arg(long, value_name = "TOKENS")]
    pub window: Option<usize>,
    /// Largest number of windows, from the start of the text [default: all].
    #[arg(long, value_name = "WINDOWS")]
    pub max_windows: Option<usize>,
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
    pub threads: ThreadArgs,
}

/// The document of `--json`.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
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
    let text = text(&args.file)?;
    let path = args.bundle.path(&args.backend, printer)?;
    let config = bundle::config(&path, printer)?;
    let tokens = Tokenizer::from_file(config.tokenizer())?.encode(&text)?;
    let threads = Threads::new(&args.threads, config.backend().cpu_mask)?;
    let active = backend::start(&args.backend, &args.soc, config.backend(), &threads)?;
    let mut engine = bundle::engine(config.engine(), &active.backend, args.policy)?;

    let (limit, bos) = (engine.context_size(), config.context().bos);
    let window = args.window.unwrap_or(limit);
    let least = if bos.is_some() { 1 } else { 2 };
    if window < least || window > limit {
        return Err(UserError::error(
            format!("`--window {window}` cannot be measured: the context holds {limit} tokens"),
            format!("choose {least} to {limit} tokens"),
        ));
    }
    let windows: Vec<_> = tokens.chunks(window).take(args.max_windows.unwrap_or(usize::MAX)).collect();
    let bar = printer.bar(windows.len() as u64, "windows", false);
    let mut all = NllStats::default();
    for window in &windows {
        all.join(of_window(&mut engine, bos, window)?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    if all.tokens == 0 {
        let hint = "use a file with text, and `--max-windows` of at least 1";
        return Err(UserError::error(format!("nothing to predict in {} tokens", tokens.len()), hint));
    }
    let report = Report {
        bundle: path.display().to_string(),
        file: args.file.display().to_string(),
        window,
        windows: windows.len(),
        tokens: all.tokens,
        nats_per_token: all.mean(),
        standard_error: all.standard_error(),
        perplexity: all.perplexity(),
    };
    if args.json {
        printer.data_line(serde_json::to_string(&report)?)?;
    } else {
        let Report { windows, tokens, nats_per_token: nats, standard_error: error, perplexity, .. } = report;
        printer.data_line(format_args!("tokens      {tokens} in {windows} windows of {window}"))?;
        printer.data_line(format_args!("NLL         {nats:.4} nats per token, standard error {error:.4}"))?;
        printer.data_line(format_args!("perplexity  {perplexity:.3}"))?;
    }
    Ok(ExitStatus::Done)
}

fn text(file: &Path) -> Result<String> {
    if file == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("cannot read the text from stdin")?;
        return Ok(text);
    }
    std::fs::read_to_string(file).with_context(|| format!("cannot read the text `{}`", file.display()))
}
