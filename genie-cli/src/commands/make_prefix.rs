//! `genie make-prefix`: writes the forecast prefix of an `ssd-q1` dialog.
//!
//! A prefix is the cache after some tokens, which come out of a model's training for forecast tokens. They are processed as
//! they are: no BOS is put before them.

use std::path::PathBuf;

use anyhow::Result;
use genie_types::TokenId;
use open_genie::FORECAST_PREFIX;
use serde_json::json;

use crate::args::{BackendArgs, BundleArgs, SocArgs, ThreadArgs};
use crate::exit::ExitStatus;
use crate::failure::UserError;
use crate::printer::Printer;

/// Flags of `genie make-prefix`.
#[derive(clap::Args)]
pub struct Args {
    /// The prefix as text; control tokens in it are recognised.
    #[arg(allow_hyphen_values = true, conflicts_with = "tokens")]
    pub text: Option<String>,
    /// The prefix as token ids, separated by commas.
    #[arg(long, value_name = "IDS", value_delimiter = ',')]
    pub tokens: Vec<u32>,
    #[command(flatten)]
    pub bundle: BundleArgs,
    /// Write into this folder [default: `forecast-prefix` in the bundle's folder, where `--spec ssd` looks].
    #[arg(long, short, value_name = "FOLDER")]
    pub output: Option<PathBuf>,
    /// Print one JSON document.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub backend: BackendArgs,
    #[command(flatten)]
    pub soc: SocArgs,
    #[command(flatten)]
    pub threads: ThreadArgs,
}

/// Processes the tokens and writes their rows.
pub fn run(args: &Args, printer: &Printer) -> Result<ExitStatus> {
    let bundle = args.bundle.read(&args.backend, printer)?;
    let folder = args.output.clone().unwrap_or_else(|| bundle.config().base().join(FORECAST_PREFIX));
    let options = args.threads.apply(args.soc.apply(args.backend.options()?));
    let mut model = bundle.open(&options)?;
    let tokens: Vec<TokenId> = match &args.text {
        Some(text) => model.tokenizer()?.encode(text)?,
        None => args.tokens.iter().copied().map(TokenId).collect(),
    };
    if tokens.is_empty() {
        return Err(UserError::error("no tokens for the prefix", "give a text, or `--tokens 5,6,7`"));
    }
    let made = model.make_forecast_prefix(&tokens, &folder)?;
    if args.json {
        printer.data_line(json!({ "folder": folder.display().to_string(), "forecast_prefix": made.n_rows }))?;
        return Ok(ExitStatus::Done);
    }
    printer.data_line(folder.display())?;
    printer.info(format_args!(
        "{} rows: `forecast-prefix` {} in the block `ssd-q1` of a config, or `--spec ssd`",
        made.n_rows, made.n_rows
    ));
    Ok(ExitStatus::Done)
}
