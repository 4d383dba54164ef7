//! Conversations with a model: text in, streamed text out, as Genie's config, sampler and sentence codes have it.
//!
//! ```
//! use dialog::{Sampler, SamplerSettings};
//!
//! let settings = SamplerSettings::default().with_seed(Some(42)).with_top_k(2).with_top_p(1.0)?.with_temp(1.0)?;
//! let mut sampler = Sampler::new(settings);
//! let token = sampler.sample(&[0.5, 2.0, 2.0, -1.0])?; // two candidates of equal weight; the seed's draw is 0.797
//! sampler.accept(token); // what the penalties of the next draw look at
//! assert_eq!(token.0, 2);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A whole conversation, given a model that the `engine` crate opened:
//!
//! ```no_run
//! use dialog::{Dialog, DialogConfig, SentenceCode};
//! # fn open(_: &engine::EngineConfig) -> Box<dyn engine::TokenModel + Send> { unimplemented!() }
//!
//! let config = DialogConfig::from_file("bundle/genie_config.json")?;
//! let mut dialog = Dialog::new(&config, open(config.engine()))?;
//! let reply = dialog.query("ROMEO:", SentenceCode::Complete, |chunk| print!("{}", chunk.text))?;
//! eprintln!("{}: {:?} tokens/s", reply.stop, reply.kpis.generation_rate());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What is in here
//!
//! | module | what |
//! |---|---|
//! | [`config`] | [`DialogConfig`]: a bundle's config with the sampler and the engine options made of it |
//! | [`conversation`] | [`Dialog`]: turns, sentence codes, stop rules, signals; the seam for other dialog kinds |
//! | [`sampler`] | [`Sampler`]: penalties, top-k, top-p, temperature, the mt19937 draw |
//! | [`tokenizer`] | [`Tokenizer`] and [`Detokenizer`], which never splits a character and never falls silent |
//! | [`kpi`] | [`QueryKpis`] and the profile file in Genie's shape |
//!
//! # What it must never know
//!
//! QNN, graphs, caches: a model is an [`engine::TokenModel`]. It prints nothing and reads no files but the config and
//! those that it names. Chat templates are not here yet: [`Dialog::query`] takes the text as the model shall see it.

#![forbid(unsafe_code)]

pub mod config;
pub mod conversation;
pub mod kpi;
pub mod sampler;
pub mod tokenizer;

pub use config::{ConfigError, DialogConfig};
pub use conversation::{Chunk, Control, Dialog, DialogError, Generation, Reply, SentenceCode, Signal, StopReason};
pub use kpi::{Profile, QueryKpis};
pub use sampler::{Sampler, SamplerError, SamplerSettings};
pub use session_store::{SaveFormat, SaveReport};
pub use tokenizer::{Detokenizer, Tokenizer, TokenizerError};
