//! `--config`: the bundle, or the built-in demo.

use std::path::{Path, PathBuf};

use anyhow::Result;
use open_genie::{Bundle, demo};

use super::BackendArgs;
use crate::commands::compile::Bars;
use crate::printer::Printer;

/// The bundle to use.
#[derive(clap::Args)]
pub struct BundleArgs {
    /// The bundle's `genie_config.json`, or its folder [default: the built-in demo model].
    #[arg(long, short, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

impl BundleArgs {
    /// Reads the bundle's config and prints its warnings; compiles the demo with that backend on its first use.
    pub fn read(&self, backend: &BackendArgs, printer: &Printer) -> Result<Bundle> {
        match &self.config {
            Some(path) => read_bundle(path, backend, printer),
            None => read_bundle(&demo_bundle(backend, printer)?, backend, printer),
        }
    }
}

/// Reads a bundle's config and prints its warnings, also those of the backend that it will run on.
pub fn read_bundle(path: &Path, backend: &BackendArgs, printer: &Printer) -> Result<Bundle> {
    let bundle = Bundle::read(path)?;
    for warning in bundle.warnings_for(&backend.options()?) {
        printer.info(format_args!("warning: {warning}"));
    }
    Ok(bundle)
}

fn demo_bundle(backend: &BackendArgs, printer: &Printer) -> Result<PathBuf> {
    let folder = demo::folder()?;
    if !demo::is_compiled(&folder) {
        printer.info(format_args!("compiling the demo model into {} (once)", folder.display()));
        // A signal cancels, so that nothing half written is left.
        let _deferred = printer.interrupt().defer();
        demo::compile(&folder, &backend.options()?, &mut Bars::new(printer, false))?;
    }
    Ok(folder)
}
