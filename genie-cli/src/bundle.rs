//! Opening a bundle: config, engine, and what the flags change about them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use compiler::Manifest;
use dialog::DialogConfig;
use engine::{Engine, EngineConfig, ModelHash};
use qnn_api::Backend;

use crate::cli::PolicyArg;
use crate::commands::plan;
use crate::failure::Hinted;
use crate::printer::Printer;

/// The config file of a path that is it, or its bundle's folder.
pub fn config_path(path: &Path) -> Result<PathBuf> {
    let config = if path.is_dir() { path.join(compiler::CONFIG_FILE) } else { path.to_owned() };
    if config.exists() {
        return Ok(config);
    }
    Err(Hinted::error(
        format!("`{}` does not exist", config.display()),
        "give a bundle's folder or its genie_config.json; `genie compile` makes one",
    ))
}

/// Reads and checks a bundle's config, and passes its warnings on.
pub fn config(path: &Path, printer: &Printer) -> Result<DialogConfig> {
    let path = config_path(path)?;
    let config = DialogConfig::from_file(&path)?;
    for warning in config.warnings() {
        printer.say(format_args!("warning: {}: {warning}", path.display()));
    }
    Ok(config)
}

/// What saved caches of a bundle are marked with, so that they fit every bundle of the same weights; `None` for one
/// without a manifest.
pub fn model_hash(config: &Path) -> Option<ModelHash> {
    let manifest = Manifest::read(config.parent()?).ok()?;
    Some(ModelHash(manifest.model_mark()))
}

/// Opens the engine of a bundle with a planner policy.
pub fn engine(config: &EngineConfig, backend: &Arc<Backend>, policy: PolicyArg) -> Result<Engine> {
    let mut engine = Engine::open(config, backend).context("cannot load the bundle's graphs")?;
    if policy != PolicyArg::Lenient {
        engine.set_policy(plan::policy(policy, engine.variants())?);
    }
    Ok(engine)
}
