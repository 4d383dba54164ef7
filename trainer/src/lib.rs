//! Trains a tiny GPT-2 or Llama on a text file, on the CPU, with candle's autograd.
//!
//! ```no_run
//! use trainer::{Family, Silent, TrainOptions, train};
//!
//! let options = TrainOptions { layers: 2, width: 64, heads: 4, ..TrainOptions::new(Family::Gpt2, "text.txt", "model") };
//! let trained = train(&options, &mut Silent)?;
//! println!("loss {:.3} after {} steps", trained.loss, trained.steps);
//! # Ok::<(), trainer::TrainError>(())
//! ```
//!
//! The folder then holds what Hugging Face's does: `config.json`, `model.safetensors`, `tokenizer.json`; and `loss.csv`, `loss.svg`.
//! While it trains, `training/state.safetensors` holds weights, both moments of AdamW and the losses so far, as one file that is replaced
//! whole: a run that was killed resumes from it and goes on as if it had not been.
//!
//! # What is in here
//!
//! Text to tokens ([`Vocabulary`]), the two families' forward passes, AdamW with a cosine schedule, the loop ([`train`]), its files.
//!
//! # What it never does
//!
//! It knows no graphs, bundles or caches. The same options and text give the same weights on the same machine.

#![forbid(unsafe_code)]

mod adamw;
mod batches;
mod curve;
mod error;
mod families;
mod model_files;
mod options;
mod parameters;
mod random;
mod run;
mod schedule;
mod state;
mod text;

pub use error::{Result, TrainError};
pub use options::{Family, TrainOptions, Vocabulary};
pub use run::{Silent, StepReport, Trained, Watch, train};
