//! What a bundle is made of, from files alone: names, Genie's JSON config, the manifest, the calibration.
//!
//! ```
//! use genie_bundle::config::{GenieApi, rejected_by, validate};
//!
//! let document = serde_json::json!({"dialog": {"version": 1, "type": "basik"}});
//! let problems = validate(&document);
//! assert_eq!(problems[0].pointer, "/dialog/type");
//! assert_eq!(problems[0].hint.as_deref(), Some("did you mean `basic`?"));
//!
//! let later = serde_json::json!({"dialog": {"type": "basic", "max-num-tokens": 9}});
//! assert_eq!(rejected_by(&later, GenieApi::parse("1.0").unwrap())[0].pointer, "/dialog/max-num-tokens");
//! ```
//!
//! # What is in here
//!
//! | module | types |
//! |---|---|
//! | [`files`] | the names of a bundle's files, [`files::config_path`] |
//! | [`config`] | [`GenieConfig`]: Genie's dialog JSON (API 1.21), every problem with its JSON pointer, then plain values |
//! | [`manifest`] | [`Manifest`]: what a bundle holds and what it was made from |
//! | [`calibration`] | [`Calibration`]: what the steps of a bundle cost on one backend and machine |
//! | [`file_check`], [`stamps`] | a file against its hash in the manifest, and what is known of it since it was last read |
//! | [`cache_folder`](fn@cache_folder) | the folder for what can be made again |
//! | [`StrictJson`] | JSON in which no key comes twice |
//! | [`hash`] | length and SHA-256 of a file |
//!
//! # What it must never know
//!
//! QNN, graphs, engines, samplers, tokens' texts. Others turn its plain values into theirs.

#![forbid(unsafe_code)]

pub mod calibration;
pub mod config;
mod error;
pub mod file_check;
pub mod files;
pub mod hash;
pub mod manifest;
pub mod stamps;
mod strict_json;

pub use calibration::Calibration;
pub use config::{ConfigError, EncoderConfig, GenieConfig, HtpExtensions};
pub use error::BundleError;
pub use file_check::FileCheck;
pub use file_io::cache_folder;
pub use files::{
    CALIBRATION_FILE, CONFIG_FILE, EMBEDDINGS_FILE, HEAD_WEIGHT_FILE, HTP_CONFIG_FILE, MANIFEST_FILE, TOKENIZER_FILE,
    config_path,
};
pub use manifest::{BackendId, Manifest};
pub use strict_json::StrictJson;
