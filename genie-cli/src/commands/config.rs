//! `genie config`: what is to be said of a dialog config, and the same config for another version of Genie's API.

mod check;
mod convert;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use genie_bundle::config::{ConfigError, GenieApi, Problem, text};
use serde_json::{Value, json};

use crate::exit::ExitStatus;
use crate::failure::UserError;
use crate::printer::Printer;

/// Flags of `genie config`.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Check a config: problems, what this build does not support, keys without effect, and which versions of Genie's API accept it.
    Check(check::Args),
    /// Write a config for another version of Genie's API: keys are moved and renamed, what it cannot express is refused.
    Convert(convert::Args),
}

impl Args {
    /// Whether it prints JSON.
    pub fn json(&self) -> bool {
        match &self.what {
            What::Check(args) => args.json,
            What::Convert(args) => args.json,
        }
    }
}

/// Runs the subcommand.
pub fn run(args: &Args, printer: &Printer) -> Result<ExitStatus> {
    match &args.what {
        What::Check(args) => check::run(args, printer),
        What::Convert(args) => convert::run(args, printer),
    }
}

/// The text of a config, and the folder where its relative paths start; stdin has none.
struct Source {
    text: String,
    base: Option<PathBuf>,
    name: String,
}

impl Source {
    fn read(file: &Path) -> Result<Self> {
        if file.as_os_str() == "-" {
            let text = text::from_reader(std::io::stdin()).context("cannot read the config from stdin")?;
            return Ok(Self { text, base: None, name: "stdin".into() });
        }
        let path = genie_bundle::config_path(file)?;
        let unread = |source| ConfigError::Read { path: path.clone(), source };
        let text = text::read(&path).map_err(unread)?;
        let full = std::path::absolute(&path).map_err(unread)?;
        let base = full.parent().unwrap_or(Path::new("/")).to_owned();
        Ok(Self { text, base: Some(base), name: path.display().to_string() })
    }
}

/// A version of the API from 1.0 to the newest.
fn api(text: &str) -> Result<GenieApi, String> {
    let known = |api: &GenieApi| api.major == 1 && *api <= GenieApi::NEWEST;
    GenieApi::parse(text).filter(known).ok_or_else(|| format!("expected a version from 1.0 to {}", GenieApi::NEWEST))
}

/// The JSON form of findings.
fn list(problems: &[Problem]) -> Value {
    problems.iter().map(|p| json!({"key": p.pointer, "message": p.message, "hint": p.hint})).collect()
}

/// An error that lists findings, one per line.
fn listed(message: String, problems: &[Problem], hint: &str) -> anyhow::Error {
    let lines: Vec<String> = problems.iter().map(|p| format!("\n  {p}")).collect();
    UserError::error(message + ":" + &lines.concat(), hint)
}
