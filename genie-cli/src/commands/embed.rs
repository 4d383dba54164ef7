//! `genie embed`: turns a text into a vector, or into one vector a token, with a text encoder.

use std::path::PathBuf;

use anyhow::Result;
use open_genie::Encoder;
use serde_json::json;

use crate::args::{BackendArgs, SocArgs, ThreadArgs};
use crate::exit::ExitStatus;
use crate::failure::UserError;
use crate::printer::Printer;
use crate::prompt_text::{self, Role};

/// Flags of `genie embed`.
#[derive(clap::Args)]
pub struct Args {
    /// The text.
    #[arg(allow_hyphen_values = true, conflicts_with = "file")]
    pub text: Option<String>,
    /// Read the text from a file, or from stdin with `-`.
    #[arg(long, short = 'f', value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// The encoder's config with the root key `embedding`, or the folder of a `genie_config.json`.
    #[arg(long, short, value_name = "FILE")]
    pub config: PathBuf,
    /// One vector for each token, whatever the config's `pooled-output` says.
    #[arg(long)]
    pub per_token: bool,
    /// Print one JSON document: shape, values and tokens.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub backend: BackendArgs,
    #[command(flatten)]
    pub soc: SocArgs,
    #[command(flatten)]
    pub threads: ThreadArgs,
}

/// Encodes the text and prints a line of numbers for each vector.
pub fn run(args: &Args, printer: &Printer) -> Result<ExitStatus> {
    let text = match (&args.text, &args.file) {
        (Some(text), _) => text.clone(),
        (None, Some(file)) => prompt_text::read(file, Role::Text, printer)?,
        (None, None) => return Err(UserError::error("no text", "give a text, or `--file FILE` (`-` for stdin)")),
    };
    let options = args.threads.apply(args.soc.apply(args.backend.options()?));
    let mut encoder = Encoder::open(&args.config, &options)?;
    for warning in encoder.warnings() {
        printer.info(format_args!("warning: {warning}"));
    }
    let found = if args.per_token { encoder.embed_tokens(&text)? } else { encoder.embed(&text)? };
    if found.truncated {
        printer.info(format_args!(
            "note: the end of the text is left out: the encoder takes {} tokens",
            encoder.max_tokens()
        ));
    }
    if args.json {
        let tokens: Vec<u32> = found.tokens.iter().map(|token| token.0).collect();
        printer.data_line(json!({
            "dims": [found.rows, found.width], "values": found.values, "tokens": tokens, "truncated": found.truncated,
        }))?;
        return Ok(ExitStatus::Done);
    }
    for row in found.values.chunks(found.width.max(1)) {
        let numbers: Vec<String> = row.iter().map(f32::to_string).collect();
        printer.data_line(numbers.join(" "))?;
    }
    Ok(ExitStatus::Done)
}
