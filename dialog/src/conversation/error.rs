//! Why a query could not be answered.

use engine::{EngineError, Overflow};
use session_store::StoreError;

use super::codes::SentenceCode;
use crate::sampler::{RngStateError, SamplerError};
use genie_tokenizer::TokenizerError;
use genie_types::TokenId;
use grammar::GrammarError;

/// Why a query could not be answered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DialogError {
    /// Text could not become tokens, or tokens text.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// No token could be drawn.
    #[error(transparent)]
    Sampler(#[from] SamplerError),
    /// A grammar cannot be followed.
    #[error(transparent)]
    Grammar(#[from] GrammarError),
    /// What the grammar wants is complete, and no stop token says so. A reply ends there: this is met where several are made at once.
    #[error("the text that the grammar wants is complete, and the model has no stop token")]
    GrammarComplete,
    /// The model failed.
    #[error(transparent)]
    Engine(EngineError),
    /// The input does not fit. The conversation is as it was.
    #[error(transparent)]
    Overflow(#[from] Overflow),
    /// A text that is longer than the context could be. It was not looked at; the conversation is as it was.
    #[error(
        "the prompt has {bytes} bytes, but the context of {limit} tokens holds at most {most} bytes \
         (the longest entry of the vocabulary has {longest})", most = limit.saturating_mul(*longest)
    )]
    TooLong {
        /// Bytes of the text.
        bytes: usize,
        /// Tokens of the context.
        limit: usize,
        /// Bytes of the vocabulary's longest entry.
        longest: usize,
    },
    /// The conversation waits for `RESUME`.
    #[error("a query with sentence code {code} came while the dialog is paused, expected RESUME, REWIND or a reset")]
    Paused {
        /// What came instead.
        code: SentenceCode,
    },
    /// The config names a kind that this build does not have.
    #[error("dialog type `{kind}` is not yet supported (this build runs {})", quoted(supported))]
    UnknownKind {
        /// The kind.
        kind: String,
        /// The kinds there are.
        supported: Vec<&'static str>,
    },
    /// libGenie has no token queries for this kind, and its rules were asked for.
    #[error("a `{kind}` dialog takes no token queries under policy `genie`, expected text")]
    TokensRefused {
        /// The kind.
        kind: &'static str,
    },
    /// No prompts, or more than a batch can have.
    #[error("a batch of {found} prompts: expected 1 to {most}")]
    BatchSize {
        /// How many came.
        found: usize,
        /// The most there may be.
        most: usize,
    },
    /// The next turn of a batch has another number of prompts.
    #[error("{found} prompts came, but the conversations of this batch are {expected}; a reset begins others")]
    BatchCount {
        /// How many there are.
        expected: usize,
        /// How many came.
        found: usize,
    },
    /// Too few or too many streams.
    #[error("{found} streams: expected 1 to {most}")]
    StreamCount {
        /// How many were asked for.
        found: usize,
        /// The most there may be.
        most: usize,
    },
    /// The models do not allow this kind of dialog.
    #[error("a dialog of kind `{kind}` needs {expected}, found {found}")]
    Kind {
        /// The kind.
        kind: &'static str,
        /// What would do.
        expected: String,
        /// What there is.
        found: String,
    },
    /// The file that says which id of the draft model is which of the target's.
    #[error("`draft-token-map` `{}`: expected a JSON list of the target's ids by the draft's, or an object of both, found {found}", path.display())]
    VocabularyMap {
        /// The file.
        path: std::path::PathBuf,
        /// What is wrong.
        found: String,
    },
    /// The dialog has no engine of that role.
    #[error("no engine with role `{role}`: the dialog has {}", quoted(known))]
    UnknownRole {
        /// The role.
        role: String,
        /// Those that there are.
        known: Vec<&'static str>,
    },
    /// There is nothing to resume.
    #[error("RESUME came, but the dialog is not paused")]
    NotPaused,
    /// `RESUME` takes no input.
    #[error("RESUME came with {n} tokens, expected none")]
    ResumeWithInput {
        /// How many.
        n: usize,
    },
    /// Not a query's code.
    #[error("{code} is no sentence code for a query")]
    NotAQuery {
        /// The code.
        code: SentenceCode,
    },
    /// Nothing in, nothing before: there is nothing to answer.
    #[error("the query has no tokens and no BOS token is set, expected at least one token")]
    Empty,
    /// A session cannot be written or is not accepted. The live conversation is as it was.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The saved random state is not one. The live conversation is as it was.
    #[error(transparent)]
    RandomState(#[from] RngStateError),
    /// A snapshot of a cache without a dialog. The live conversation is as it was.
    #[error("the snapshot holds a cache but no dialog")]
    NoDialogSaved,
    /// There is no conversation yet.
    #[error("nothing to save: the dialog has no tokens yet")]
    NothingToSave,
    /// The conversations of several prompts have no file format.
    #[error("a batch of prompts cannot be saved, expected a dialog of one")]
    BatchNotSaved,
    /// A bias for a token that the model does not have.
    #[error("a bias for token {token}: expected a token below {n_vocab}")]
    BiasToken {
        /// The token.
        token: TokenId,
        /// Entries of the vocabulary.
        n_vocab: usize,
    },
    /// A bias that makes no logit.
    #[error("a bias of {found} for token {token}: expected a number, or -inf")]
    BiasNumber {
        /// The token.
        token: TokenId,
        /// Its bias.
        found: f32,
    },
    /// A stop sequence that would match everywhere.
    #[error("stop sequence {index} is empty, expected at least one character")]
    EmptyStopSequence {
        /// Its number, from 0.
        index: usize,
    },
}

fn quoted(names: &[&str]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

impl From<EngineError> for DialogError {
    fn from(e: EngineError) -> Self {
        match e {
            EngineError::Overflow(overflow) => Self::Overflow(overflow),
            other => Self::Engine(other),
        }
    }
}

impl DialogError {
    /// The status that Genie's C functions return in this case: 4 at the context's limit, -1 where an adapter cannot be applied,
    /// else -6 ("query failed").
    pub fn genie_status(&self) -> i32 {
        match self {
            Self::Overflow(_) | Self::TooLong { .. } => 4,
            Self::UnknownRole { .. } => -1,
            Self::Engine(error) if error.is_about_lora() => -1,
            _ => -6,
        }
    }
}
