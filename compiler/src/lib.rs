//! From a checkpoint to a bundle of compiled graphs.
#![forbid(unsafe_code)]

mod bundle;
pub mod checkpoint;
mod compile;
mod error;
pub mod family;
mod fs;
mod lower;
pub mod manifest;
pub mod options;
pub mod progress;
mod target;
#[cfg(test)]
mod testing;
pub mod testmodel;

pub use bundle::{CONFIG_FILE, TOKENIZER_FILE};
pub use checkpoint::Checkpoint;
pub use compile::model_hash;
pub use error::{CompileError, Result};
pub use family::{Family, ModelSpec};
pub use manifest::Manifest;
pub use options::{CompileOptions, Precision, Splits};
pub use progress::{Amount, Progress, Silent, Stage};
