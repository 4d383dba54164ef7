//! Writes bundles: a directory that appears complete or not at all.

mod earlier;
mod entries;
mod genie_config;
mod htp_config;
#[cfg(test)]
mod place_tests;
mod staging;
#[cfg(test)]
mod tests;
mod tokenizer;

pub use entries::Entries;
pub(crate) use genie_config::genie_config;
pub(crate) use htp_config::htp_config;
pub(crate) use staging::Staging;
pub(crate) use tokenizer::check as check_tokenizer;
