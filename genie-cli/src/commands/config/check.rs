//! `genie config check`: problems, missing features, warnings and versions of a config.

use std::path::PathBuf;

use anyhow::Result;
use genie_bundle::config::{Examination, GenieApi, Problem, examine};
use serde_json::json;

use super::source::{Source, api, list};
use crate::exit::ExitStatus;
use crate::printer::Printer;

/// Flags of `genie config check`.
#[derive(clap::Args)]
pub struct Args {
    /// The config, or a bundle's folder; `-` reads stdin, and then the files that it names are not looked for.
    pub file: PathBuf,
    /// Version of Genie's API that is to accept it.
    #[arg(long, value_name = "1.0..1.21", value_parser = api, default_value_t = GenieApi::NEWEST)]
    pub api: GenieApi,
    /// Print one JSON document.
    #[arg(long)]
    pub json: bool,
}

/// Prints the findings. Exit code 1 if the config cannot be used, or that API refuses it.
pub fn run(args: &Args, printer: &Printer) -> Result<ExitStatus> {
    let source = Source::read(&args.file)?;
    let found = examine(&source.text, source.base.as_deref(), args.api)?;
    if args.json {
        printer.data_line(json!({
            "config": source.name,
            "api": args.api.to_string(),
            "usable": found.is_usable(),
            "oldest_api": found.oldest.map(|api| api.to_string()),
            "problems": list(&found.problems),
            "unsupported": list(&found.unsupported),
            "files": list(&found.files),
            "rejected": list(&found.rejected),
            "warnings": list(&found.warnings),
            "warnings_on_embedded": list(&found.on_embedded),
        }))?;
    } else {
        for (label, problems) in kinds(&found) {
            for problem in problems {
                printer.data_line(format_args!("{label:<12} {problem}"))?;
            }
        }
        if let Some(oldest) = found.oldest {
            printer.data_line(format_args!("{:<12} {oldest} to {}", "accepted by", GenieApi::NEWEST))?;
        }
        let verdict = if found.is_usable() { "usable" } else { "not usable" };
        printer.data_line(format_args!("{}: {verdict} with API {}", source.name, args.api))?;
    }
    Ok(if found.is_usable() { ExitStatus::Done } else { ExitStatus::Failed })
}

fn kinds(found: &Examination) -> [(&'static str, &[Problem]); 6] {
    [
        ("error", &found.problems),
        ("unsupported", &found.unsupported),
        ("file", &found.files),
        ("api", &found.rejected),
        ("warning", &found.warnings),
        ("on host", &found.on_embedded),
    ]
}
