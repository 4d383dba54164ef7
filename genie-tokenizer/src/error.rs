//! What is wrong with a tokenizer, by name.

use std::path::PathBuf;

use genie_types::TokenId;

/// Why a tokenizer could not be loaded or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenizerError {
    /// The file cannot be read.
    #[error("cannot read the tokenizer `{}`", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The reason the system gave.
        source: std::io::Error,
    },
    /// A folder, a device, a fifo.
    #[error("`{}` is {found}, expected the file tokenizer.json", .path.display())]
    NotAFile {
        /// What was to be read.
        path: PathBuf,
        /// What is there.
        found: &'static str,
    },
    /// Longer than any tokenizer.
    #[error("`{}` has {bytes} bytes, a tokenizer has at most {limit}", .path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
        /// Its length.
        bytes: u64,
        /// The longest that is read.
        limit: u64,
    },
    /// Not a `tokenizer.json`, or one that cannot be used.
    #[error("`{origin}` is not a tokenizer that can be used: {fault}")]
    Parse {
        /// The file, or that it was bytes.
        origin: String,
        /// What was wrong.
        fault: Fault,
    },
    /// Text could not be encoded.
    #[error("cannot encode {n_bytes} bytes of text: {reason}")]
    Encode {
        /// Length of the text.
        n_bytes: usize,
        /// What was wrong.
        reason: String,
    },
    /// A control token is written in a text that is to be plain.
    #[error("cannot encode `{token}` as plain text: this tokenizer has no other way to write it than token {id}")]
    NotPlain {
        /// The control token.
        token: String,
        /// Its id.
        id: TokenId,
    },
    /// A token could not be turned into text.
    #[error("cannot decode token {token}: {reason}")]
    Decode {
        /// The token.
        token: TokenId,
        /// What was wrong.
        reason: String,
    },
}

/// What is wrong with the content of a `tokenizer.json`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// Not JSON, or a part has not the shape that it should have.
    #[error("{0}")]
    Json(String),
    /// Not JSON at all, but something that is known.
    #[error("it is {found}, expected JSON")]
    OtherFormat {
        /// What it is.
        found: &'static str,
    },
    /// A value that cannot be.
    #[error("`{at}`: found {found}, expected {expected}")]
    Value {
        /// Where in the document.
        at: String,
        /// What is there.
        found: String,
        /// What should be.
        expected: String,
    },
    /// The library refuses a part.
    #[error("`{at}`: {reason}")]
    Library {
        /// The part.
        at: String,
        /// The library's words.
        reason: String,
    },
    /// The decoder cannot give text token by token.
    #[error("{0}")]
    Streams(String),
    /// An id that the model has no row for.
    #[error("tokenizer entry `{token}` has id {id}, but the model's vocabulary has {rows} entries")]
    OutsideRows {
        /// The entry.
        token: String,
        /// Its id.
        id: TokenId,
        /// Rows of the model's embedding.
        rows: usize,
    },
    /// A tokenizer of another model.
    #[error("it has {entries} entries for a model of {rows} rows, expected at least half as many")]
    TooFewEntries {
        /// Entries of the vocabulary.
        entries: usize,
        /// Rows of the model's embedding.
        rows: usize,
    },
    /// A line does not come back.
    #[error("the text {line:?} becomes {n_tokens} tokens, which read {back:?}")]
    RoundTrip {
        /// What was encoded.
        line: &'static str,
        /// Tokens of it.
        n_tokens: usize,
        /// What they decode to.
        back: String,
    },
    /// A pattern that takes too long.
    #[error("`{at}`: the pattern needs more than {steps} steps for a line of {n_bytes} bytes (`{start}...`)")]
    SlowPattern {
        /// Where in the document.
        at: String,
        /// Steps that were granted.
        steps: usize,
        /// Length of the line.
        n_bytes: usize,
        /// How the line begins.
        start: String,
    },
}

impl Fault {
    /// A value that cannot be, at a place of the document.
    pub(crate) fn value(at: impl Into<String>, found: impl Into<String>, expected: impl Into<String>) -> Self {
        Self::Value { at: at.into(), found: found.into(), expected: expected.into() }
    }

    /// Names the file.
    pub(crate) fn of(self, origin: &str) -> TokenizerError {
        TokenizerError::Parse { origin: origin.into(), fault: self }
    }
}
