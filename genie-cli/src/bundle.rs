//! Opens a bundle's config and engine, with the flags that change them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use dialog::DialogConfig;
use engine::{Engine, EngineConfig, ModelHash};
use genie_bundle::{BundleError, Manifest};
use qnn_api::Backend;

use crate::args::PolicyArg;
use crate::failure::UserError;
use crate::printer::Printer;

/// The config file: the path itself, or `genie_config.json` in the folder that the path names.
pub fn config_path(path: &Path) -> Result<PathBuf> {
    genie_bundle::config_path(path).map_err(|error| match error {
        BundleError::NoConfig { .. } => UserError::error(
            error.to_string(),
            "give a bundle's folder or its `genie_config.json`; `genie compile` makes a bundle",
        ),
        other => other.into(),
    })
}

/// Reads and checks a bundle's config, and prints its warnings.
pub fn config(path: &Path, printer: &Printer) -> Result<DialogConfig> {
    let path = config_path(path)?;
    let config = DialogConfig::from_file(&path)?;
    for warning in config.warnings() {
        printer.info(format_args!("warning: {}: {warning}", path.display()));
    }
    Ok(config)
}

/// Hash of the bundle's weights, which saved caches carry; `None` for a bundle without a manifest.
pub fn model_hash(config: &Path) -> Option<ModelHash> {
    let manifest = Manifest::read(config.parent()?).ok()?;
    Some(ModelHash(manifest.model_mark()))
}

/// Opens the engine of a bundle with a planner policy.
pub fn engine(config: &EngineConfig, backend: &Arc<Backend>, policy: PolicyArg) -> Result<Engine> {
    let mut engine = Engine::open(config, backend).context("cannot load the bundle's graphs")?;
    if policy != PolicyArg::Lenient {
        engine.set_policy(policy.policy(engine.variants())?);
    }
    Ok(engine)
}
