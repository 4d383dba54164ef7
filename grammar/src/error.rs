//! What is wrong with a grammar, or with a vocabulary that is to follow it.

use std::path::PathBuf;

use genie_tokenizer::TokenizerError;

use crate::GrammarKind;

/// Why a grammar cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GrammarError {
    /// No language of that name.
    #[error("unknown kind of grammar `{name}`, expected `json-schema`, `regex`, `ebnf` or `lark`")]
    UnknownKind {
        /// What was asked for.
        name: String,
    },
    /// The file of a grammar cannot be read.
    #[error("cannot read the grammar `{}`", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// More text than any grammar needs.
    #[error("the grammar `{}` has more than {limit} bytes", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
        /// Most bytes.
        limit: u64,
    },
    /// The text is no grammar of its kind. Lines and columns count from 1, columns in characters.
    #[error("the {kind} grammar is malformed at line {line}, column {column}: {message}")]
    Malformed {
        /// The language.
        kind: GrammarKind,
        /// Line.
        line: usize,
        /// Column.
        column: usize,
        /// What was found and expected there.
        message: String,
    },
    /// The text is a grammar, but one that cannot be followed.
    #[error("the {kind} grammar cannot be used: {message}")]
    Unusable {
        /// The language.
        kind: GrammarKind,
        /// Why.
        message: String,
    },
    /// No token of the vocabulary begins a text of the grammar.
    #[error("no token of the vocabulary can begin what the {kind} grammar wants{}", after(wanted))]
    NoFirstToken {
        /// The language.
        kind: GrammarKind,
        /// Bytes that every text of the grammar begins with, if there are any.
        wanted: Vec<u8>,
    },
    /// The text so far is the beginning of one of the grammar, but no token goes on with it.
    #[error("no token of the vocabulary continues what the {kind} grammar wants behind `{so_far}`{}", after(wanted))]
    DeadEnd {
        /// The language.
        kind: GrammarKind,
        /// The end of the text so far.
        so_far: String,
        /// Bytes that must follow, if they are certain.
        wanted: Vec<u8>,
    },
    /// A step of the grammar takes more work than is allowed.
    #[error("the {kind} grammar became too complex behind `{so_far}`: {message}")]
    TooComplex {
        /// The language.
        kind: GrammarKind,
        /// The end of the text so far.
        so_far: String,
        /// The bound that was hit.
        message: String,
    },
    /// The vocabulary has no bytes to match.
    #[error("the vocabulary cannot be used with a grammar: {message}")]
    Vocabulary {
        /// Why.
        message: String,
    },
    /// The bytes of the vocabulary cannot be found.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
}

fn after(wanted: &[u8]) -> String {
    match wanted {
        [] => String::new(),
        some => format!(": it must be `{}`", some.escape_ascii()),
    }
}
