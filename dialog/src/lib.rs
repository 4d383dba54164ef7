//! Conversations with a model: text in, streamed text out, sampled and stopped as libGenie does.
//!
//! ```
//! use dialog::config::ContextSettings;
//! use dialog::{Dialog, SamplerSettings, SentenceCode, StopReason, Tokenizer};
//! use engine::{EngineError, StepLog, TokenModel, Transcript};
//! use genie_types::TokenId;
//!
//! /// A model that counts: after token n it wants token n + 1. `engine::Engine` is the one that runs graphs.
//! struct Counter {
//!     past: Transcript,
//!     logits: [f32; 4],
//!     steps: StepLog,
//! }
//!
//! impl TokenModel for Counter {
//!     fn vocab_size(&self) -> usize {
//!         self.logits.len()
//!     }
//!     fn context_size(&self) -> usize {
//!         64
//!     }
//!     fn n_past(&self) -> usize {
//!         self.past.len()
//!     }
//!     fn transcript(&self) -> &Transcript {
//!         &self.past
//!     }
//!     fn mark_generated(&mut self, index: usize) {
//!         self.past.mark_generated(index);
//!     }
//!     fn process(&mut self, tokens: &[TokenId]) -> Result<&[f32], EngineError> {
//!         self.prefill(tokens)?;
//!         let last = self.past.tokens().last().ok_or(EngineError::NoTokens)?.0 as usize;
//!         self.logits = [0.0; 4];
//!         self.logits[(last + 1) % 4] = 1.0;
//!         Ok(&self.logits)
//!     }
//!     fn prefill(&mut self, tokens: &[TokenId]) -> Result<(), EngineError> {
//!         self.past.extend(tokens, self.past.len());
//!         Ok(())
//!     }
//!     fn rewind(&mut self, n_past: usize) -> Result<(), EngineError> {
//!         self.past.truncate(n_past);
//!         Ok(())
//!     }
//!     fn reset(&mut self) -> Result<(), EngineError> {
//!         self.rewind(0)
//!     }
//!     fn steps(&self) -> &StepLog {
//!         &self.steps
//!     }
//! }
//!
//! let model = Counter { past: Transcript::default(), logits: [0.0; 4], steps: StepLog::new(vec![], 0) };
//! let tokenizer = Tokenizer::from_bytes(
//!     br#"{"version": "1.0", "added_tokens": [], "normalizer": null, "pre_tokenizer": {"type": "Whitespace"},
//!          "post_processor": null, "decoder": null, "truncation": null, "padding": null,
//!          "model": {"type": "WordLevel", "vocab": {"to": 0, "be": 1, "or": 2, "not": 3}, "unk_token": "to"}}"#,
//! )?;
//! let context = ContextSettings { bos: None, eos: vec![], eot: None, pad: None, size: 64, n_vocab: 4, n_embd: None };
//! let mut dialog = Dialog::from_parts(context, SamplerSettings::argmax(), tokenizer, Box::new(model));
//!
//! dialog.control().set_max_num_tokens(Some(4));
//! let reply = dialog.query("to be", SentenceCode::Complete, |chunk| print!("{}", chunk.text))?;
//! assert_eq!((reply.text.trim(), reply.stop), ("or not to be", StopReason::MaxTokens));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! With a bundle: `Dialog::new(&DialogConfig::from_file(path)?, Box::new(Engine::open(config.engine(), &backend)?))`.
//!
//! # What is in here
//!
//! | type | what |
//! |---|---|
//! | [`Dialog`] | the conversation: query, rewind, save, restore; [`SentenceCode`]: what a query is |
//! | [`Generation`] | a query one step at a time, for iterators |
//! | [`Chunk`], [`Reply`], [`StopReason`] | what comes out while it is made, and at its end |
//! | [`Control`], [`Signal`] | stop, pause or limit a query from a callback or another thread |
//! | [`RequestBase`], [`RequestReply`] | one request beside others on a model that many share: its sampler, stop rules, text |
//! | [`DialogKind`], [`Decoding`] | another way to generate, in [`kinds`]; docs/add-a-dialog-kind.md |
//! | [`Sampler`], [`SamplerSettings`] | penalties, top-k, top-p, temperature, the mt19937 draw |
//! | [`Grammar`], [`GrammarKind`] | what a reply must follow: JSON schema, regex, EBNF, Lark; [`Dialog::set_grammar`] |
//! | [`Tokenizer`], [`Detokenizer`] | Hugging Face's `tokenizer.json`; text that never splits a character |
//! | [`DialogConfig`] | Genie's dialog JSON (API 1.21) as checked values |
//! | [`QueryKpis`], [`Profile`], [`Kpis`] | counts and times, the profile file in Genie's shape, the line of Genie's log |
//! | [`DialogError`] | every refusal; the conversation is then as it was, or as its variant has it |
//!
//! # What it must never know
//!
//! QNN, graphs, caches: a model is an [`engine::TokenModel`]. It prints nothing and reads no files except the config,
//! those that it names, and saved sessions. Chat templates are not here: [`Dialog::query`] takes the text as the model
//! is to see it.

#![forbid(unsafe_code)]

pub mod config;
pub mod conversation;
pub mod kinds;
pub mod kpi;
mod kpi_text;
pub mod sampler;

pub use config::{ConfigError, DialogConfig};
pub use conversation::{
    Chunk, Control, Decoding, Dialog, DialogError, Generation, HarmonyMessage, Reply, ReplyPiece, RequestBase,
    RequestReply, RequestSettings, RestoreReport, SentenceCode, Signal, StopCallback, StopReason, StreamReply,
    Verified,
};
pub use genie_tokenizer::{Detokenizer, Tokenizer, TokenizerError};
pub use grammar::{Grammar, GrammarError, GrammarKind, WhiteSpace, check_json_schema};
pub use kinds::DialogKind;
pub use kpi::{Profile, QueryKpis};
pub use kpi_text::{Kpi, Kpis};
pub use sampler::{Sampler, SamplerCallback, SamplerError, SamplerSettings};
pub use session_store::{RestoreNote, SaveFormat, SaveReport};
