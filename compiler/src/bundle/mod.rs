//! Writes bundles: a directory that appears complete or not at all.

mod genie_config;
mod htp_config;
mod staging;
#[cfg(test)]
mod tests;
mod tokenizer;

pub(crate) use genie_config::genie_config;
pub(crate) use htp_config::htp_config;
pub(crate) use staging::Staging;
pub(crate) use tokenizer::check as check_tokenizer;

/// File name of the dialog configuration.
pub const CONFIG_FILE: &str = "genie_config.json";
/// File name of the backend config, in bundles for a Hexagon chip.
pub const HTP_CONFIG_FILE: &str = "htp_backend_ext_config.json";
/// File name of the tokenizer.
pub const TOKENIZER_FILE: &str = "tokenizer.json";
/// Copied along where the checkpoint has them: chat templates live there.
pub(crate) const OPTIONAL_FILES: &[&str] = &["tokenizer_config.json", "chat_template.jinja"];
