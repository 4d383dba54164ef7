//! The names of a bundle's files.

use std::path::{Path, PathBuf};

use crate::BundleError;

/// The dialog configuration.
pub const CONFIG_FILE: &str = "genie_config.json";
/// The backend config, in bundles for a Hexagon chip.
pub const HTP_CONFIG_FILE: &str = "htp_backend_ext_config.json";
/// The tokenizer.
pub const TOKENIZER_FILE: &str = "tokenizer.json";
/// The list of what is in the bundle.
pub const MANIFEST_FILE: &str = "manifest.json";
/// What the bundle's steps cost where they were measured.
pub const CALIBRATION_FILE: &str = "calibration.json";
/// Copied along where a checkpoint has them: they hold the chat template.
pub const OPTIONAL_FILES: [&str; 2] = ["tokenizer_config.json", "chat_template.jinja"];

/// The config file of a path that is the config, or its bundle's folder.
///
/// # Errors
/// [`BundleError::NoConfig`] if that file does not exist.
pub fn config_path(path: &Path) -> Result<PathBuf, BundleError> {
    let config = if path.is_dir() { path.join(CONFIG_FILE) } else { path.to_owned() };
    if config.exists() { Ok(config) } else { Err(BundleError::NoConfig { path: config }) }
}
