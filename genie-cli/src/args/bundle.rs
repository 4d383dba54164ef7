//! `--config`: the bundle, or the built-in demo.

use std::path::PathBuf;

use anyhow::Result;

use super::BackendArgs;
use crate::printer::Printer;
use crate::{bundle, demo};

/// The bundle to use.
#[derive(clap::Args)]
pub struct BundleArgs {
    /// The bundle's `genie_config.json`, or its folder [default: the built-in demo model].
    #[arg(long, short, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

impl BundleArgs {
    /// Path of the config; compiles the demo with that backend on its first use.
    pub fn path(&self, backend: &BackendArgs, printer: &Printer) -> Result<PathBuf> {
        match &self.config {
            Some(path) => bundle::config_path(path),
            None => demo::config(backend, printer),
        }
    }
}
