//! `genie config convert`: the same config for another version of Genie's API.

use std::path::PathBuf;

use anyhow::Result;
use genie_bundle::config::{ConfigError, ConvertError, GenieApi, Origin, convert, text};
use serde_json::{Value, json};

use super::source::{Source, api, list, listed};
use crate::exit::ExitStatus;
use crate::failure::Partial;
use crate::outfile;
use crate::printer::Printer;

/// Flags of `genie config convert`.
#[derive(clap::Args)]
pub struct Args {
    /// The config, or a bundle's folder; `-` reads stdin.
    pub file: PathBuf,
    /// Version of Genie's API to convert to.
    #[arg(long, value_name = "1.0..1.21", value_parser = api)]
    pub to: GenieApi,
    /// Write the config to this file [default: stdout].
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Print one JSON document with the config and the changes.
    #[arg(long)]
    pub json: bool,
}

/// Prints or writes the config; what changed goes to stderr.
pub fn run(args: &Args, printer: &Printer) -> Result<ExitStatus> {
    let source = Source::read(&args.file)?;
    let document = text::parse(&source.text).map_err(|error| ConfigError::Syntax {
        origin: Origin::named(source.base.as_ref().map(|_| &*source.name)),
        source: error,
    })?;
    let done = convert(&document, args.to).map_err(|error| refused(&error, args))?;
    if let Some(file) = &args.output {
        outfile::write("--output", file, &format!("{:#}\n", done.document))?;
    }
    if args.json {
        printer.data_line(json!({
            "api": args.to.to_string(),
            "changes": list(&done.changes),
            "config": if args.output.is_some() { Value::Null } else { done.document },
            "output": args.output.as_ref().map(|file| file.display().to_string()),
        }))?;
        return Ok(ExitStatus::Done);
    }
    for change in &done.changes {
        printer.info(format_args!("note: {change}"));
    }
    if args.output.is_none() {
        printer.data_line(format_args!("{:#}", done.document))?;
    }
    Ok(ExitStatus::Done)
}

fn refused(error: &ConvertError, args: &Args) -> anyhow::Error {
    let hint = match error {
        ConvertError::Invalid { .. } => "correct the reported keys; `genie config check` lists them as well",
        ConvertError::Inexpressible { .. } => "remove what that version does not have, or convert to a later one",
    };
    let text = listed(error.to_string(), error.problems(), hint);
    if args.json { Partial::error(json!({"refused": list(error.problems())}), text) } else { text }
}
