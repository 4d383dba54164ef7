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
//! | [`TokenizerError`] | what is wrong with a file, by name |
//!
//! # What it must never know
//!
//! Models, dialogs, Genie's config.

#![forbid(unsafe_code)]

mod byte_level;
mod decoders;
mod detokenizer;
#[cfg(test)]
mod tests;
mod tokenizer;
mod utf8;

pub use detokenizer::Detokenizer;
pub use tokenizer::{Tokenizer, TokenizerError};
pub use utf8::Utf8Stream;
