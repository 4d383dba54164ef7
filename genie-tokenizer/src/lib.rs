//! Hugging Face's `tokenizer.json`: text to token ids and back.
//!
//! ```
//! use genie_tokenizer::Tokenizer;
//!
//! let tokenizer = Tokenizer::from_bytes(
//!     br#"{"version": "1.0", "added_tokens": [], "normalizer": null, "pre_tokenizer": {"type": "Whitespace"},
//!          "post_processor": null, "decoder": null, "truncation": null, "padding": null,
//!          "model": {"type": "WordLevel", "vocab": {"to": 0, "be": 1, "or": 2, "not": 3}, "unk_token": "to"}}"#,
//! )?;
//! let ids = tokenizer.encode("to be or not to be")?;
//! assert_eq!(ids.len(), 6);
//! assert_eq!(tokenizer.decode(&ids)?, "to be or not to be");
//! # Ok::<(), genie_tokenizer::TokenizerError>(())
//! ```
//!
//! # What is in here
//!
//! | type | what |
//! |---|---|
//! | [`Tokenizer`] | a loaded tokenizer: ids of a text, text of ids |
//! | [`Detokenizer`] | text token by token, never a split character |
//! | [`Utf8Stream`] | bytes in pieces to text |
//! | [`Tokenizer::prove`], [`Oddity`] | does a tokenizer fit a model, and does text come back |
//! | [`TokenizerError`], [`Fault`] | what is wrong with a file: the place in it, found, expected |
//!
//! The `tokenizers` crate does the work. It panics, asks for gigabytes or recurses without end on some files, so every part of
//! a file is checked before the crate sees it, and each call of the crate is guarded: a panic is an error, without a word on
//! stderr. What the crate would ignore or change in silence (unknown keys, equal entries, ids that it does not keep) is
//! refused, too.
//!
//! # What it must never know
//!
//! Models, dialogs, Genie's config.

#![forbid(unsafe_code)]

mod added;
mod byte_level;
mod charsmap;
mod decoders;
mod detokenizer;
mod document;
mod error;
mod json_fault;
mod limits;
mod load;
mod model;
mod parts;
mod prove;
mod quiet;
#[cfg(test)]
mod tests;
mod token_bytes;
mod tokenizer;
mod utf8;

pub use detokenizer::Detokenizer;
pub use error::{Fault, TokenizerError};
pub use limits::FILE as MAX_FILE_BYTES;
pub use prove::Oddity;
pub use tokenizer::Tokenizer;
pub use utf8::Utf8Stream;
