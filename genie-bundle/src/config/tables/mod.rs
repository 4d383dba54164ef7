//! Genie's dialog schema, API 1.21, as tables. One file per area; the root is [`ROOT`].
//!
//! *Source*: facts restated from the schemas that libGenie 1.21 carries; no default values are part of it.

mod backend;
mod dialog;
mod encoder;
mod engine;
mod kinds;
mod model;

pub(super) use encoder::ENCODER_ROOT;

use super::schema::{Block, Type, block, req};

/// The whole document: one key, `dialog`.
pub(super) const ROOT: Block = block(&[req("dialog", Type::Block(&dialog::DIALOG))]);

/// Other documents that Genie knows; a config of that kind is named in the error.
pub(super) const OTHER_ROOTS: &[&str] = &[
    "embedding",
    "standalone-engine",
    "standalone-sampler",
    "sampler",
    "performance",
    "profile",
    "accuracy",
    "encoder-decoder",
    "text-generator",
    "text-encoder",
    "image-encoder",
    "lut-encoder",
    "audio-encoder",
    "image-decoder",
    "lm-executor",
    "unet",
    "router",
];
