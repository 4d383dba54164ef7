//! `genie perplexity`: how well a bundle foretells a text.
//!
//! The text is cut into windows that begin afresh, each with the BOS token where the config names one. So the first tokens of a
//! window are foretold from little; figures are to be compared at equal windows only.

use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result};
use dialog::Tokenizer;
use engine::TokenModel;
use engine::surprise::{Surprise, of_window};
use serde::Serialize;

use super::ExitStatus;
use crate::cli::PerplexityArgs;
use crate::failure::UserError;
use crate::printer::Printer;
use crate::threads::Threads;
use crate::{backend, bundle, demo};

/// The document of `--json`.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Report {
    bundle: String,
    file: String,
    /// Most tokens of a window.
    window: usize,
    windows: usize,
    /// Tokens foretold.
    tokens: usize,
    nats_per_token: f64,
    standard_error: f64,
    perplexity: f64,
}

/// Reads, cuts, measures, tells.
pub fn run(args: &PerplexityArgs, printer: &Printer) -> Result<ExitStatus> {
    let text = text(&args.file)?;
    let path = match &args.config {
        Some(path) => bundle::config_path(path)?,
        None => demo::config(&args.backend, printer)?,
    };
    let config = bundle::config(&path, printer)?;
    let tokens = Tokenizer::from_file(config.tokenizer())?.encode(&text)?;
    let threads = Threads::new(&args.threads, config.backend().cpu_mask)?;
    let running = backend::start(&args.backend, &args.chip, config.backend(), &threads)?;
    let mut engine = bundle::engine(config.engine(), &running.backend, args.policy)?;

    let (limit, bos) = (engine.context_size(), config.context().bos);
    let window = args.window.unwrap_or(limit);
    let least = if bos.is_some() { 1 } else { 2 };
    if window < least || window > limit {
        return Err(UserError::error(
            format!("`--window {window}` cannot be measured: the context holds {limit} tokens"),
            format!("choose from {least} to {limit}"),
        ));
    }
    let windows: Vec<_> = tokens.chunks(window).take(args.max_windows.unwrap_or(usize::MAX)).collect();
    let bar = printer.bar(windows.len() as u64, "windows", false);
    let mut all = Surprise::default();
    for window in &windows {
        all.join(of_window(&mut engine, bos, window)?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    if all.tokens == 0 {
        let hint = "give a file with text, and `--max-windows` at least 1";
        return Err(UserError::error(format!("nothing to foretell in {} tokens", tokens.len()), hint));
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
        printer.data_line(format_args!("nats        {nats:.4} a token, standard error {error:.4}"))?;
        printer.data_line(format_args!("perplexity  {perplexity:.3}"))?;
    }
    Ok(ExitStatus::Done)
}

fn text(file: &Path) -> Result<String> {
    if file == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("cannot read a text from stdin")?;
        return Ok(text);
    }
    std::fs::read_to_string(file).with_context(|| format!("cannot read the text `{}`", file.display()))
}
