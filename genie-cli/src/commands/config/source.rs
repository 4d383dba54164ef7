//! What `check` and `convert` share: reading a config, versions of the API, findings as JSON and as an error.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use genie_bundle::config::{ConfigError, GenieApi, Problem, text};
use serde_json::{Value, json};

use crate::failure::UserError;

/// The text of a config, and the folder where its relative paths start; stdin has none.
pub struct Source {
    pub text: String,
    pub base: Option<PathBuf>,
    pub name: String,
}

impl Source {
    /// Reads a file, a bundle's config, or stdin with `-`.
    pub fn read(file: &Path) -> Result<Self> {
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
pub fn api(text: &str) -> Result<GenieApi, String> {
    let known = |api: &GenieApi| api.major == 1 && *api <= GenieApi::NEWEST;
    GenieApi::parse(text).filter(known).ok_or_else(|| format!("expected a version from 1.0 to {}", GenieApi::NEWEST))
}

/// The JSON form of findings.
pub fn list(problems: &[Problem]) -> Value {
    problems.iter().map(|p| json!({"key": p.pointer, "message": p.message, "hint": p.hint})).collect()
}

/// An error that lists findings, one per line.
pub fn listed(message: String, problems: &[Problem], hint: &str) -> anyhow::Error {
    let lines: Vec<String> = problems.iter().map(|p| format!("\n  {p}")).collect();
    UserError::error(message + ":" + &lines.concat(), hint)
}
